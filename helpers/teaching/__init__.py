"""What a lesson asks of its reader, checks of their answers, and shows beside its own outputs."""

from helpers.teaching.asking import Prediction, Recall
from helpers.teaching.exercises import check
from helpers.teaching.showing import progress, show_source

__all__ = ["Prediction", "Recall", "check", "progress", "show_source"]
