"""Moving any panel as a reader would, and reading back what it shows."""

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator

import ipywidgets as widgets

from helpers.panels.panel import Panel


def picture_text(panel: Panel) -> str:
    """All text of the live picture."""
    svg = panel.screen.value
    return " ".join(ElementTree.fromstring(svg[: svg.index("</svg>") + 6]).itertext())


def values(control: widgets.ValueWidget) -> list:
    """Every value that a reader can give a control."""
    if hasattr(control, "max"):
        return list(range(control.min, control.max + 1))
    if not hasattr(control, "options"):
        return [False, True]
    return [option[1] if isinstance(option, tuple) else option for option in control.options]


def artists(panel: Panel) -> list[int]:
    """How many artists each axes has: as many as before, if none is ever rebuilt."""
    return [len(axes.get_children()) for axes in panel.picture.figure.axes]


def move_at_random(panel: Panel, moves: int, seed: int) -> Iterator[widgets.ValueWidget]:
    """Set controls in random order to random values, as a reader would."""
    chance = random.Random(seed)
    for _ in range(moves):
        control = chance.choice(panel.controls)
        control.value = chance.choice(values(control))
        yield control


def move_to_every_end(panel: Panel) -> Iterator[widgets.ValueWidget]:
    """Set each control to its first and last value, the others where they are."""
    for control in panel.controls:
        before = control.value
        for value in (values(control)[0], values(control)[-1]):
            control.value = value
            yield control
        if before in (*values(control), None):
            control.value = before


def stays_right(panel: Panel, assert_right: Callable[[Panel], None], seed: int, moves=60) -> None:
    """Assert that a panel is right after every end of every control and after random moves."""
    before = artists(panel)
    for _ in move_to_every_end(panel):
        assert_right(panel)
    for _ in move_at_random(panel, moves, seed):
        assert_right(panel)
    assert artists(panel) == before
