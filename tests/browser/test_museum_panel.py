"""Lesson 11 in a browser: real clicks and keys, and the audit's verdict follows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, Notebook


@pytest.fixture(scope="module")
def lesson_11(lab: Lab) -> Iterator[Notebook]:
    with lab.open("11_audit_your_own_loop.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


def test_faults_are_planted_and_found_by_mouse_and_keyboard(lesson_11):
    panel = lesson_11.panel("micro-batches, two epochs")
    expect(panel).to_contain_text("Found: stepped-every-micro-batch")  # as the lesson left it
    right = panel.get_by_role("button", name="right", exact=True)
    right.nth(1).click()  # steps
    right.nth(2).click()  # clears
    expect(panel).to_contain_text("no fault, unequal. Found: nothing")
    panel.get_by_role("button", name="not divided").click()
    expect(panel).to_contain_text("scale not divided, unequal. Found: loss-not-divided")
    expect(panel.locator("#PolyCollection_1 path")).to_have_count(12)
    over = panel.get_by_role("button", name="unequal, one over")
    over.focus()
    over.press("Enter")
    expect(panel).to_contain_text("scale not divided, unequal, one over. Found: loss-not-divided")
    expect(panel.locator("#PolyCollection_1 path")).to_have_count(14)
