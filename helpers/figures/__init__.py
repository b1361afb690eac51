"""Drawing with matplotlib: numbers in, artists out. Knows neither torch nor widgets."""

from helpers.figures.cutting import CuttingPicture
from helpers.figures.drawing import (
    FULL_BATCH,
    MICRO_BATCH_COLOURS,
    SCALING_COLOURS,
    SCALING_NAMES,
    Picture,
    SvgDrawing,
    Table,
    number,
    png,
    vector,
)
from helpers.figures.equivalence import EquivalencePicture
from helpers.figures.memory import MemoryPicture, line_through
from helpers.figures.stepping import SteppingPicture
from helpers.figures.training import Run, TrainingPicture, curves, paths
from helpers.figures.windows import TimelinePicture, TokenPicture, weight_bars

__all__ = [
    "FULL_BATCH",
    "MICRO_BATCH_COLOURS",
    "SCALING_COLOURS",
    "SCALING_NAMES",
    "CuttingPicture",
    "EquivalencePicture",
    "MemoryPicture",
    "Picture",
    "Run",
    "SteppingPicture",
    "SvgDrawing",
    "Table",
    "TimelinePicture",
    "TokenPicture",
    "TrainingPicture",
    "curves",
    "line_through",
    "number",
    "paths",
    "png",
    "vector",
    "weight_bars",
]
