"""Lesson 10 in a browser: real clicks and keys, and the rows of the libraries follow."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, Notebook


@pytest.fixture(scope="module")
def lesson_10(lab: Lab) -> Iterator[Notebook]:
    with lab.open("10_the_same_batch_in_every_library.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


def test_every_library_follows_by_mouse_and_keyboard(lesson_10):
    panel = lesson_10.panel("samples in the order drawn")
    expect(panel).to_contain_text("as the right ones: Transformers")
    panel.get_by_role("button", name="mended").click()
    right = "as the right ones: plain PyTorch, Accelerate, Lightning, Transformers"
    expect(panel).to_contain_text(right)
    expect(panel.locator("#PolyCollection_1 path")).to_have_count(6 * 8)
    slider = panel.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")  # eight samples in twos: windows of three and of one
    panel.get_by_role("button", name="4", exact=True).first.click()  # in fours
    expect(panel.locator("#PolyCollection_1 path")).to_have_count(6 * 4)
    panel.get_by_role("button", name="2", exact=True).last.click()  # k = 2
    expect(panel).to_contain_text(f"{right}, Keras")
    panel.get_by_role("button", name="as it comes").focus()
    panel.get_by_role("button", name="as it comes").press("Enter")
    expect(panel).to_contain_text(f"{right}, Keras")
