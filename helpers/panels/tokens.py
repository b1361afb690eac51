"""Lesson 04: sequences of any length, cut anywhere, and what each of their tokens counts."""

import itertools
from collections.abc import Sequence

import ipywidgets as widgets
import torch

from helpers.figures import MICRO_BATCH_COLOURS, Table, TokenPicture, number
from helpers.panels.panel import Panel, buttons, labelled
from helpers.tokens import sequences, target_gradients, tiny_language_model

SEQUENCES, MOST_TARGETS = 8, 12
RULES = {
    "divided by steps": "means",
    "weighted by sequences": "sequences",
    "weighted by tokens": "tokens",
}


class TokenPanel(Panel):
    """Eight sequences in micro-batches: each target's weight in the update, and the gradient error.

    The gradients are those of the lesson's small language model, worked out once for each target.

    Controls:
        targets: eight sliders, the targets of each sequence, 0 to 12; 0 is all ignored.
        gaps: seven toggles; ``gaps[2].value = True`` cuts between sequence 3 and sequence 4.
        rule: "means" (each micro-batch's mean divided by the steps), "sequences" (weighted by
            their number) or "tokens".

    After every move: ``sizes`` of the micro-batches, ``shares`` of each target (1 is fair),
    ``error``, the gradient's, over the length of the full-batch gradient, and ``loss_is_nan``. A
    mean over no target is NaN, but cross_entropy's gradient of it is 0, so the others' remain.
    """

    title = "Eight sequences cut into micro-batches"

    def __init__(self):
        model = tiny_language_model()
        longest = sequences([MOST_TARGETS + 1] * SEQUENCES)
        self.gradients = torch.stack([target_gradients(model, s) for s in longest])
        narrow = widgets.Layout(width="42px", height="130px")
        self.targets = tuple(
            widgets.IntSlider(value, 0, MOST_TARGETS, orientation="vertical", layout=narrow)
            for value in (2, 2, 3, 12, 2, 10, 3, 4)
        )
        self.gaps = tuple(
            widgets.ToggleButton(
                value=i % 2 == 0,
                description=f"{i}|{i + 1}",
                tooltip=f"cut between sequence {i} and sequence {i + 1}",
                layout=widgets.Layout(width="44px", padding="0", margin="45px 0 0 0"),
            )
            for i in range(1, SEQUENCES)
        )
        self.rule = buttons(list(RULES.items()), "means", 190)
        pairs = itertools.zip_longest(self.targets, self.gaps)
        row = [widget for pair in pairs for widget in pair if widget is not None]
        sliders = widgets.HBox(row, layout=widgets.Layout(height="150px", overflow="hidden"))
        layout = widgets.VBox([labelled("each loss", self.rule), labelled("targets", sliders)])
        super().__init__(TokenPicture(), (*self.targets, *self.gaps, self.rule), layout)

    def follow(self) -> tuple[Table, Sequence[str]]:
        targets = [slider.value for slider in self.targets]
        edges = [0, *(i for i, gap in enumerate(self.gaps, start=1) if gap.value), SEQUENCES]
        self.sizes = tuple(end - start for start, end in itertools.pairwise(edges))
        counts = [sum(targets[a:b]) for a, b in itertools.pairwise(edges)]
        total = sum(counts)
        weights = [self._weight(n, size, total) for n, size in zip(counts, self.sizes, strict=True)]

        self.loss_is_nan = not total or (self.rule.value != "tokens" and 0 in counts)
        belongs = [i for i, count in enumerate(counts) for _ in range(count)]
        self.shares = [weights[i] * total for i in belongs]
        present = torch.cat([self.gradients[s, :n] for s, n in enumerate(targets)])
        self.error = self._error(present, belongs, weights) if total else 0.0
        ends = list(itertools.accumulate(targets))
        self.picture.update(self.shares, belongs, ends, self.error, self._verdict(total))
        rows = [
            (
                f"{size} sequences" if size > 1 else "1 sequence",
                str(n),
                number(w * n, 3),
                number(w * total, 3) if n else "–",
            )
            for size, n, w in zip(self.sizes, counts, weights, strict=True)
        ]
        heading = ("micro-batch", "targets", "weight of its mean", "each target counts")
        colours = [MICRO_BATCH_COLOURS[i % 4] for i in range(len(rows))]
        return Table(heading, tuple(rows), self._verdict(total)), colours

    def _weight(self, targets: int, size: int, total: int) -> float:
        """What each target of a micro-batch counts."""
        if not targets:
            return 0.0
        if self.rule.value == "tokens":
            return 1 / total
        share = 1 / len(self.sizes) if self.rule.value == "means" else size / SEQUENCES
        return share / targets

    def _error(self, present: torch.Tensor, belongs: list[int], weights: list[float]) -> float:
        full = present.mean(0)
        gradient = torch.tensor([weights[i] for i in belongs]) @ present
        return ((gradient - full).norm() / full.norm()).item()

    def _verdict(self, total: int) -> str:
        if not total:
            return "no target in the whole window: no step at all"
        if self.error < 1e-6:
            gradient = "every target counts the same: the full-batch gradient, up to rounding"
        else:
            gradient = f"the gradient is off by {self.error:.0%} of the full batch's length"
        return f"the loss is NaN, {gradient}" if self.loss_is_nan else gradient
