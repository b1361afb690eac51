"""Control to pixel in JupyterLab: from a real click or key to the new picture on the screen.

The rivals of a race share a notebook, a kernel and a browser, and move in turn:

- the least a widget can do: a button whose observer changes a few letters of an HTML widget,
- each panel,
- the first two panels' pictures by ``interact`` and pyplot, with as many controls and numbers.

The clock is the page's own. It starts with the timestamp that Chromium gives the click or key
and stops when the new picture is on the screen: a MutationObserver sees it arrive, an image is
decoded, the next requestAnimationFrame begins the frame that paints it, and the one after that
comes when that frame has been handed over. So layout, painting and the wait for the screen's
refresh are in it.

No move of the training panel is repeated, for a run that was shown before is kept.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, sync_playwright

from tests.benchmarks.table import Line
from tests.browser.lab import Lab, launch_chromium

ROUNDS, WARM_UP = 48, 4
OVER_BARE, OVER_INTERACT = 1.25, 0.65

CELLS = (
    """\
import sys; sys.path.insert(0, "..")
from types import SimpleNamespace
import ipywidgets as widgets, matplotlib.pyplot as plt
from helpers.figures import CuttingPicture, TrainingPicture
from helpers.panels import CuttingPanel, TrainingPanel
from helpers.panels.panel import SCALING_CHOICES, buttons
from helpers.panels.training import LEARNING_RATES
from helpers.subjects.training import OPTIMIZERS, UPDATES, loss_surface
%matplotlib inline""",
    """\
button, shown = widgets.ToggleButton(description="bare"), widgets.HTML("<b>False</b>")
button.observe(lambda change: setattr(shown, "value", f"<b>{change['new']}</b>"), "value")
widgets.VBox([button, shown])""",
    "CuttingPanel()",
    "panel = TrainingPanel()\npanel.lr.value = 1 / 64\npanel",
    # Numbers come from the panel's own follow(), fed the values that interact hands over.
    """\
cutting = CuttingPanel()
losses, gradients = cutting.picture.losses, cutting.picture.gradients

def draw_cutting(scaling, **gaps):
    cutting.gaps = [SimpleNamespace(value=value) for value in gaps.values()]
    cutting.scaling = SimpleNamespace(value=scaling)
    cutting.picture = CuttingPicture(losses, gradients, plt.figure(figsize=CuttingPicture.size))
    cutting.follow()
    plt.show()

gaps = {f"gap_{i}": widgets.ToggleButton(i == 4, description=f"{i}|{i + 1}") for i in range(1, 8)}
widgets.interact(draw_cutting, **gaps, scaling=buttons(SCALING_CHOICES, "steps"));""",
    """\
training, surface = TrainingPanel(), loss_surface()

def draw_training(**values):
    for name, value in values.items():
        setattr(training, name, SimpleNamespace(value=value))
    figure = plt.figure(figsize=TrainingPicture.size)
    training.picture = TrainingPicture(surface, UPDATES, figure)
    training.follow()
    plt.show()

widgets.interact(
    draw_training,
    batch_size=buttons([1, 2, 4, 8], 4),
    accumulation_steps=buttons([1, 2], 2),
    scaling=buttons(SCALING_CHOICES, "none"),
    optimizer=widgets.Dropdown(options=list(OPTIMIZERS)),
    lr=widgets.SelectionSlider(options=LEARNING_RATES, value=1 / 64),
);""",
)
MORE_CELLS = (
    *CELLS[:2],
    """\
from helpers.panels import SteppingPanel
def loop(model, optimizer, batches, k):
    for batch in batches:
        (model(batch).mean() / k).backward()

SteppingPanel({"loop": loop}, (1, 2, 4, 8, 16) * 8, accumulation_steps=4)""",
    "from helpers.panels import WindowsPanel\nWindowsPanel()",
    "from helpers.panels import TokensPanel\nTokensPanel()",
    "from helpers.panels import EquivalencePanel\nEquivalencePanel()",
    "from helpers.panels import MemoryPanel\nMemoryPanel()",
    "from helpers.panels import LibrariesPanel\nLibrariesPanel()",
    "from helpers.panels import MuseumPanel\nMuseumPanel()",
)
# The panels of the second race, in the order of their cells, and what is pressed.
BUTTONS = {
    "SteppingPanel": ("forward ▶",),
    "WindowsPanel": ("leaked", "true mean", "dropped", "divided by k"),
    "TokensPanel": ("weighted by tokens", "divided by steps"),
    "EquivalencePanel": ("2", "8", "4"),
    "MemoryPanel": ("mixed", "bfloat16", "float32"),
    "LibrariesPanel": ("mended", "as it comes"),
    "MuseumPanel": ("twice", "by k"),
}

START_CLOCK = """([scope, picture]) => {
    const last = () => [...scope.querySelectorAll(picture)].at(-1);
    const before = last();
    let began;
    const start = (event) => { began ??= event.timeStamp; };
    document.addEventListener("click", start, {capture: true, once: true});
    document.addEventListener("keydown", start, {capture: true, once: true});
    window.controlToPixel = new Promise((painted, given_up) => {
        setTimeout(() => given_up("no new picture"), 30_000);
        const observer = new MutationObserver(async () => {
            const now = last();
            if (!now || now === before) return;
            observer.disconnect();
            if (now.decode) await now.decode();
            requestAnimationFrame(() => requestAnimationFrame(
                () => painted(performance.now() - began)));
        });
        observer.observe(scope, {childList: true, subtree: true});
    });
}"""


@dataclass
class Rival:
    """Something to move: where it is, what its picture is, and how move number i is made."""

    where: Locator
    picture: str
    move: Callable[[Locator, int], None]
    seconds: list[float] = field(default_factory=list)

    def measure(self, i: int) -> None:
        page = self.where.page
        page.evaluate(START_CLOCK, [self.where.element_handle(), self.picture])
        self.move(self.where, i)
        taken = page.evaluate("() => window.controlToPixel") / 1000
        if i >= 0:
            self.seconds.append(taken)
        page.wait_for_timeout(30)  # the kernel and the page come to rest


def press(where: Locator, i: int) -> None:
    where.get_by_role("button", name="bare").click()


def cut(where: Locator, i: int) -> None:
    gap = i % 7 + 1
    where.get_by_role("button", name=f"{gap}|{gap + 1}").click()


def train(where: Locator, i: int) -> None:
    """To and fro through scalings, learning rates and batch sizes, by mouse and keyboard."""
    row, place = divmod(i + WARM_UP, 3)
    if place < 2:
        there, back = ("divided by steps", "weighted by samples"), ("divided by steps", "unscaled")
        where.get_by_role("button", name=(back if row % 2 else there)[place]).click()
    elif row % 5 < 4:
        where.get_by_role("slider").focus()
        where.page.keyboard.press("ArrowLeft" if row // 5 % 2 else "ArrowRight")
    else:
        size = ("2", "1", "4")[row // 5]
        where.get_by_role("button", name=size, exact=True).first.click()


def pressing(names: tuple[str, ...]) -> Callable[[Locator, int], None]:
    def move(where: Locator, i: int) -> None:
        name = names[(i + WARM_UP) % len(names)]
        where.get_by_role("button", name=name, exact=True).first.click()

    return move


FIRST = {
    "bare": ("b", press),
    "CuttingPanel": ("svg", cut),
    "TrainingPanel": ("svg", train),
    "CuttingPanel by interact": ("img", cut),
    "TrainingPanel by interact": ("img", train),
}
SECOND = {
    "bare": ("b", press),
    **{name: ("svg", pressing(pressed)) for name, pressed in BUTTONS.items()},
}


def measure() -> Iterator[Line]:
    with (
        sync_playwright() as playwright,
        launch_chromium(playwright) as chromium,
        tempfile.TemporaryDirectory() as folder,
    ):
        lab = Lab(chromium, Path(folder))
        try:
            rivals = _race(lab, CELLS, FIRST)
            others = _race(lab, MORE_CELLS, SECOND)
        finally:
            lab.close()
    bare = rivals["bare"].seconds
    yield Line("bare widget, control to pixel", bare)
    for name in ("CuttingPanel", "TrainingPanel"):
        ours, interact = rivals[name].seconds, rivals[f"{name} by interact"].seconds
        yield Line(f"{name}'s picture by interact and pyplot", interact, bare)
        yield Line(f"{name}, against the bare widget", ours, bare, OVER_BARE)
        yield Line("  against interact", ours, interact, OVER_INTERACT)
    bare = others["bare"].seconds
    yield Line("bare widget, beside six other panels", bare)
    for name in BUTTONS:
        yield Line(f"{name}, against the bare widget", others[name].seconds, bare, OVER_BARE)


def _race(
    lab: Lab, cells: tuple[str, ...], rivals: dict[str, tuple[str, Callable]]
) -> dict[str, Rival]:
    """The rivals, in the order of the widgets that the cells show, after all have moved in turn."""
    kernel = {"name": "python3", "display_name": "Python 3"}
    race = new_notebook(
        cells=[new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel}
    )
    nbformat.write(race, lab.house / "notebooks" / "race.ipynb")
    with lab.open("race.ipynb") as notebook:
        notebook.restart_and_run_all()
        racing = {
            name: Rival(notebook.panels.nth(place), picture, move)
            for place, (name, (picture, move)) in enumerate(rivals.items())
        }
        for i in range(-WARM_UP, ROUNDS):
            for rival in racing.values():
                rival.measure(i)
        if errors := notebook.errors():
            raise RuntimeError(f"the notebook of the benchmark went wrong: {errors}")
    return racing
