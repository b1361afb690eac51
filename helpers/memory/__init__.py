"""Live bytes on any device, and the plan that fits a batch into a budget.

``with measure(model, optimizer) as memory:`` around any code: ``memory.peak`` is the most bytes
that were alive at once, ``memory.at_peak`` what they were. Inside ``fake()`` the same holds for
models of any size, for nothing is allocated. ``plan(...)`` cuts a batch to fit a budget.
"""

from helpers.memory.faking import fake, measure_fake
from helpers.memory.measuring import CATEGORIES, Memory, SavedTensor, measure
from helpers.memory.planning import DoesNotFit, Plan, accumulated_update, plan

__all__ = [
    "CATEGORIES",
    "DoesNotFit",
    "Memory",
    "Plan",
    "SavedTensor",
    "accumulated_update",
    "fake",
    "measure",
    "measure_fake",
    "plan",
]
