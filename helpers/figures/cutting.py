"""Lesson 01: eight tiles, eight gradients, and their sum."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.figures.drawing import (
    FULL_BATCH,
    FULL_BATCH_LINE,
    MICRO_BATCH_COLOURS,
    MICRO_BATCH_DASHES,
    RULING,
    SCALING_COLOURS,
    SUBSCRIPTS,
    TEXT_GROUND,
    Arrows,
    number,
    pale,
)
from helpers.figures.pictures import MovingPicture

ANY_SCALING = "#777777"
_CENTRED = {"ha": "center", "va": "center"}


class CuttingPicture(MovingPicture):
    """Eight samples cut into micro-batches, and how the micro-batches' gradients add up.

    Args:
        losses: the loss of each of the eight samples.
        gradients: each sample's gradient (weight, bias), shape (8, 2).
        figure: an empty figure of 9 by 4.3 inches; a new one unless given.
    """

    size = (9.0, 4.3)
    tile_pitch = 106 / 96  # inches from one tile's centre to the next one's
    first_tile = 61 / 96

    def __init__(self, losses: Sequence[float], gradients, figure: Figure | None = None):
        self.losses, self.gradients = tuple(losses), np.asarray(gradients, float)
        super().__init__(figure)

    def draw(self) -> None:
        self._draw_tiles()
        self._draw_samples()
        self._draw_sum()

    def _draw_tiles(self) -> None:
        width, height = self.size
        axes = self.figure.add_axes([0, 1 - 0.95 / height, 1, 0.95 / height])
        axes.set(xlim=(0, width), ylim=(0, 0.95))
        axes.axis("off")
        centres = self.first_tile + self.tile_pitch * np.arange(len(self.losses))
        boxes = [
            [(x - 0.44, 0.45), (x + 0.44, 0.45), (x + 0.44, 0.85), (x - 0.44, 0.85)]
            for x in centres
        ]
        self.tiles = axes.add_collection(PolyCollection(boxes, linewidths=1.6, label="L₁"))
        for i, (x, loss) in enumerate(zip(centres, self.losses, strict=True)):
            axes.text(
                x,
                0.65,
                f"L{SUBSCRIPTS[i + 1]} = {number(loss)}",
                ha="center",
                va="center",
                zorder=5,
            )
        self.shares = [axes.text(x, 0.2, "", ha="center", va="center", fontsize=9) for x in centres]
        self.centres = centres

    def _draw_samples(self) -> None:
        axes = self.figure.add_axes([0.075, 0.12, 0.435, 0.57])
        axes.set(xlim=(-19, 19), ylim=(-14.5, 7.6), aspect="equal")
        axes.set(xticks=range(-15, 20, 5), yticks=range(-10, 10, 5))
        axes.set(xlabel="∂/∂weight", ylabel="∂/∂bias", title="each sample's gradient")
        _zero_lines(axes)
        self.sample_arrows = _named(Arrows(axes, 1.6), axes.get_title())
        for i, (u, v) in enumerate(self.gradients):
            far = np.hypot(u, v)
            ahead, beside = np.array([u, v]) / far, np.array([-v, u]) / far
            # Ahead of the tip, or beside it where a longer arrow runs on the same way.
            covered = (self.gradients @ ahead > far) & (self.gradients @ beside == 0)
            x, y = (u, v) + 1.2 * (beside if covered.any() else ahead)
            axes.text(x, y, str(i + 1), **_CENTRED, bbox=TEXT_GROUND)

    def _draw_sum(self) -> None:
        self.zoom = None
        self.sum_axes = axes = self.figure.add_axes([0.59, 0.12, 0.40, 0.57])
        axes.set(aspect="equal", ylabel="∂/∂bias")
        axes.set_xlabel("∂/∂weight", loc="left")
        axes.set_title("micro-batch gradients, tip to tail")
        _zero_lines(axes)
        self.verdict = axes.text(
            0.5, 0.94, "", **_CENTRED, bbox=TEXT_GROUND, transform=axes.transAxes
        )
        self.sum_arrow = _named(Arrows(axes, 7, zorder=1), "accumulated")
        self.micro_arrows = _named(Arrows(axes, 2.6), "micro-batch gradients")
        self.full_arrow = _named(Arrows(axes, 1.6, zorder=4), "full batch")
        ring = {"marker": "o", "mfc": "none", "mew": 2}
        (self.tip,) = axes.plot([], [], **ring, ls="", ms=13, zorder=5, label="accumulated")
        full = Line2D([], [], **FULL_BATCH_LINE)
        # The legend stands still, so the sum is grey there: its colour follows the scaling.
        arrow = Line2D([], [], color=pale(ANY_SCALING), lw=7, solid_capstyle="butt")
        ring = Line2D([], [], color=ANY_SCALING, **ring, ls="", ms=9)
        axes.legend(
            handles=[full, (arrow, ring)],
            labels=["full batch", "accumulated"],
            loc="upper right",  # beneath the axis, where no arrow leads
            bbox_to_anchor=(1.02, -0.08),
            ncols=2,
            borderpad=0,
            fontsize=9,
        )

    def update(
        self,
        sizes: Sequence[int],
        shares: Sequence[str],
        contributions,
        full_batch,
        scaling: str,
        verdict: str,
    ) -> None:
        """Show a cut.

        Args:
            sizes: samples in each micro-batch.
            shares: one short line for each micro-batch, written under its tiles.
            contributions: what each micro-batch adds to .grad, shape (micro-batches, 2).
            full_batch: the full-batch gradient, shape (2,).
            scaling: which rule made the contributions; its colour rings the sum.
            verdict: one short line on whether sum and full batch are equal.
        """
        belongs = np.repeat(np.arange(len(sizes)), sizes)
        colours = [MICRO_BATCH_COLOURS[i] for i in belongs]
        dashes = [MICRO_BATCH_DASHES[i] for i in belongs]
        # See-through, for the labels are in the still part of the picture, beneath.
        self.tiles.set(facecolors=[f"{c}40" for c in colours], edgecolors=colours)
        self.tiles.set_linestyles(dashes)
        ends = np.cumsum(sizes)
        for text in self.shares:
            text.set_text("")
        for share, first, end in zip(shares, ends - sizes, ends, strict=True):
            self.shares[first].set_text(share)
            self.shares[first].set_x(self.centres[first:end].mean())
        self.sample_arrows.set(np.zeros_like(self.gradients), self.gradients, colours, dashes)

        tips = np.cumsum(contributions, axis=0)
        self._zoom(np.vstack([tips, full_batch]))
        micro = range(len(sizes))
        self.micro_arrows.set(
            np.vstack([(0, 0), tips[:-1]]),
            tips,
            [MICRO_BATCH_COLOURS[i] for i in micro],
            [MICRO_BATCH_DASHES[i] for i in micro],
        )
        self.full_arrow.set([(0, 0)], [full_batch], [FULL_BATCH], [(0, (4, 2))])
        self.sum_arrow.set([(0, 0)], tips[-1:], [pale(SCALING_COLOURS[scaling])])
        self.verdict.set_text(verdict)
        self.tip.set_data(tips[-1:, 0], tips[-1:, 1])
        self.tip.set_color(SCALING_COLOURS[scaling])

    def _zoom(self, points: np.ndarray) -> None:
        """Limits from a short list, so that few sets of ticks are ever drawn."""
        for zoom in (1, 2, 4, 8):
            inside = (abs(points[:, 0]) < 4.6 * zoom) & (
                abs(points[:, 1] + 1.6 * zoom) < 2.9 * zoom
            )
            if inside.all():
                break
        if zoom == self.zoom:
            return
        self.zoom = zoom
        self.sum_axes.set(xlim=(-4.8 * zoom, 4.8 * zoom), ylim=(-4.7 * zoom, 1.5 * zoom))
        self.sum_axes.set(xticks=[-4 * zoom, -2 * zoom, 0, 2 * zoom, 4 * zoom])
        self.sum_axes.set(yticks=[-4 * zoom, -2 * zoom, 0])

    @property
    def moving(self) -> list[Artist]:
        arrows = (self.sample_arrows, self.sum_arrow, self.micro_arrows, self.full_arrow)
        shapes = [artist for arrow in arrows for artist in arrow.artists]
        return [self.tiles, *self.shares, *shapes, self.tip, self.verdict]


def _named(arrows: Arrows, name: str) -> Arrows:
    """The arrows, each part under the name that stands in the picture."""
    for artist in arrows.artists:
        artist.set_label(name)
    return arrows


def _zero_lines(axes: Axes) -> None:
    axes.axhline(0, **RULING)
    axes.axvline(0, **RULING)
