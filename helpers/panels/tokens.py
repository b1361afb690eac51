"""Lesson 05: sequences of any length, cut anywhere, and what each of their tokens counts."""

import itertools
from collections.abc import Sequence

import ipywidgets as widgets

from helpers.figures import MICRO_BATCH_COLOURS, Table, TokensPicture, number
from helpers.panels.panel import Panel, buttons, in_a_row, labelled
from helpers.subjects.tokens import MOST_TARGETS, RULES, TokenWindow, token_window

SEQUENCES = 8
RULE_NAMES = ("divided by steps", "weighted by sequences", "weighted by tokens")


class TokensPanel(Panel):
    """Eight sequences in micro-batches: each target's weight in the update, and the gradient error.

    The gradients are those of the lesson's small language model, worked out once for each target.

    Controls:
        targets: eight sliders, the targets of each sequence, 0 to 12; 0 is all ignored.
        gaps: seven toggles; ``gaps[2].value = True`` cuts between sequence 3 and sequence 4.
        rule: "means" (each micro-batch's mean divided by the steps), "sequences" (weighted by
            their number) or "tokens".

    After every move: ``sizes`` of the micro-batches and ``window``, a
    :class:`helpers.subjects.tokens.TokenWindow`.
    """

    title = "Eight sequences cut into micro-batches"

    def __init__(self):
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
        self.rule = buttons(list(zip(RULE_NAMES, RULES, strict=True)), "means")
        pairs = itertools.zip_longest(self.targets, self.gaps)
        row = [widget for pair in pairs for widget in pair if widget is not None]
        rows = [labelled("each loss", self.rule), labelled("targets", in_a_row(*row))]
        super().__init__(TokensPicture(), (*self.targets, *self.gaps, self.rule), rows)

    def follow(self) -> tuple[Table, Sequence[str]]:
        targets = [slider.value for slider in self.targets]
        edges = [0, *(i for i, gap in enumerate(self.gaps, start=1) if gap.value), SEQUENCES]
        self.sizes = tuple(end - start for start, end in itertools.pairwise(edges))
        self.window = window = token_window(targets, self.sizes, self.rule.value)
        verdict, total = _verdict(window), sum(targets)
        ends = list(itertools.accumulate(targets))
        self.picture.update(window.shares, window.owners, ends, window.error, verdict)
        rows = [
            (
                f"{size} sequences" if size > 1 else "1 sequence",
                str(count),
                number(weight * count, 3),
                number(weight * total, 3) if count else "–",
            )
            for size, count, weight in zip(self.sizes, window.targets, window.weights, strict=True)
        ]
        heading = ("micro-batch", "targets", "weight of its mean", "each target counts")
        colours = [MICRO_BATCH_COLOURS[i % 4] for i in range(len(rows))]
        return Table(heading, tuple(rows), verdict), colours


def _verdict(window: TokenWindow) -> str:
    if not sum(window.targets):
        return "no target in the whole window: no step at all"
    if window.error < 1e-6:
        gradient = "every target counts the same: the full-batch gradient, up to rounding"
    else:
        gradient = f"the gradient is off by {window.error:.0%} of the full batch's length"
    return f"the loss is NaN, {gradient}" if window.loss_is_nan else gradient
