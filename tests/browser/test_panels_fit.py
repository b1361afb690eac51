"""Every panel in columns of four widths: nothing sticks out, nothing is cut off or out of place."""

import itertools
import re
from collections.abc import Iterator

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, expect

from tests.browser.lab import HEIGHT, Lab, Notebook

SETUP = """\
import sys; sys.path.insert(0, "..")
from helpers.panels import *
def loop(model, optimizer, batches, k):
    for batch in batches:
        (model(batch).mean() / k).backward()
"""
PANELS = (
    "CuttingPanel()",
    "TrainingPanel()",
    'SteppingPanel({"loop": loop}, (1, 2, 4, 8, 16), 4)',
    "WindowsPanel()",
    "TokensPanel()",
    "EquivalencePanel()",
    "MemoryPanel()",
    "LibrariesPanel()",
    "MuseumPanel()",
    "DevicesPanel({1: [2**20] * 16, 16: [2**24]})",
)
# In a narrow column a table has a scroll box of its own; only there may anything be wider.
STICKING_OUT = """panel => {
    const column = panel.closest(".jp-OutputArea-output").getBoundingClientRect();
    return [...panel.querySelectorAll("*:not(table, table *)")].filter(shown => {
        const box = shown.getBoundingClientRect();
        const seen = box.width * box.height > 0;
        return seen && (box.left < column.left - 1 || box.right > column.right + 1);
    }).map(shown => `${shown.tagName} ${shown.textContent.trim().slice(0, 40)}`);
}"""
CUT_OFF = """panel => [...panel.querySelectorAll("*:not(svg, svg *)")]
    .filter(shown => getComputedStyle(shown).overflowX !== "visible"
        && !(shown.firstElementChild?.tagName === "TABLE")
        && shown.scrollWidth > shown.clientWidth)
    .map(shown => `${shown.tagName} ${shown.textContent.trim().slice(0, 40)}`)"""
BOXES = """shapes => shapes.map(shape => {
    const {left, right, top, bottom} = shape.getBoundingClientRect();
    return [left, right, top, bottom];
})"""


@pytest.fixture(scope="module")
def panels(lab: Lab) -> Iterator[Notebook]:
    """All panels in one notebook."""
    everything = new_notebook(
        cells=[new_code_cell(source) for source in (SETUP, *PANELS)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(everything, lab.house / "notebooks" / "panels.ipynb")
    with lab.open("panels.ipynb") as notebook:
        notebook.restart_and_run_all()
        expect(notebook.panels).to_have_count(len(PANELS))
        yield notebook
        assert notebook.errors() == []


@pytest.fixture(params=[1400, 1024, 853, 673])
def narrowed(panels: Notebook, request: pytest.FixtureRequest) -> list[Locator]:
    """The panels in a window that many CSS pixels wide, JupyterLab's side bar open."""
    panels.page.set_viewport_size({"width": request.param, "height": HEIGHT})
    column = panels.panels.first
    width = 0
    while (now := column.bounding_box()["width"]) != width:  # JupyterLab follows a little later
        width = now
        panels.page.wait_for_timeout(200)
    assert width < request.param - 300
    return panels.panels.all()


def boxes(shapes: Locator) -> list[list[float]]:
    """Left, right, top and bottom of each shape, in pixels of the screen."""
    return shapes.evaluate_all(BOXES)


def test_nothing_lies_outside_the_column_and_no_label_is_cut_off(narrowed: list[Locator]):
    for panel, source in zip(narrowed, PANELS, strict=True):
        assert panel.evaluate(STICKING_OUT) == [], source
        assert panel.evaluate(CUT_OFF) == [], source


def test_what_moves_lies_exactly_on_what_stands_still(narrowed: list[Locator]):
    for panel, source in zip(narrowed, PANELS, strict=True):
        column = panel.bounding_box()["width"]
        still, moving = boxes(panel.locator(".widget-html svg"))
        assert still == moving, source
        left, right, top, bottom = moving
        view = panel.locator("svg[role=img]").get_attribute("viewBox")
        width, height = map(float, view.split()[2:])
        assert right - left == pytest.approx(min(width * 96 / 72, column), abs=1), source
        assert (right - left) / (bottom - top) == pytest.approx(width / height, rel=0.01), source


def test_each_toggle_of_lesson_1_stands_over_the_gap_it_cuts(narrowed: list[Locator]):
    cutting = narrowed[0]
    tiles = boxes(cutting.locator("svg[role=img] #PolyCollection_1 path"))
    gaps = [(one[1] + other[0]) / 2 for one, other in itertools.pairwise(tiles)]
    toggles = boxes(cutting.get_by_role("button").filter(has_text="|"))
    assert [(left + right) / 2 for left, right, *_ in toggles] == pytest.approx(gaps, abs=1)
    assert max(bottom for *_, bottom in toggles) < min(top for *_, top, _ in tiles)


def test_reset_sets_the_controls_and_the_picture_back(panels: Notebook):
    training = panels.panels.nth(1)
    picture = training.locator("svg[role=img]")
    before = picture.inner_html()
    training.get_by_role("button", name="divided by steps").click()
    expect(training.locator("[aria-live=polite]")).to_have_text(
        "against the full batch: gradient × 1, first step × 1"
    )
    training.get_by_role("slider").press("ArrowRight")
    expect(training.locator(".widget-readout")).to_have_text("1/8")
    training.get_by_role("button", name="Reset").click()
    expect(training.locator("[aria-live=polite]")).to_have_text(
        "against the full batch: gradient × 2, first step × 2"
    )
    expect(training.locator(".widget-readout")).to_have_text("1/16")
    assert picture.inner_html() == before


def test_the_picture_says_what_is_shown_now(panels: Notebook):
    cutting = panels.panels.first
    cutting.get_by_role("button", name="unscaled").click()
    shown = re.compile(r"Eight samples cut into micro-batches: accumulated \(2, −7\), different")
    expect(cutting.get_by_role("img")).to_have_accessible_name(shown)
    pressed = cutting.get_by_role("button", name="unscaled")
    expect(pressed).to_have_accessible_description("each loss")
