"""The museum: every exhibit gets its kind, a right loop on its data gets none."""

import copy
import subprocess
import sys

import pytest
import torch

from helpers.subjects.museum import CANNOT_BE_EQUAL, EXHIBITS, REPORTS, ROOMS, audit
from helpers.subjects.museum_data import right_loop
from helpers.subjects.museum_loops import IGNORED, K

every_exhibit = pytest.mark.parametrize("exhibit", EXHIBITS.values(), ids=EXHIBITS)


def kinds(report):
    return tuple(finding.kind for finding in report.findings)


@every_exhibit
def test_an_exhibit_gets_its_kind_and_no_other(exhibit):
    assert kinds(exhibit.audited()) == exhibit.kinds


@pytest.mark.parametrize("exhibit", CANNOT_BE_EQUAL, ids=lambda exhibit: exhibit.kinds[0])
def test_what_cannot_be_equal_is_no_fault_of_the_loop(exhibit):
    report = exhibit.audited()
    assert kinds(report) == exhibit.kinds
    assert report.wrong == ()


def with_targets(model, batches):
    """``right_loop``, counting targets in place of samples."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, len(batches), K):
        window = batches[start : start + K]
        targets = sum(int((x != IGNORED).sum()) for x in window)
        for x in window if targets else ():
            (model(x)[x != IGNORED].sum() / targets).backward()
        if targets:
            optimizer.step()
            optimizer.zero_grad()


@every_exhibit
def test_a_right_loop_on_the_same_data_gets_none(exhibit):
    if exhibit.kinds == ("not-a-mean-of-elements",):
        return  # no loop is right there
    ignores = any((x == IGNORED).any() for x in exhibit.batches)
    right = with_targets if ignores else right_loop
    assert audit(right, exhibit.model(), exhibit.batches, exhibit.loss, exhibit.steps).ok


@pytest.mark.parametrize("exhibit", ROOMS["scale"], ids=lambda exhibit: exhibit.name)
def test_in_the_first_room_the_loss_goes_down(exhibit):
    model = exhibit.model()

    def total():
        return sum(exhibit.loss(model, x).sum().item() for x in exhibit.batches)

    before = total()
    exhibit.loop(model, exhibit.batches)
    assert total() < before


def test_the_museum_has_26_exhibits_two_of_them_without_a_report():
    assert len(EXHIBITS) == 26
    assert {name for name in EXHIBITS if not EXHIBITS[name].report} == {
        "never_clears",
        "validates",
    }
    assert REPORTS.keys() <= EXHIBITS.keys() | {"deepspeed_2768"}
    assert all(report.endswith(name[name.rindex("_") + 1 :]) for name, report in REPORTS.items())


def test_the_same_kind_of_clearing_concerns_other_updates():
    (each_time,) = EXHIBITS["accelerate_616"].audited().findings
    (validating,) = EXHIBITS["validates"].audited().findings
    assert (each_time.updates, validating.updates) == ((1, 2), (2,))


def test_the_two_figures_of_the_wrong_count_are_13_for_10_and_9_for_6():
    first, second = EXHIBITS["transformers_46204"].audited().updates
    assert first.comparison.length_ratio == pytest.approx(10 / 13)
    assert second.comparison.length_ratio == pytest.approx(6 / 9)


def test_an_exhibit_is_left_as_it_was():
    exhibit = EXHIBITS["transformers_22082"]
    before = copy.deepcopy(exhibit.batches)
    exhibit.audited()
    assert all(map(torch.equal, before, exhibit.batches))


def test_the_audit_needs_neither_widgets_nor_matplotlib():
    asked = "import sys, helpers.audit; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"matplotlib", "ipywidgets", "IPython", "sklearn", "scipy"})
