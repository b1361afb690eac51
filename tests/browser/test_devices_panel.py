"""Lesson 09's panel in a browser: real clicks and keys, and the timeline follows."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, Notebook


@pytest.fixture(scope="module")
def lesson_9(lab: Lab) -> Iterator[Notebook]:
    with lab.open("09_many_devices.ipynb") as notebook:
        notebook.restart_and_run_all()
        yield notebook
        assert notebook.errors() == []


@pytest.fixture
def panel(lesson_9: Notebook) -> Locator:
    """Two ranks, k = 4, one bucket of 16 MiB, 1 Gbit/s."""
    panel = lesson_9.panel("bucket size")
    for label, choice in (("ranks", "2"), ("steps k", "4"), ("bucket size", "16 MiB")):
        row(panel, label).get_by_role("button", name=choice, exact=True).click()
    panel.get_by_role("button", name="1 Gbit/s", exact=True).click()
    expect(panel).to_contain_text("8 micro-batches; with no_sync in 0.39 of the time")
    return panel


def row(panel: Locator, label: str) -> Locator:
    """The buttons behind a label."""
    return panel.locator(".widget-hbox").filter(has=panel.page.get_by_text(label, exact=True)).last


def steps(panel: Locator) -> list[float]:
    """How far to the right the two optimizer steps are drawn, in pixels of the page."""
    marks = panel.locator("svg[role=img] #line2d_1 use").all()
    return [mark.bounding_box()["x"] for mark in marks]


def cells(panel: Locator) -> list[list[str]]:
    return [text.split("\t") for text in panel.locator("tbody tr").all_inner_texts()]


def test_with_one_step_both_ways_end_at_once(panel: Locator):
    before, after = steps(panel)
    assert before > after + 100
    row(panel, "steps k").get_by_role("button", name="1", exact=True).click()
    expect(panel).to_contain_text("2 micro-batches; with no_sync in 1 of the time")
    before, after = steps(panel)
    assert before == pytest.approx(after, abs=1)
    assert cells(panel)[0][1:] == cells(panel)[1][1:]


def test_smaller_buckets_are_more_bars_by_keyboard_too(panel: Locator):
    assert [row[1] for row in cells(panel)] == ["4", "1"]
    button = row(panel, "bucket size").get_by_role("button", name="4 MiB", exact=True)
    button.focus()
    button.press("Enter")
    expect(panel.locator("tbody tr").first).to_have_text(re.compile("without no_sync.*16"))
    assert [row[1] for row in cells(panel)] == ["16", "4"]


def test_on_a_fast_link_no_sync_saves_little(panel: Locator):
    panel.get_by_role("button", name="100 Gbit/s", exact=True).click()
    expect(panel).to_contain_text("with no_sync in 0.97 of the time")
    row(panel, "ranks").get_by_role("button", name="16", exact=True).click()
    expect(panel).to_contain_text("effective batch: 64 micro-batches")
