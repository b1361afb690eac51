"""Lessons 03, 04, 05 and 08 in a browser: real clicks and keys, and the numbers drawn follow."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, Notebook


def opened(lab: Lab, name: str) -> Iterator[Notebook]:
    with lab.open(name) as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture(scope="module")
def lesson_3(lab: Lab) -> Iterator[Notebook]:
    yield from opened(lab, "03_the_loop_line_by_line.ipynb")


@pytest.fixture(scope="module")
def lesson_4(lab: Lab) -> Iterator[Notebook]:
    yield from opened(lab, "04_the_last_window.ipynb")


@pytest.fixture(scope="module")
def lesson_8(lab: Lab) -> Iterator[Notebook]:
    yield from opened(lab, "08_memory_and_time.ipynb")


@pytest.fixture(scope="module")
def lesson_5(lab: Lab) -> Iterator[Notebook]:
    yield from opened(lab, "05_unequal_micro_batches.ipynb")


def press(slider: Locator, key: str, times: int) -> None:
    slider.focus()
    for _ in range(times):
        slider.press(key)


def bar_heights(panel: Locator) -> list[float]:
    """How tall each bar in the picture is, in the order drawn, in the picture's own units."""
    drawn = [path.get_attribute("d") for path in panel.locator("#PolyCollection_1 path").all()]
    tops = [[float(y) for _, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", d)] for d in drawn]
    return [max(y) - min(y) for y in tops]


def bar_widths(panel: Locator) -> list[float]:
    """How wide each bar in the picture is, in the picture's own units."""
    drawn = [path.get_attribute("d") for path in panel.locator("[id^=PolyCollection_] path").all()]
    sides = [[float(x) for x, _ in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", d)] for d in drawn]
    return [max(x) - min(x) for x in sides]


def test_stepping_forward_lights_the_next_line_and_the_bar_grows(lesson_3):
    panel = lesson_3.panel("lines run")
    expect(panel).to_contain_text(".grad 1.75")
    for after, grad in (("if (i + 1)", "1.75"), ("for i, batch", "1.75")):
        panel.get_by_role("button", name="forward").click()
        expect(panel).to_contain_text(f"after “{after}")
        expect(panel).to_contain_text(f".grad {grad}")
    for _ in range(3):
        panel.get_by_role("button", name="forward").click()
    expect(panel).to_contain_text(".grad 3.75")
    expect(panel).to_contain_text("micro-batch 4")
    panel.get_by_role("button", name="back").click()
    expect(panel).to_contain_text(".grad 1.75")


def test_another_loop_can_be_stepped_through_with_the_keyboard(lesson_3):
    panel = lesson_3.panel("lines run")
    panel.get_by_role("button", name="clear_inside").focus()
    panel.get_by_role("button", name="clear_inside").press("Enter")
    expect(panel).to_contain_text("after “nothing yet”")
    press(panel.get_by_role("slider"), "End", 1)
    expect(panel).to_contain_text("micro-batch 5")
    expect(panel).to_contain_text(".grad 4")


def test_the_policy_decides_over_the_last_window(lesson_4):
    panel = lesson_4.panel("last window")
    expect(panel).to_contain_text("0.333")
    panel.get_by_role("button", name="leaked").click()
    expect(panel).to_contain_text("updates: 4, samples unused: 1")
    expect(panel).to_contain_text("1.33")
    panel.get_by_role("button", name="true mean").click()
    expect(panel).to_contain_text("updates: 6, samples unused: 0")
    panel.get_by_role("button", name="3", exact=True).click()
    expect(panel).to_contain_text("updates: 9, samples unused: 0")


def test_more_samples_make_more_bars(lesson_4):
    panel = lesson_4.panel("last window")
    panel.get_by_role("button", name="1", exact=True).click()
    expect(panel).to_contain_text("updates: 3, samples unused: 0")
    press(panel.get_by_role("slider").first, "ArrowRight", 2)
    expect(panel).to_contain_text("updates: 3, samples unused: 0")
    expect(panel).to_contain_text("3 ×")


def test_the_rule_decides_over_each_targets_weight(lesson_5):
    panel = lesson_5.panel("targets, sequence by sequence")
    expect(panel).to_contain_text("off by 25%")
    first, *_, last = bar_heights(panel)
    assert first / last == pytest.approx(2.375 / 1.357, rel=1e-3)  # as the table says
    panel.get_by_role("button", name="weighted by tokens").click()
    expect(panel).to_contain_text("every target counts the same")
    assert bar_heights(panel) == pytest.approx([bar_heights(panel)[0]] * 8)
    panel.get_by_role("button", name="divided by steps").click()
    expect(panel).to_contain_text("off by 25%")


def test_cuts_and_lengths_are_moved_by_mouse_and_keyboard(lesson_5):
    panel = lesson_5.panel("targets, sequence by sequence")
    for gap in ("2|3", "4|5", "6|7"):
        panel.get_by_role("button", name=gap).click()
    expect(panel).to_contain_text("8 sequences")
    expect(panel).to_contain_text("every target counts the same")
    panel.get_by_role("button", name="1|2").click()
    expect(panel).to_contain_text("7 sequences")
    press(panel.get_by_role("slider").first, "ArrowDown", 2)
    expect(panel).to_contain_text("the loss is NaN")


def test_a_budget_is_spent_by_mouse_and_keyboard(lesson_8):
    panel = lesson_8.panel("budget, GiB")
    expect(panel).to_contain_text("64 samples as 4 × 16")
    widths = bar_widths(panel)
    assert widths[3] / widths[0] == pytest.approx(9.7 / 0.462, rel=0.02)  # as the table says
    panel.get_by_role("button", name="bfloat16").click()
    expect(panel).to_contain_text("0.231")
    panel.get_by_role("button", name="GPT-2 XL").click()
    expect(panel).to_contain_text("64 samples as 64 × 1")
    panel.get_by_role("button", name="float32").focus()
    panel.get_by_role("button", name="float32").press("Enter")
    expect(panel).to_contain_text("not even one sample fits")
