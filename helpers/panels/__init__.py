"""The interactive panels, one module a subject: controls to numbers to figure."""

from helpers.panels.cutting import CuttingPanel
from helpers.panels.devices import DevicesPanel
from helpers.panels.equivalence import EquivalencePanel
from helpers.panels.libraries import LibrariesPanel
from helpers.panels.memory import MemoryPanel
from helpers.panels.museum import MuseumPanel
from helpers.panels.stepping import SteppingPanel
from helpers.panels.tokens import TokensPanel
from helpers.panels.training import TrainingPanel
from helpers.panels.windows import WindowsPanel

__all__ = [
    "CuttingPanel",
    "DevicesPanel",
    "EquivalencePanel",
    "LibrariesPanel",
    "MemoryPanel",
    "MuseumPanel",
    "SteppingPanel",
    "TokensPanel",
    "TrainingPanel",
    "WindowsPanel",
]
