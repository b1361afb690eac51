"""Panels, predictions and questions under a reader's mouse and keyboard, in JupyterLab."""

import math
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, Notebook

TIP = "PolyCollection_4"  # heads of the micro-batches' arrows, the fourth set drawn
CENTRES = """shapes => shapes.map(shape => {
    const box = shape.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})"""
TIPS = """heads => heads.map(head => {
    const [x, y] = head.getAttribute("d").match(/[-.0-9]+/g).map(Number);
    const tip = new DOMPoint(x, y).matrixTransform(head.getScreenCTM());
    return [tip.x, tip.y];
})"""


@pytest.fixture(scope="module")
def lesson_1(lab: Lab) -> Iterator[Notebook]:
    with lab.open("01_eight_samples_two_steps.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture(scope="module")
def lesson_2(lab: Lab) -> Iterator[Notebook]:
    with lab.open("02_scaled_unscaled_full_batch.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture
def cutting(lesson_1: Notebook) -> Locator:
    """Lesson 1's panel with the cut 4 + 4, divided by steps."""
    panel = lesson_1.panel("5|6")
    press(panel, "divided by steps")
    press(panel, "1")
    press(panel, "2")
    expect(panel).to_contain_text("accumulated (1, −3.5), equal to the bit")
    expect(panel.locator("tbody tr")).to_have_count(3)
    return panel


@pytest.fixture
def training(lesson_2: Notebook) -> Locator:
    """Lesson 2's panel with SGD at 1/16, unscaled, 2 × 4."""
    panel = lesson_2.panel("batch size")
    row(panel, "optimizer").get_by_role("button", name="SGD", exact=True).click()
    press(panel, "unscaled")
    row(panel, "batch size").get_by_role("button", name="4").click()
    row(panel, "steps").get_by_role("button", name="2").click()
    to_learning_rate(panel, "1/16")
    expect(panel).to_contain_text("gradient × 2, first step × 2")
    return panel


def press(panel: Locator, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).click()


def row(panel: Locator, label: str) -> Locator:
    """The buttons behind a label."""
    return panel.locator(".widget-hbox").filter(has=panel.page.get_by_text(label, exact=True)).last


def to_learning_rate(panel: Locator, wanted: str) -> None:
    """With the arrow keys, from wherever the slider is."""
    rates = ["1/64", "1/32", "1/16", "1/8", "1/4"]
    readout = panel.locator(".widget-readout")
    panel.get_by_role("slider").focus()
    while (now := readout.inner_text()) != wanted:
        key = "ArrowRight" if rates.index(now) < rates.index(wanted) else "ArrowLeft"
        panel.page.keyboard.press(key)
        expect(readout).not_to_have_text(now)


def written(panel: Locator) -> str:
    """Everything the picture says that moves: the text of the SVG on top."""
    return " ".join(panel.locator("svg[role=img] text").all_text_contents())


def table(panel: Locator) -> list[list[str]]:
    return [cells.split("\t") for cells in panel.locator("tbody tr").all_inner_texts()]


def value(text: str) -> float:
    return float(text.replace("−", "-"))


def accumulated(panel: Locator) -> tuple[float, float]:
    """What the line above the table says."""
    found = re.search(r"accumulated \((\S+), (\S+)\)", panel.inner_text())
    return value(found[1]), value(found[2])


def scale(panel: Locator, axes: str, letter: str) -> Callable[[float], float]:
    """From a place on the screen, along x or y, to the number on that axis, by its ticks."""
    ticks = panel.locator(f"svg #{axes} [id^={letter}tick_]")
    labels = [value(text.strip()) for text in ticks.all_text_contents()]
    along = [centre[letter == "y"] for centre in ticks.locator("use").evaluate_all(CENTRES)]
    pixels, numbers = along[-1] - along[0], labels[-1] - labels[0]
    return lambda place: labels[0] + (place - along[0]) * numbers / pixels


def in_numbers(panel: Locator, axes: str, places: list[list[float]]) -> list[tuple[float, float]]:
    """Where on the axes these places of the screen are."""
    x, y = scale(panel, axes, "x"), scale(panel, axes, "y")
    return [(x(across), y(down)) for across, down in places]


def assert_the_picture_shows_the_table(panel: Locator) -> None:
    """The ring stands at the accumulated gradient; each arrow ends where the parts before it and
    its own add up to: read off the axes, to a pixel or so."""
    total, near = accumulated(panel), {"rel": 0.01, "abs": 0.06 * zoom(panel)}
    (ring,) = panel.locator("svg[role=img] use").evaluate_all(CENTRES)
    assert in_numbers(panel, "axes_3", [ring])[0] == pytest.approx(total, **near)
    parts = [re.findall(r"[−.\d]+", cells[2]) for cells in table(panel)[:-1]]
    tips = panel.locator(f"svg[role=img] [id={TIP}] path").evaluate_all(TIPS)
    reached = (0.0, 0.0)
    for tip, (u, v) in zip(in_numbers(panel, "axes_3", tips), parts, strict=True):
        reached = (reached[0] + value(u), reached[1] + value(v))
        assert tip == pytest.approx(reached, **near)


def zoom(panel: Locator) -> float:
    """How many times the axes are wider than at first, when ticks are 2 apart."""
    ticks = panel.locator("svg #axes_3 [id^=xtick_]").all_text_contents()
    return (value(ticks[1].strip()) - value(ticks[0].strip())) / 2


# lesson 1


def test_a_click_in_a_gap_cuts_there(cutting: Locator):
    assert_the_picture_shows_the_table(cutting)
    press(cutting, "4|5")
    expect(cutting.locator("tbody tr")).to_have_count(2)
    press(cutting, "5|6")
    expect(cutting).to_contain_text("accumulated (1.6, −3.867)")
    assert [cells[:2] for cells in table(cutting)] == [
        ["1 to 5", "3.2 ÷ 2 = 1.6"],
        ["6 to 8", "8 ÷ 2 = 4"],
        ["full batch", "5"],
    ]
    assert "3.2 ÷ 2 = 1.6" in written(cutting)
    assert "(1.6, −3.867) ≠ (1, −3.5), off by 19%" in written(cutting)
    assert_the_picture_shows_the_table(cutting)


def test_weighted_by_samples_the_same_cut_is_exact(cutting: Locator):
    press(cutting, "4|5")
    press(cutting, "5|6")
    press(cutting, "weighted by samples")
    expect(cutting).to_contain_text("accumulated (1, −3.5), equal to the bit")
    assert "3.2 × 5/8 = 2" in written(cutting)
    assert "(1, −3.5) = full batch, to the bit" in written(cutting)
    assert_the_picture_shows_the_table(cutting)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_unscaled_the_ring_is_k_times_as_far_away(cutting: Locator, k: int):
    press(cutting, "unscaled")
    press(cutting, str(k))
    expect(cutting.locator("tbody tr")).to_have_count(k + 1)
    assert accumulated(cutting) == (k, -3.5 * k)
    assert_the_picture_shows_the_table(cutting)


def test_the_keyboard_does_what_the_mouse_does(cutting: Locator):
    keyboard = cutting.page.keyboard
    cutting.get_by_role("button", name="4|5").focus()
    keyboard.press("Space")
    expect(cutting.locator("tbody tr")).to_have_count(2)
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(cutting).to_contain_text("accumulated (1.6, −3.867)")
    cutting.get_by_role("button", name="8", exact=True).focus()
    keyboard.press("Space")
    expect(cutting.locator("tbody tr")).to_have_count(9)
    assert_the_picture_shows_the_table(cutting)


def test_a_prediction_stands_beside_the_measured_made_before_or_after(lesson_1: Notebook):
    prediction = lesson_1.panel("losses not divided. Against the full batch's")
    cell = lesson_1.code_cells.filter(has_text="unscaled.reveal(")
    shown = cell.locator(".jp-OutputArea-output")
    expect(shown).to_contain_text("Choose above, then run this cell.")
    cell.locator(".jp-InputPrompt").click()
    lesson_1.command("notebook:clear-cell-output")
    expect(shown).to_have_count(0)
    prediction.get_by_label("twice as long").check()
    cell.locator(".jp-InputPrompt").click()
    lesson_1.command("notebook:run-cell")
    expect(shown).to_have_text("Measured: twice as long, as you predicted.")
    prediction.get_by_label("half as long").check()
    expect(shown).to_have_text("Measured: twice as long, you predicted: half as long.")


def test_a_question_answers_a_wrong_and_a_right_choice_with_the_reason(lesson_1: Notebook):
    question = lesson_1.panel("What does backward() do to .grad?")
    why = ".grad is a running sum until something clears it."
    assert why not in question.inner_text()
    question.get_by_label("It replaces what is there").check()
    expect(question).to_contain_text(f"✗ Not quite: {why}")
    question.get_by_label("It adds to what is there").check()
    expect(question).to_contain_text(f"✓ Yes: {why}")
    expect(question).not_to_contain_text("✗")


# lesson 2


def first_steps(panel: Locator) -> tuple[float, float]:
    """The full batch's and the run's first weight change, as the table has them."""
    return tuple(value(cells[2]) for cells in table(panel))


def drawn_first_step(panel: Locator) -> float:
    """How far the run's second marker on the loss surface is from its first."""
    markers = panel.locator("svg[role=img] #line2d_1 use").evaluate_all(CENTRES)
    return math.dist(*in_numbers(panel, "axes_1", markers[:2]))


def test_four_unscaled_steps_go_four_times_as_far(training: Locator):
    row(training, "batch size").get_by_role("button", name="2").click()
    row(training, "steps").get_by_role("button", name="4").click()
    expect(training).to_contain_text("gradient × 4, first step × 4")
    assert "gradient × 4, first step × 4" in written(training)
    full, run = first_steps(training)
    assert run == pytest.approx(4 * full, rel=0.01)
    assert drawn_first_step(training) == pytest.approx(run, abs=0.02)
    press(training, "divided by steps")
    expect(training).to_contain_text("gradient × 1, first step × 1")
    assert first_steps(training) == (full, full)
    assert drawn_first_step(training) == pytest.approx(full, abs=0.02)


def test_under_adam_the_first_step_does_not_show_it(training: Locator):
    row(training, "batch size").get_by_role("button", name="2").click()
    row(training, "steps").get_by_role("button", name="4").click()
    adam = row(training, "optimizer").get_by_role("button", name="Adam", exact=True)
    adam.focus()
    adam.press("Enter")
    expect(training).to_contain_text("gradient × 4, first step × 1")
    assert "gradient × 4, first step × 1" in written(training)
    assert drawn_first_step(training) == pytest.approx(first_steps(training)[1], abs=0.02)


def test_twice_the_learning_rate_by_arrow_key_is_twice_the_step(training: Locator):
    before, full_batch = first_steps(training), training.locator("tbody tr").first
    shown = full_batch.text_content()
    to_learning_rate(training, "1/8")
    expect(full_batch).not_to_have_text(shown)
    assert first_steps(training) == pytest.approx([2 * step for step in before], rel=0.01)
    assert drawn_first_step(training) == pytest.approx(first_steps(training)[1], abs=0.02)


def test_steps_that_do_not_fit_the_eight_samples_are_not_offered(training: Locator):
    steps = row(training, "steps").get_by_role("button")
    for size, offered in (("8", ["1"]), ("1", ["1", "2", "4", "8"]), ("4", ["1", "2"])):
        row(training, "batch size").get_by_role("button", name=size).click()
        expect(steps).to_have_text(offered)
