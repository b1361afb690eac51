"""The interactive panels, one module each: controls to numbers to figure."""

from helpers.panels.cutting import CuttingPanel
from helpers.panels.equivalence import EquivalencePanel
from helpers.panels.memory import MemoryPanel
from helpers.panels.stepping import SteppingPanel
from helpers.panels.timeline import TimelinePanel
from helpers.panels.tokens import TokenPanel
from helpers.panels.training import TrainingPanel

__all__ = [
    "CuttingPanel",
    "EquivalencePanel",
    "MemoryPanel",
    "SteppingPanel",
    "TimelinePanel",
    "TokenPanel",
    "TrainingPanel",
]
