"""An audited run: which micro-batches enter which update, and its gradient beside the right one."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection

from helpers.figures.drawing import FULL_BATCH, MICRO_BATCH_COLOURS, epoch_ends, pale
from helpers.figures.pictures import MovingPicture
from helpers.figures.shares import UNUSED, first_above

LONGEST = 14  # micro-batches
TALLEST = (10, 20, 40, 80)  # gradients to choose from, for the height of the chart
RIGHT, WRONG = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class UpdateBar:
    """What is drawn of one update."""

    end: int  # after how many micro-batches it is made
    gradient: float
    right: float
    found: bool  # whether a finding concerns it


class MuseumPicture(MovingPicture):
    """Above a box for each micro-batch, as high as it has samples; beneath a bar for each update.

    Boxes of one update have one colour, a triangle stands where the optimizer steps, a cross in
    each micro-batch that no update uses. A bar is the gradient as the optimizer saw it, blue where
    nothing was found and hatched red where something was; a black dash is the right one.
    """

    size = (9.0, 4.6)

    def draw(self) -> None:
        above = self.figure.add_axes([0.08, 0.68, 0.89, 0.17])
        above.set(xlim=(0, LONGEST), ylim=(0, 4), yticks=[0, 1, 2, 3], xticks=[])
        above.set_ylabel("samples")
        self.boxes = above.add_collection(
            PolyCollection(
                [], linewidths=0.8, facecolors="#ffffff", edgecolors="#555555", label="micro-batch"
            )
        )
        (self.steps,) = above.plot([], [], "v", color="#000000", ms=6, zorder=4, clip_on=False)
        self.steps.set_label("optimizer step")
        (self.unused,) = above.plot([], [], "x", color=WRONG, ms=6, mew=2, zorder=4)
        self.unused.set_label("unused")
        beneath = self.figure.add_axes([0.08, 0.11, 0.89, 0.45])
        beneath.set(xlim=(0, LONGEST), xticks=range(0, LONGEST + 1, 2), ylabel="gradient")
        beneath.set_xlabel("micro-batches, two epochs", loc="left")
        self.beneath = beneath
        self.fine = beneath.add_collection(
            PolyCollection([], facecolors=pale(RIGHT), edgecolors=RIGHT, label="update, right")
        )
        self.off = beneath.add_collection(
            PolyCollection(
                [], facecolors=pale(WRONG), edgecolors=WRONG, hatch="///", label="update, off"
            )
        )
        self.rights = beneath.add_collection(
            LineCollection([], colors=FULL_BATCH, linewidths=2.2, label="large batch", zorder=4)
        )
        self.epoch = epoch_ends(beneath)
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderpad": 0}
        named = [self.boxes, self.steps, self.unused]
        above.legend(handles=named, ncols=3, **place)
        named = [self.fine, self.off, self.rights, self.epoch]
        beneath.legend(handles=named, ncols=4, **place)
        self.verdict = above.text(0, 1.55, "", weight="bold", transform=above.transAxes)

    def update(
        self,
        sizes: Sequence[int],
        owners: Sequence[int | None],
        bars: Sequence[UpdateBar],
        verdict: str,
    ) -> None:
        """Show a run of two epochs.

        Args:
            sizes: the samples of each micro-batch, in the order used.
            owners: for each the number of the update that it enters, or None.
            bars: the updates, in order.
            verdict: one line on the run.
        """
        self.boxes.set_verts([_box(i, i + 1, size) for i, size in enumerate(sizes)])
        colours = [
            UNUSED if owner is None else pale(MICRO_BATCH_COLOURS[owner % 4]) for owner in owners
        ]
        self.boxes.set(facecolors=colours, edgecolors="#555555")
        self.steps.set_data([bar.end for bar in bars], [3.6] * len(bars))
        unused = [i + 0.5 for i, owner in enumerate(owners) if owner is None]
        self.unused.set_data(unused, [0.5] * len(unused))
        top = first_above(max(max(bar.gradient, bar.right) for bar in bars), TALLEST)
        self.beneath.set(ylim=(0, top), yticks=[0, top // 2, top])
        for collection, found in ((self.fine, False), (self.off, True)):
            of_these = [bar for bar in bars if bar.found == found]
            collection.set_verts([_box(b.end - 0.8, b.end - 0.2, b.gradient) for b in of_these])
        self.rights.set_segments([[(b.end - 0.9, b.right), (b.end - 0.1, b.right)] for b in bars])
        ends = (len(sizes) / 2, len(sizes))
        self.epoch.set_segments([[(end, 0), (end, top)] for end in ends])
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        return [
            *(self.boxes, self.steps, self.unused, self.fine, self.off),
            *(self.rights, self.epoch, self.verdict),
        ]


def _box(left: float, right: float, height: float) -> list[tuple[float, float]]:
    return [(left, 0), (left, height), (right, height), (right, 0)]
