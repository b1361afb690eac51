"""Lesson 06: a switch for each cause, and how far it takes accumulation from whole batches."""

from collections.abc import Sequence

import ipywidgets as widgets

from helpers import checks
from helpers.figures import EquivalencePicture, Table, number
from helpers.figures.equivalence import AVERAGED, LINES, ROUNDING, STATISTICS, WEIGHTS
from helpers.panels.panel import Panel, buttons, labelled, side_by_side
from helpers.subjects.causes import CHOICES, Causes
from helpers.subjects.equivalence import STEPS, UPDATES, distances

LABELS = {
    "normalisation": "normalisation",
    "checkpointing": "checkpointing",
    "loss": "loss",
    "dropout": "dropout",
    "clipping": "clipping",
    "stepping": "optimizer",
    "schedule": "scheduler",
    "averaging": "EMA",
    "loss_scale": "loss scale",
    "accumulator": "accumulator",
}


class EquivalencePanel(Panel):
    """One small net, accumulated with causes of difference switched on, against whole batches.

    Args:
        shown: the causes that have a menu, by name; all others stay off.

    Raises:
        ValueError: none is to be shown, or there is no such cause.

    Controls:
        causes: a dropdown for each cause shown, by its field's name in
            :class:`helpers.subjects.causes.Causes`, as in
            ``causes["dropout"].value = "other masks"``. The first choice takes the cause away.
        accumulation_steps: micro-batches in each window of 16 samples: 1, 2, 4 or 8.
        updates: after how many updates the runs are compared, 1 to 8.

    After every move: ``measured``, the :class:`helpers.subjects.equivalence.Distances`.
    """

    title = "Causes of difference, one switch each"

    def __init__(self, shown: Sequence[str] = tuple(CHOICES)):
        if not shown:
            raise ValueError(f"shown must hold one or more of {list(CHOICES)}, got {shown!r}")
        for name in shown:
            checks.one_of("each of shown", name, CHOICES)
        self.causes = {
            name: widgets.Dropdown(
                options=[str(choice) for choice in choices], layout=widgets.Layout(width="245px")
            )
            for name, choices in CHOICES.items()
            if name in shown
        }
        first = next(iter(self.causes.values()))
        first.value = first.options[-1] if "normalisation" not in shown else "BatchNorm"
        self.accumulation_steps = buttons(list(STEPS), 4)
        self.updates = widgets.IntSlider(UPDATES, 1, UPDATES)
        self.all_off = widgets.Button(
            description="no cause at all", layout=widgets.Layout(width="max-content")
        )
        self.all_off.on_click(lambda _: self.only())
        switches = [labelled(LABELS[name], control) for name, control in self.causes.items()]
        rows = [
            side_by_side(
                labelled("steps k", self.accumulation_steps),
                labelled("updates", self.updates),
                self.all_off,
            ),
            *(side_by_side(*switches[i : i + 2]) for i in range(0, len(switches), 2)),
        ]
        controls = (*self.causes.values(), self.accumulation_steps, self.updates)
        # Without a choice of BatchNorm there is nothing that has running statistics.
        names = [line for line in LINES if line != STATISTICS or "normalisation" in self.causes]
        super().__init__(EquivalencePicture(UPDATES, names), controls, rows)

    def only(self, **causes: str) -> None:
        """Switch these causes to the choices given and all others off.

        Raises:
            ValueError: a cause is none of its choices, or is not shown.
            TypeError: there is no such cause.
        """
        wanted = Causes(**causes)
        for name in causes:
            checks.one_of("each of causes", name, self.causes)
        with self.hold():
            for name, control in self.causes.items():
                control.value = str(getattr(wanted, name))

    def follow(self) -> tuple[Table, Sequence[str]]:
        chosen = {name: control.value for name, control in self.causes.items()}
        k, updates = self.accumulation_steps.value, self.updates.value
        self.measured = measured = distances(Causes(**chosen), k)
        lines = {WEIGHTS: measured.weights, AVERAGED: measured.averaged}
        if measured.statistics:
            lines[STATISTICS] = measured.statistics
        verdict = _verdict(chosen, k)
        self.picture.update(
            measured.gradient, {name: line[1:] for name, line in lines.items()}, updates, verdict
        )
        far = {"gradient": measured.gradient}
        far |= {name: line[updates] for name, line in lines.items()}
        rows = tuple((name, off_by(distance)) for name, distance in far.items())
        heading = (f"after {updates} updates" if updates > 1 else "after 1 update", "off by")
        return Table(heading, rows, f"{verdict}. {_summary(far)}"), ()


def off_by(distance: float) -> str:
    """A distance as a word where it is no more than rounding, else two digits, one if small."""
    if distance < ROUNDING:
        return "rounding"
    if distance >= 99.5:  # two digits of it would be written with an exponent
        return f"{distance:.0f}"
    return number(distance, 2 if distance >= 0.01 else 1)


def _summary(far: dict[str, float]) -> str:
    off = [f"{name} {off_by(distance)}" for name, distance in far.items() if distance >= ROUNDING]
    return f"Off: {', '.join(off)}" if off else "All equal up to rounding"


def _verdict(chosen: dict[str, str], k: int) -> str:
    """The causes that are switched on, and what else is and has no effect, in one short line."""
    on = {
        name: value if name in ("normalisation", "loss") else f"{LABELS[name]} {value}"
        for name, value in chosen.items()
        if value != str(next(iter(CHOICES[name])))
    }
    idle = [on.pop(name) for name in Causes(**chosen).without_effect(k)]
    causes = f"{len(on)} causes" if len(on) > 3 else " + ".join(on.values()) or "no cause"
    if not idle:
        return f"{causes}, k = {k}"
    # Three choices are as many as have room in one line.
    others = f"{len(idle)} more" if len(on) + len(idle) > 2 else " + ".join(idle)
    return f"{causes}, k = {k}; no effect here: {others}"
