"""Lesson 06's and 07's panel in a browser: real menus, keys, clicks, and the picture follows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, Notebook

FLOOR = "rounding"
# Menus in the order of the page, row by row.
NORMALISATION, CHECKPOINTING, LOSS, DROPOUT, ACCUMULATOR = range(5)  # of lesson 06
CLIPPING, OPTIMIZER, SCHEDULER, EMA, LOSS_SCALE = range(5)  # of lesson 07


@pytest.fixture(scope="module")
def lesson_6(lab: Lab) -> Iterator[Notebook]:
    with lab.open("06_where_equivalence_ends.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture(scope="module")
def lesson_7(lab: Lab) -> Iterator[Notebook]:
    with lab.open("07_once_a_window.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture
def panel(lesson_6: Notebook) -> Locator:
    """Lesson 06's panel with no cause, k = 4, after eight updates."""
    return switched_off(lesson_6.panel("checkpointing"))


@pytest.fixture
def window_panel(lesson_7: Notebook) -> Locator:
    """The same of lesson 07, whose causes are what is done once a window."""
    return switched_off(lesson_7.panel("clipping"))


def switched_off(panel: Locator) -> Locator:
    panel.get_by_role("button", name="4", exact=True).click()
    panel.get_by_role("slider").press("End")
    panel.get_by_role("button", name="no cause at all").click()
    expect(panel).to_contain_text("no cause, k = 4. All equal up to rounding")
    expect(panel).to_contain_text("after 8 updates")
    return panel


def choose(panel: Locator, menu: int, choice: str) -> None:
    panel.get_by_role("combobox").nth(menu).select_option(choice)


def row(panel: Locator, name: str) -> Locator:
    """The number beside a name in the panel's table."""
    return panel.locator("tbody tr").filter(has_text=name).locator("td").last


def height(panel: Locator, line: str) -> float:
    """How high the last mark of a line stands in the picture, from the top of the picture."""
    return float(panel.locator(f"#distance-{line} use").last.get_attribute("y"))


def test_batch_norm_lifts_everything_off_the_floor_and_group_norm_puts_it_back(panel):
    on_the_floor = height(panel, "gradient")
    choose(panel, NORMALISATION, "BatchNorm")
    expect(row(panel, "gradient")).to_have_text("0.59")
    expect(row(panel, "running statistics")).to_have_text("0.72")
    expect(panel.locator("#distance-running-statistics use")).to_have_count(8)
    assert height(panel, "gradient") < on_the_floor - 50
    choose(panel, NORMALISATION, "GroupNorm")
    expect(row(panel, "gradient")).to_have_text(FLOOR)
    expect(panel.locator("#distance-running-statistics use")).to_have_count(0)
    assert height(panel, "gradient") == pytest.approx(on_the_floor, abs=5)


def test_more_steps_take_batch_norm_further_away(panel):
    choose(panel, NORMALISATION, "BatchNorm")
    heights = []
    for k, distance in (("1", FLOOR), ("2", "0.18"), ("4", "0.59"), ("8", "6.8")):
        panel.get_by_role("button", name=k, exact=True).click()
        expect(row(panel, "gradient")).to_have_text(distance)
        heights.append(height(panel, "gradient"))
    assert heights == sorted(heights, reverse=True)


def test_dropout_and_negatives_come_back_to_the_floor_with_both_remedies(panel):
    choose(panel, DROPOUT, "other masks")
    choose(panel, LOSS, "in-batch negatives")
    expect(panel).to_contain_text("in-batch negatives + dropout other masks, k = 4. Off:")
    choose(panel, DROPOUT, "the same masks")
    expect(row(panel, "gradient")).to_have_text("0.45")
    choose(panel, LOSS, "negatives, cached embeddings")
    expect(panel).to_contain_text("All equal up to rounding")


def test_clipping_and_scheduler_in_the_wrong_place(window_panel):
    choose(window_panel, CLIPPING, "once a window")
    expect(window_panel).to_contain_text(
        "no effect here: clipping once a window. All equal up to rounding"
    )
    choose(window_panel, CLIPPING, "each micro-batch")
    expect(row(window_panel, "gradient")).to_have_text("0.2")
    choose(window_panel, CLIPPING, "off")
    choose(window_panel, SCHEDULER, "each micro-batch")
    expect(row(window_panel, "gradient")).to_have_text(FLOOR)
    expect(row(window_panel, "weights")).to_have_text("0.16")


def test_checkpointing_moves_the_statistics_at_one_step_already(panel):
    choose(panel, NORMALISATION, "BatchNorm")
    panel.get_by_role("button", name="1", exact=True).click()
    choose(panel, CHECKPOINTING, "on")
    expect(row(panel, "running statistics")).to_have_text("0.44")
    expect(row(panel, "weights")).to_have_text(FLOOR)
    choose(panel, CHECKPOINTING, "on, momentum corrected")
    expect(row(panel, "running statistics")).to_have_text(FLOOR)


def test_the_slider_points_out_another_number_of_updates(window_panel):
    choose(window_panel, SCHEDULER, "each micro-batch")
    expect(row(window_panel, "weights")).to_have_text("0.16")
    window_panel.get_by_role("slider").press("Home")
    expect(window_panel).to_contain_text("after 1 update")
    expect(row(window_panel, "weights")).to_have_text("3")
