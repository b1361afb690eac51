"""A report as text, as a page, and in the reader's own tests."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from helpers.audit import KINDS
from tests.audit.loops import SGD, audited, every, right, samples, stepping_at, windows

SEVEN = samples(1, 2, 3, 4, 5, 6, 7)
EQUAL = samples([1, 2], [3, 5], [7, 9], [4, 2])


LESSONS = Path(__file__).parents[2] / "notebooks"


def test_a_right_loop_in_words():
    report = audited(right(3), SEVEN, 3)
    assert str(report) == (
        "Right: 3 updates, each that of the large batch.\n\n"
        "update  micro-batches (epoch:position)\n"
        "1  1:1-3  right\n"
        "2  1:4-6  right\n"
        "3  1:7  right"
    )
    report.assert_ok()


def test_a_fault_in_words():
    report = audited(stepping_at(every(3), 3), SEVEN, 3)
    text = str(report)
    assert text.startswith("Wrong: 3 updates; short-window-divided-by-k.")
    assert "3  1:7  off by 66.7 %  short-window-divided-by-k" in text
    assert repr(report) == text
    with pytest.raises(AssertionError, match="short-window-divided-by-k"):
        report.assert_ok()


def test_a_finding_says_what_it_is_how_it_is_mended_and_where_it_is_taught():
    (finding,) = audited(stepping_at(every(4)), EQUAL, 4).findings
    assert finding.updates == (1,)
    assert finding.nature == "wrong"
    for sentence in (finding.cause, finding.remedy, finding.lesson, "elements 8"):
        assert sentence in str(finding)


def test_every_kind_has_its_sentences_and_a_lesson():
    for kind in KINDS.values():
        assert re.fullmatch(r"[A-Z].*[.]", kind.cause, re.DOTALL)
        assert re.fullmatch(r"[A-Z].*[.]", kind.remedy, re.DOTALL)
        assert (LESSONS / f"{kind.lesson}.ipynb").exists(), kind.lesson


def test_the_page_tells_the_same_and_is_well_formed():
    report = audited(stepping_at(every(3), 3), SEVEN, 3)
    page = report._repr_html_()
    root = ElementTree.fromstring(f"<div>{page.replace('<br>', '<br/>')}</div>")
    bars = root.findall(".//rect")
    assert [bar.get("stroke") for bar in bars] == ["#0072B2", "#0072B2", "#D55E00"]
    heights = [float(bar.get("height")) for bar in bars]
    assert heights[2] == pytest.approx(heights[0] / 3, abs=0.1)
    assert root.find(".//svg").get("aria-label") == (
        "Lengths of 3 updates over the right ones; 1 of them off."
    )
    assert report.findings[0].remedy in page


def test_a_bar_that_would_leave_the_picture_says_how_long_it_is():
    page = audited(stepping_at(every(4)), EQUAL, 4)._repr_html_()
    assert "4×" in page
    assert "http" not in page


def test_other_data_come_first_since_all_else_may_follow_from_them():
    def backwards(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(list(batches)[::-1], 2):
            for x in window:
                model(x).mean().backward()
            optimizer.zero_grad()
            optimizer.step()

    report = audited(backwards, samples(1, 2, 4, 8), 2)
    assert report.findings[0].kind == "order-or-data-differ"
    assert len(report.findings) > 1
    assert "; order-or-data-differ, " in report.verdict
