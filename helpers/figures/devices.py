"""When a rank computes and when its link is busy, with and without no_sync."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from helpers.figures.drawing import MICRO_BATCH_COLOURS, pale
from helpers.figures.pictures import MovingPicture
from helpers.figures.shares import first_above

KINDS = ("forward", "backward", "all-reduce")
WAYS = ("without no_sync", "with no_sync")
LIMITS = (50, 100, 200, 400, 800, 1600, 3200)  # milliseconds
EDGE = "#444444"

Busy = tuple[str, int, float, float]  # kind, micro-batch, start, end


class DevicesPicture(MovingPicture):
    """Two lanes for each way, what a rank computes and what its link sends, over milliseconds.

    A micro-batch has one colour, pale in its forward; a triangle marks the optimizer step.
    """

    size = (9.0, 3.4)

    def draw(self) -> None:
        self.axes = axes = self.figure.add_axes([0.2, 0.16, 0.78, 0.68])
        axes.set(ylim=(0, 4.6), yticks=[3.9, 3.1, 1.5, 0.7])
        axes.set_yticklabels(["computes", "link"] * 2)
        axes.set_xlabel("milliseconds", loc="left")
        for way, height in zip(WAYS, (3.5, 1.1), strict=True):
            axes.text(-0.115, height, way.replace(" ", "\n"), transform=_beside(axes), **CENTRED)
        self.bars = {
            kind: axes.add_collection(PolyCollection([], linewidths=0.6, edgecolors=EDGE))
            for kind in KINDS
        }
        for kind, bars in self.bars.items():
            bars.set_label(kind)
        self.bars["all-reduce"].set_hatch("////")
        (self.steps,) = axes.plot([], [], "v", color="#000000", ms=7, zorder=4, clip_on=False)
        self.steps.set_label("optimizer step")
        grey = {"edgecolor": EDGE, "lw": 0.6}
        named = [
            Patch(facecolor="#eeeeee", label="forward", **grey),
            Patch(facecolor="#bbbbbb", label="backward", **grey),
            Patch(facecolor="#bbbbbb", hatch="////", label="all-reduce", **grey),
            self.steps,
        ]
        beneath = {"loc": "upper right", "bbox_to_anchor": (1, -0.08), "borderpad": 0}
        axes.legend(handles=named, ncols=4, **beneath)
        self.verdict = axes.set_title("", pad=10)

    def update(self, busy: Mapping[str, Sequence[Busy]], verdict: str) -> None:
        """Show one update done both ways.

        Args:
            busy: for each of ``WAYS`` what a rank and its link do, and when.
            verdict: one line on it.
        """
        ends = [max(end for *_, end in busy[way]) for way in WAYS]
        width = first_above(max(ends), LIMITS)
        self.axes.set(xlim=(0, width), xticks=np.linspace(0, width, 6))
        for kind, bars in self.bars.items():
            boxes, colours = [], []
            for way, top in zip(WAYS, (4.2, 1.8), strict=True):
                high = top - 0.8 if kind == "all-reduce" else top
                for own, i, a, b in busy[way]:
                    if own == kind:
                        boxes.append([(a, high - 0.6), (a, high), (b, high), (b, high - 0.6)])
                        colour = MICRO_BATCH_COLOURS[i % 4]
                        colours.append(pale(colour) if kind == "forward" else colour)
            bars.set_verts(boxes)
            bars.set_facecolors(colours or "none")
        self.steps.set_data(ends, [4.35, 1.95])
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        return [*self.bars.values(), self.steps, self.verdict]


CENTRED = {"ha": "right", "va": "center", "linespacing": 1.3}


def _beside(axes):
    """Fractions of the axes along x, data along y."""
    return axes.get_yaxis_transform()
