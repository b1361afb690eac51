"""Drawing with matplotlib: numbers in, artists out. Knows neither torch nor widgets."""

from helpers.figures.causes import against, calendar, cloud, comparisons, on_a_line, walks
from helpers.figures.contents import contents
from helpers.figures.cutting import CuttingPicture
from helpers.figures.devices import DevicesPicture
from helpers.figures.drawing import (
    FULL_BATCH,
    MICRO_BATCH_COLOURS,
    SCALING_COLOURS,
    SCALING_NAMES,
    number,
    png,
    vector,
)
from helpers.figures.equivalence import EquivalencePicture
from helpers.figures.libraries import LibrariesPicture, LibraryRow
from helpers.figures.lines import lines, stacked_parts
from helpers.figures.memory import MemoryPicture, line_through
from helpers.figures.museum import MuseumPicture, UpdateBar
from helpers.figures.pictures import MovingPicture, Picture, Table
from helpers.figures.roads import roads
from helpers.figures.stepping import SteppingPicture
from helpers.figures.svg import SvgDrawing
from helpers.figures.tokens import TokensPicture, weight_bars
from helpers.figures.training import TrainingPicture, curves, paths
from helpers.figures.windows import WindowsPicture

__all__ = [
    "FULL_BATCH",
    "MICRO_BATCH_COLOURS",
    "SCALING_COLOURS",
    "SCALING_NAMES",
    "CuttingPicture",
    "DevicesPicture",
    "EquivalencePicture",
    "LibrariesPicture",
    "LibraryRow",
    "MemoryPicture",
    "MovingPicture",
    "MuseumPicture",
    "Picture",
    "SteppingPicture",
    "SvgDrawing",
    "Table",
    "TokensPicture",
    "TrainingPicture",
    "UpdateBar",
    "WindowsPicture",
    "against",
    "calendar",
    "cloud",
    "comparisons",
    "contents",
    "curves",
    "line_through",
    "lines",
    "number",
    "on_a_line",
    "paths",
    "png",
    "roads",
    "stacked_parts",
    "vector",
    "walks",
    "weight_bars",
]
