"""What holds for every panel."""

import html
import re
import xml.etree.ElementTree as ElementTree

import ipywidgets as widgets
import pytest

from helpers.figures import SvgDrawing
from helpers.panels import (
    CuttingPanel,
    DevicesPanel,
    EquivalencePanel,
    LibrariesPanel,
    MemoryPanel,
    MuseumPanel,
    SteppingPanel,
    TokensPanel,
    TrainingPanel,
    WindowsPanel,
)
from tests.subjects.panels import move_at_random, values
from tests.subjects.pictures import assert_readable, text_extents


def loop(model, optimizer, batches, k):
    optimizer.zero_grad()
    for i, batch in enumerate(batches):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0 and k > 0:
            optimizer.step()
            optimizer.zero_grad()


def clearing(model, optimizer, batches, k):
    for batch in batches:
        optimizer.zero_grad()
        (model(batch).mean() / k).backward()


PANELS = {
    "cutting": CuttingPanel,
    "training": TrainingPanel,
    "windows": WindowsPanel,
    "stepping": lambda: SteppingPanel({"loop": loop, "clearing": clearing}, (1, 2, 4, 8, 16), 4),
    "tokens": TokensPanel,
    "equivalence": EquivalencePanel,
    "memory": MemoryPanel,
    "libraries": LibrariesPanel,
    "museum": MuseumPanel,
    "devices": lambda: DevicesPanel({1: [2**20] * 16, 4: [2**22] * 4, 16: [2**24]}),
}
every_panel = pytest.mark.parametrize("make", PANELS.values(), ids=PANELS)


@every_panel
def test_a_panel_is_a_widget_a_described_image_and_a_table(make):
    panel = make()
    data, metadata = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"].startswith("iVBOR")
    assert metadata["image/png"]["alt"] == panel.alt
    assert panel.alt == f"{panel.title}: {panel.table.closing}"
    assert data["text/plain"] == panel.table.text()


@every_panel
def test_moving_the_controls_back_shows_the_same_picture_again(make):
    panel = make()
    before, start = panel.screen.value, [control.value for control in panel.controls]
    assert len({panel.screen.value for _ in move_at_random(panel, moves=20, seed=1)}) > 5
    for control, value in zip(panel.controls, start, strict=True):
        control.value = value
    assert panel.screen.value == before


@every_panel
def test_no_number_shown_is_nan_or_infinite(make):
    panel = make()
    for _ in move_at_random(panel, moves=20, seed=7):
        assert not re.search(r"\b(nan|inf)\b", panel.table.text())


@every_panel
def test_a_panel_that_can_not_follow_says_so_and_recovers(make, monkeypatch):
    panel = make()
    control = panel.controls[-1]
    start, shown = control.value, panel.screen.value

    def fail():
        raise ZeroDivisionError("no <numbers>")

    with monkeypatch.context() as patch:
        patch.setattr(panel, "follow", fail)
        with pytest.raises(ZeroDivisionError):
            panel.refresh()
        assert "ZeroDivisionError: no &lt;numbers&gt;" in panel.screen.value
        assert "<svg" not in panel.screen.value + panel.ground.value
    panel.refresh()
    assert (panel.screen.value, control.value) == (shown, start)
    assert "<svg" in panel.ground.value


@every_panel
def test_all_is_in_view_named_and_legible(make):  # its own tests try every end of every control
    panel = make()
    assert_readable(panel.picture)
    for _ in move_at_random(panel, moves=4, seed=8):
        assert_readable(panel.picture)


def svg(shown):
    """The drawing at the head of what a panel shows."""
    return shown[: shown.index("</svg>") + len("</svg>")]


def words(*drawings):
    """Every text of some drawings."""
    names = "{http://www.w3.org/2000/svg}text"
    texts = (text for drawing in drawings for text in ElementTree.fromstring(drawing).iter(names))
    return {"".join(text.itertext()).strip() for text in texts}


@every_panel
def test_what_is_kept_of_a_picture_is_what_drawing_it_anew_shows(make):
    panel = make()
    for _ in move_at_random(panel, moves=8, seed=5):
        anew = SvgDrawing(panel.picture.figure, panel.picture.moving)
        still, moving = map(anew.element, anew.parts())
        assert panel.ground.value == still
        assert svg(panel.screen.value).split(">", 1)[1] == moving.split(">", 1)[1]


@every_panel
def test_every_word_of_the_picture_is_on_the_page(make):
    panel = make()
    for _ in move_at_random(panel, moves=8, seed=6):
        on_the_page = words(panel.ground.value, svg(panel.screen.value))
        drawn = [line for text, _ in text_extents(panel.picture) for line in text.split("\n")]
        assert [line for line in drawn if "$" not in line and line.strip() not in on_the_page] == []


@every_panel
def test_where_the_ground_changes_the_old_one_is_covered_meanwhile(make):
    panel, seen = make(), []
    panel.screen.observe(lambda change: seen.append(("screen", change["new"])), "value")
    panel.ground.observe(lambda change: seen.append(("ground", change["new"])), "value")
    for _ in move_at_random(panel, moves=12, seed=3):
        pass
    for i, (place, shown) in enumerate(seen):
        if place == "ground":
            before, after = seen[i - 1], seen[i + 1]
            assert before[0] == after[0] == "screen"
            content = svg(shown).split(">", 1)[1].removesuffix("</svg>")
            assert content in before[1]
            assert content not in after[1]


@every_panel
def test_reset_sets_every_control_back_and_draws_once(make, monkeypatch):
    panel, follow, followed = make(), type(make()).follow, []
    start, shown = [control.value for control in panel.controls], panel.screen.value
    for _ in move_at_random(panel, moves=20, seed=2):
        pass
    assert panel.screen.value != shown
    monkeypatch.setattr(panel, "follow", lambda: followed.append(1) or follow(panel))
    panel.reset.click()
    assert [control.value for control in panel.controls] == start
    assert panel.screen.value == shown
    assert len(followed) == 1


@every_panel
def test_reset_is_a_button_beside_the_controls_and_none_of_them(make):
    panel = make()
    assert panel.reset.description == "Reset"
    assert panel.reset in list(inside(panel.widget))
    assert panel.reset not in panel.controls
    assert all(control in list(inside(panel.widget)) for control in panel.controls)


@every_panel
def test_both_parts_of_the_picture_are_as_wide_as_the_column_up_to_their_size(make):
    panel = make()
    width, height = (f"{72 * inches:g}" for inches in panel.picture.figure.get_size_inches())
    for drawing in (panel.ground.value, svg(panel.screen.value)):
        root = ElementTree.fromstring(drawing)
        assert {"width", "height"}.isdisjoint(root.attrib)
        assert root.get("viewBox") == f"0 0 {width} {height}"
        assert root.get("style").startswith(f"display:block;width:100%;max-width:{width}pt;")


@every_panel
def test_what_came_out_is_announced_and_told_by_the_picture(make):
    panel = make()
    for _ in move_at_random(panel, moves=8, seed=4):
        (told,) = re.findall(r"<div aria-live='polite'[^>]*>(.*?)</div>", panel.screen.value)
        assert told == f"<b>{html.escape(panel.table.closing)}</b>"
        picture = ElementTree.fromstring(svg(panel.screen.value))
        assert picture.get("role") == "img"
        assert picture.get("aria-label") == panel.alt
        assert ElementTree.fromstring(panel.ground.value).get("aria-hidden") == "true"


@every_panel
def test_a_label_stands_apart_from_the_control_before_it(make):
    for row in (box.children for box in inside(make().widget) if isinstance(box, widgets.HBox)):
        for box in row[1:]:
            if isinstance(box, widgets.HBox) and isinstance(box.children[0], widgets.Label):
                assert box.layout.margin == "0 0 0 24px", box.children[0].value


@every_panel
def test_buttons_and_menus_carry_the_label_in_front_of_them(make):
    panel = make()
    rows = [box.children for box in inside(panel.widget) if isinstance(box, widgets.HBox)]
    named = {row[1]: row[0].value for row in rows if isinstance(row[0], widgets.Label)}
    for control in panel.controls:
        if isinstance(control, widgets.ToggleButtons):
            for value in values(control):  # some controls decide how many buttons another has
                control.value = value
                for group in filter(lambda c: isinstance(c, widgets.ToggleButtons), named):
                    assert set(group.tooltips[: len(group.options)]) == {named[group]}
                    assert len(group.tooltips) >= len(group.options)
        elif isinstance(control, widgets.Dropdown):
            assert control.tooltip == named[control]
        elif isinstance(control, widgets.ToggleButton):
            assert control.description
            assert control.tooltip


def inside(widget):
    """The widget and all that it holds."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from inside(child)
