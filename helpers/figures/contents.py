"""What each micro-batch counts in an update, a row of tiles for each loop."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.figures.drawing import MICRO_BATCH_COLOURS, STYLE, new_figure, number, pale
from helpers.figures.pictures import Picture, Table

TILE = 0.86  # of a row's height and of a column's width


def contents(loops: Mapping[str, Sequence[float]], fair: float) -> Picture:
    """A tile for each micro-batch, in its colour and with what it counts; white where missing.

    Args:
        loops: what each micro-batch counts in an update, for each loop by its name.
        fair: what each should count; such tiles have a thick frame.

    Raises:
        ValueError: no loop is given, or they differ in how many micro-batches they have.
    """
    lengths = {len(counts) for counts in loops.values()}
    if len(lengths) != 1:
        raise ValueError(f"loops must all have as many micro-batches, got {sorted(lengths)}")
    (columns,) = lengths
    with matplotlib.rc_context(STYLE):
        figure = _tiles(loops, fair, columns)
    heading = ("loop", *(f"micro-batch {i + 1}" for i in range(columns)))
    rows = tuple((name, *map(number, counts)) for name, counts in loops.items())
    said = "; ".join(f"{name} {', '.join(map(number, counts))}" for name, counts in loops.items())
    alt = (
        f"What micro-batches 1 to {columns} count in one update, {number(fair)} being fair: {said}."
    )
    return Picture(figure, alt, Table(heading, rows))


def _tiles(loops: Mapping[str, Sequence[float]], fair: float, columns: int) -> Figure:
    figure = new_figure(7.2, 0.5 * len(loops) + 0.6)
    axes = figure.add_axes((0.2, 0.02, 0.78, 0.98 - 0.5 / (0.5 * len(loops) + 0.6)))
    axes.set(xlim=(0, columns), ylim=(len(loops), 0), xticks=[i + 0.5 for i in range(columns)])
    axes.set_xticklabels([f"micro-batch {i + 1}" for i in range(columns)])
    axes.set_yticks([row + 0.5 for row in range(len(loops))], list(loops))
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    for row, counts in enumerate(loops.values()):
        for column, count in enumerate(counts):
            tile = Rectangle(
                (column + (1 - TILE) / 2, row + (1 - TILE) / 2),
                TILE,
                TILE,
                facecolor=pale(MICRO_BATCH_COLOURS[column % 8]) if count else "#ffffff",
                edgecolor="#000000" if count == fair else "#999999",
                linewidth=2.0 if count == fair else 0.8,
                linestyle="solid" if count else "dashed",
            )
            axes.add_patch(tile)
            said = number(count) if count else "missing"
            axes.text(column + 0.5, row + 0.5, said, ha="center", va="center")
    return figure
