"""Live bytes on any device, and the plan that fits a batch into a budget.

``with measure(model, optimizer) as memory:`` around any code: ``memory.peak`` is the most bytes
that were alive at once, ``memory.at_peak`` what they were. Inside ``fake()`` the same holds for
models of any size, for nothing is allocated. ``plan(...)`` cuts a batch to fit a budget.
"""

from helpers.memory.faking import fake
from helpers.memory.measuring import measure
from helpers.memory.planning import DoesNotFit, Plan, plan
from helpers.memory.tally import CATEGORIES, Memory, SavedTensor
from helpers.memory.trying import accumulated_update

__all__ = [
    "CATEGORIES",
    "DoesNotFit",
    "Memory",
    "Plan",
    "SavedTensor",
    "accumulated_update",
    "fake",
    "measure",
    "plan",
]
