"""Lesson 03: step through a loop, forwards and back."""

from collections.abc import Mapping, Sequence

import ipywidgets as widgets

from helpers.figures import MICRO_BATCH_COLOURS, SteppingPicture, Table, number
from helpers.figures.stepping import MOST_LINES
from helpers.panels.panel import Panel, buttons, in_a_row, labelled
from helpers.subjects.stepping import Loop, source_lines, step_through


class SteppingPanel(Panel):
    """A loop stopped after any of its lines: the line lit, ``.grad``, the weight, the counters.

    Args:
        loops: training loops ``loop(model, optimizer, batches, accumulation_steps)`` by name, of
            at most 16 lines each, such as :func:`helpers.subjects.stepping.step_through` takes.
        micro_gradients: the gradient of each micro-batch.
        accumulation_steps: how many of them make a window.

    Controls:
        loop: which of the loops.
        moment: after how many lines it is stopped; ``back`` and ``forward`` move it by one.

    After every move: ``now``, a :class:`helpers.subjects.stepping.Moment`.
    """

    title = "A loop, line by line"

    def __init__(
        self, loops: Mapping[str, Loop], micro_gradients: Sequence[float], accumulation_steps: int
    ):
        if not loops:
            raise ValueError("loops must hold at least one loop, got none")
        self.sources = {name: source_lines(loop) for name, loop in loops.items()}
        for name, lines in self.sources.items():
            if len(lines) > MOST_LINES:
                raise ValueError(
                    f"loops must have at most {MOST_LINES} lines, got {len(lines)} in {name!r}"
                )
        self.runs = {
            name: step_through(loop, micro_gradients, accumulation_steps)
            for name, loop in loops.items()
        }
        self.right = sum(micro_gradients[:accumulation_steps]) / accumulation_steps
        self.loop = buttons(list(loops), next(iter(loops)))
        last = len(self.runs[self.loop.value]) - 1
        self.moment = widgets.IntSlider(0, 0, last, layout=widgets.Layout(width="420px"))
        self.back = widgets.Button(description="◀ back", layout=widgets.Layout(width="90px"))
        self.forward = widgets.Button(description="forward ▶", layout=widgets.Layout(width="90px"))
        self.back.on_click(lambda _: self._go(-1))
        self.forward.on_click(lambda _: self._go(+1))
        rows = [
            labelled("loop", self.loop),
            in_a_row(labelled("lines run", self.moment), self.back, self.forward),
        ]
        super().__init__(SteppingPicture(), (self.loop, self.moment), rows)

    def _go(self, lines: int) -> None:
        self.moment.value = min(max(self.moment.value + lines, 0), self.moment.max)

    def control_moved(self, control: widgets.ValueWidget) -> None:
        if control is self.loop:
            self.moment.max = len(self.runs[self.loop.value]) - 1
            self.moment.value = 0

    def follow(self) -> tuple[Table, Sequence[str]]:
        name, run = self.loop.value, self.runs[self.loop.value]
        self.now = now = run[self.moment.value]
        lines = self.sources[name]
        # Negative and positive parts of any moment: one scale for the whole run.
        reach = tuple(
            sign * max(sum(max(sign * part, 0) for _, part in moment.held) for moment in run)
            for sign in (-1, 1)
        )
        self.picture.update(
            lines,
            now.line,
            now.held,
            self.right,
            reach,
            f".grad {number(now.gradient)}",
            f"weight {number(now.weight)}\nlr {number(now.lr)}\n"
            f"backwards {now.backwards}\nupdates {now.updates}",
        )
        rows = tuple(
            (f"micro-batch {n}" if n else "set by hand", number(part)) for n, part in now.held
        )
        after = lines[now.line].strip() if now.line >= 0 else "nothing yet"
        closing = f"after “{after}”: .grad {number(now.gradient)}, weight {number(now.weight)}"
        colours = [MICRO_BATCH_COLOURS[(n - 1) % 8] for n, _ in now.held]
        return Table(("in .grad", "part"), rows or (("nothing", "0"),), closing), colours
