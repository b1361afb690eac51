"""The audit: hand over a training loop, get told whether its updates are those of the large batch.

``audit(train, model, batches, loss, accumulation_steps)`` runs the loop on a copy under the flight
recorder, works out the right gradient of each update, and names what gives another one.
"""

from helpers.audit.auditing import audit
from helpers.audit.kinds import KINDS
from helpers.audit.records import Finding, Update
from helpers.audit.report import Report

__all__ = ["KINDS", "Finding", "Report", "Update", "audit"]
