"""The museum: every exhibit gets its kind, a right loop on its data gets none."""

import copy
import random
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from matplotlib.colors import to_rgb

from helpers.panels import MuseumPanel
from helpers.subjects.museum import CANNOT_BE_EQUAL, EXHIBITS, REPORTS, ROOMS, audit
from helpers.subjects.museum_data import right_loop
from helpers.subjects.museum_faults import DATA, audited, data_of, faulty
from helpers.subjects.museum_loops import IGNORED, K
from tests.subjects.panels import stays_right
from tests.subjects.pictures import assert_readable

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


# The panel, held against the loop worked out by hand.

OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")
TWO_EPOCHS = {name: sizes * 2 for name, sizes in DATA.items()}
SINGLE = {
    ("right", "full windows", "right"): {"window-leaked"},
    ("right", "i % k == 0", "right"): {"boundary-off-by-one"},
    ("right", "always", "right"): {"stepped-every-micro-batch"},
    ("right", "right", "before backward"): {"cleared-inside-window"},
    ("right", "right", "never"): {"never-cleared"},
    ("not divided", "right", "right"): {"loss-not-divided"},
    ("twice", "right", "right"): {"divided-twice"},
    ("by k", "right", "right"): {"mean-of-means", "short-window-divided-by-k"},
    ("by its length", "right", "right"): {"mean-of-means"},
    ("right", "right", "right"): set(),
}


def hidden(data):
    """The kinds that data cannot show."""
    equal = {"mean-of-means"} if "unequal" not in data else set()
    return equal | (set() if "over" in data else {"window-leaked", "short-window-divided-by-k"})


def worked_out(data, scale, boundary, clearing):
    """(end, gradient) of each update, and which update each micro-batch enters, by fractions."""
    sizes, digits = DATA[data], iter("3142592654589793")
    means = [Fraction(sum(int(next(digits)) for _ in range(n)), n) for n in sizes]
    updates, held, waiting, owners = [], Fraction(0), [], [None] * (2 * len(sizes))
    for i in range(2 * len(sizes)):
        at = i % len(sizes)
        window = sizes[at // 3 * 3 : at // 3 * 3 + 3]
        factor = {
            "right": Fraction(sizes[at], sum(window)),
            "not divided": 1,
            "by k": Fraction(1, 3),
            "by its length": Fraction(1, len(window)),
            "twice": Fraction(sizes[at], sum(window) * 3),
        }[scale]
        if clearing == "before backward":
            held, waiting = Fraction(0), []
        held += means[at] * factor
        waiting.append(i)
        full = at % 3 == 2
        steps = {
            "right": full or at + 1 == len(sizes),
            "full windows": full,
            "i % k == 0": at % 3 == 0,
            "always": True,
        }[boundary]
        if steps:
            for entered in waiting:
                owners[entered] = len(updates)
            updates.append((i + 1, held))
            waiting = []
            held = Fraction(0) if clearing == "right" else held
    return updates, owners


def assert_museum_panel_is_right(panel):
    setting = tuple(control.value for control in panel.controls)
    updates, owners = worked_out(*setting)
    picture, report = panel.picture, panel.report
    assert_readable(picture)
    sizes = TWO_EPOCHS[setting[0]]

    boxes = [path.vertices[:4].tolist() for path in picture.boxes.get_paths()]
    assert boxes == [[[i, 0], [i, n], [i + 1, n], [i + 1, 0]] for i, n in enumerate(sizes)]
    for owner, colour in zip(owners, picture.boxes.get_facecolor(), strict=True):
        full = (1, 1, 1) if owner is None else to_rgb(OKABE_ITO[owner % 4])
        wanted = [1, 1, 1] if owner is None else [0.75 + 0.25 * c for c in full]
        assert colour[:3].tolist() == pytest.approx(wanted, abs=1 / 255)
    assert list(picture.steps.get_xdata()) == [end for end, _ in updates]
    unused = [i + 0.5 for i, owner in enumerate(owners) if owner is None]
    assert list(picture.unused.get_xdata()) == unused

    (_, right), (bottom, top) = picture.beneath.get_xlim(), picture.beneath.get_ylim()
    assert (right, bottom) == (14, 0)
    drawn = {False: picture.fine.get_paths(), True: picture.off.get_paths()}
    bars = {False: [], True: []}
    for (end, gradient), update in zip(updates, report.updates, strict=True):
        bars[bool(update.kinds)].append((end, float(gradient)))
        assert update.gradient.item() == pytest.approx(float(gradient))
        if not update.kinds:
            assert update.right.item() == pytest.approx(float(gradient))
    for found, paths in drawn.items():
        corners = [path.vertices[1:3].tolist() for path in paths]
        wanted = [[[e - 0.8, g], [e - 0.2, g]] for e, g in bars[found]]
        assert corners == [[pytest.approx(point) for point in bar] for bar in wanted]
    dashes = [segment.tolist() for segment in picture.rights.get_segments()]
    rights = [update.right.item() for update in report.updates]
    wanted = [[[e - 0.9, r], [e - 0.1, r]] for (e, _), r in zip(updates, rights, strict=True)]
    assert dashes == wanted
    ends = [segment.tolist() for segment in picture.epoch.get_segments()]
    assert ends == [[[e, 0], [e, top]] for e in (len(sizes) / 2, len(sizes))]

    found = ", ".join(finding.kind for finding in report.findings) or "nothing"
    assert picture.verdict.get_text() == f"the audit finds: {found}"
    assert panel.table.heading == ("update", "gradient", "large batch", "found")
    for n, (row, (_, gradient), update) in enumerate(
        zip(panel.table.rows, updates, report.updates, strict=True), start=1
    ):
        numbers = (f"{float(gradient):.4g}", f"{update.right.item():.4g}")
        assert row == (str(n), *numbers, ", ".join(update.kinds) or "–")
    faults = zip(("scale", "steps", "clears"), setting[1:], strict=True)
    planted = ", ".join(f"{name} {value}" for name, value in faults if value != "right")
    assert panel.table.closing == f"{planted or 'no fault'}, {setting[0]}. Found: {found}"
    assert panel.alt in panel.screen.value


@pytest.mark.parametrize("seed", range(2))
def test_controls_in_any_order_leave_the_museum_panel_right(seed):
    stays_right(MuseumPanel(), assert_museum_panel_is_right, seed, moves=15)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("setting", SINGLE, ids=", ".join)
def test_a_single_fault_gets_its_kind_where_the_data_can_show_it(setting, data):
    found = set(kinds(audited(data, *setting)))
    assert found == SINGLE[setting] - hidden(data)


@pytest.mark.parametrize("seed", range(12))
def test_several_faults_are_never_given_the_name_of_another(seed):
    chance = random.Random(seed)
    menus = zip(*SINGLE, strict=True)
    scale, boundary, clearing = (chance.choice(sorted(set(menu) - {"right"})) for menu in menus)
    planted = SINGLE[scale, "right", "right"] | SINGLE["right", boundary, "right"]
    planted |= SINGLE["right", "right", clearing] | {"unexplained", "window-dropped"}
    for data in DATA:
        assert set(kinds(audited(data, scale, boundary, clearing))) <= planted


def test_a_fault_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="scale must be one of 'right', 'not divided'"):
        faulty("half", "right", "right")
    with pytest.raises(ValueError, match="name must be one of 'equal'"):
        data_of("odd")


def test_all_controls_can_be_moved_at_once():
    panel = MuseumPanel()
    panel.set("equal", "twice", "always", "never")
    assert [c.value for c in panel.controls] == ["equal", "twice", "always", "never"]
    assert_museum_panel_is_right(panel)
