"""Which samples enter which update, and how much each counts."""

from collections.abc import Sequence

from matplotlib.artist import Artist

from helpers.figures.drawing import epoch_ends
from helpers.figures.pictures import MovingPicture
from helpers.figures.shares import ShareBars


class WindowsPicture(MovingPicture):
    """A bar for every sample in the order drawn: how much it counts, 1 being its fair share.

    Bars of one update have one colour; a triangle marks each optimizer step, a dashed line each
    end of an epoch, and a cross each sample that no update uses.
    """

    size = (9.0, 3.1)

    def draw(self) -> None:
        axes = self.figure.add_axes([0.07, 0.17, 0.91, 0.7])
        axes.set_xlabel("samples in the order drawn", loc="left")
        self.shares = ShareBars(axes, heights=(2.2, 5, 12))
        self.epochs = epoch_ends(axes)
        (self.steps,) = axes.plot([], [], "v", color="#000000", ms=6, zorder=4, clip_on=False)
        self.steps.set_label("optimizer step")
        (self.unused,) = axes.plot([], [], "x", color="#D55E00", ms=6, mew=2, zorder=4)
        self.unused.set_label("unused sample")
        named = [self.steps, self.epochs, self.unused]
        beneath = {"loc": "upper right", "bbox_to_anchor": (1, -0.09), "borderpad": 0}
        axes.legend(handles=named, ncols=3, **beneath)
        self.verdict = axes.set_title("", pad=12)

    def update(
        self,
        shares: Sequence[float],
        belongs: Sequence[int | None],
        batch_ends: Sequence[int],
        step_ends: Sequence[int],
        epoch_ends: Sequence[int],
        verdict: str,
    ) -> None:
        """Show a run.

        Args:
            shares: for each sample its weight, in fair shares; 0 where unused.
            belongs: for each sample the number of its update, or None.
            batch_ends, step_ends, epoch_ends: after how many samples a micro-batch ends, the
                optimizer steps, an epoch ends.
            verdict: one line on the run.
        """
        top = self.shares.set(shares, belongs, batch_ends)
        self.epochs.set_segments([[(x, 0), (x, top)] for x in epoch_ends])
        self.steps.set_data(step_ends, [top] * len(step_ends))
        unused = [i + 0.5 for i, update in enumerate(belongs) if update is None]
        self.unused.set_data(unused, [0.12 * top] * len(unused))
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        return [self.shares.bars, self.unused, self.epochs, self.steps, self.verdict]
