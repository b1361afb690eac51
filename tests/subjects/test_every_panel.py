"""What holds for every panel."""

import re
import xml.etree.ElementTree as ElementTree

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
from tests.subjects.panels import move_at_random
from tests.subjects.pictures import text_extents


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
