"""How much each sample counts in its update, in every library."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection

from helpers.figures.drawing import MICRO_BATCH_COLOURS, RULING, epoch_ends, pale
from helpers.figures.pictures import MovingPicture
from helpers.figures.shares import UNUSED, first_above

ROW = 0.8  # of the distance between two rows, the highest bar
TALLEST = (1.5, 2.5, 5)  # weights to choose from, for a row's height
WIDTHS = (8, 16, 24, 32)


@dataclass(frozen=True)
class LibraryRow:
    """What is drawn of one library's run."""

    shares: Sequence[float]  # for each sample drawn its weight, 1 is fair
    owners: Sequence[int | None]  # the number of its update, or None
    batch_ends: Sequence[int]  # after how many samples a micro-batch ends
    step_ends: Sequence[int]  # after how many samples the optimizer steps
    verdict: str


class LibrariesPicture(MovingPicture):
    """A row of bars for the right run and for each library's: how much each sample counts.

    A bar is a micro-batch, as wide as it has samples. Bars of one update have one colour, a dashed
    line in each row is the fair weight of 1, a triangle stands after each optimizer step, a cross
    at each sample that no update uses.

    Args:
        names: of the rows, from the top.
    """

    size = (9.0, 4.8)

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        super().__init__()

    def draw(self) -> None:
        axes = self.figure.add_axes([0.13, 0.11, 0.6, 0.79])
        rows = len(self.names)
        axes.set(ylim=(0, rows), yticks=[rows - i - 1 + ROW / 2 for i in range(rows)])
        axes.set_yticklabels(self.names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("samples in the order drawn", loc="left")
        for i in range(1, rows):
            axes.axhline(i, **RULING)
        self.axes = axes
        self.bars = axes.add_collection(PolyCollection([], linewidths=0.8, label="weight"))
        self.fair = axes.add_collection(
            LineCollection([], colors="#000000", linestyles=[(0, (4, 2))], linewidths=1.2)
        )
        self.fair.set_label("1 is fair")
        (self.steps,) = axes.plot([], [], "v", color="#000000", ms=5, zorder=4, clip_on=False)
        self.steps.set_label("optimizer step")
        (self.unused,) = axes.plot([], [], "x", color="#D55E00", ms=6, mew=2, zorder=4)
        self.unused.set_label("unused")
        self.epoch = epoch_ends(axes)
        named = [self.bars, self.fair, self.steps, self.unused, self.epoch]
        above = {"loc": "lower left", "bbox_to_anchor": (-0.2, 1.0), "borderpad": 0}
        axes.legend(handles=named, ncols=5, handlelength=1.6, columnspacing=1.4, **above)
        self.verdicts = [
            axes.text(1.02, (rows - i - 1 + ROW / 2) / rows, "", va="center", transform=place)
            for i, place in enumerate([axes.transAxes] * rows)
        ]

    def update(self, rows: Sequence[LibraryRow], epoch_ends: Sequence[int]) -> None:
        """Show runs over the same samples, one for each name.

        Args:
            rows: what each row shows, from the top.
            epoch_ends: after how many samples an epoch ends.
        """
        drawn = len(rows[0].shares)
        width = first_above(drawn - 0.5, WIDTHS)
        scale = ROW / first_above(max(max(row.shares) for row in rows), TALLEST)
        floors = [len(rows) - i - 1 for i in range(len(rows))]
        self.axes.set(xlim=(0, width), xticks=range(0, width + 1, width // 4))
        bars, colours, steps, unused = [], [], [], []
        for floor, row, verdict in zip(floors, rows, self.verdicts, strict=True):
            for start, end in itertools.pairwise((0, *row.batch_ends)):
                top, owner = floor + row.shares[start] * scale, row.owners[start]
                bars.append([(start, floor), (start, top), (end, top), (end, floor)])
                colours.append(UNUSED if owner is None else pale(MICRO_BATCH_COLOURS[owner % 4]))
                if owner is None:
                    unused += [(at + 0.5, floor + 0.12) for at in range(start, end)]
            steps += [(end, floor + 0.92) for end in row.step_ends]
            verdict.set_text(row.verdict)
        self.bars.set_verts(bars)
        self.bars.set(facecolors=colours, edgecolors="#555555")
        self.fair.set_segments([[(0, f + scale), (drawn, f + scale)] for f in floors])
        self.epoch.set_segments([[(end, 0), (end, len(rows))] for end in epoch_ends])
        self.steps.set_data([x for x, _ in steps], [y for _, y in steps])
        self.unused.set_data([x for x, _ in unused], [y for _, y in unused])

    @property
    def moving(self) -> list[Artist]:
        return [self.bars, self.fair, self.epoch, self.steps, self.unused, *self.verdicts]
