"""What holds for every panel."""

import re

import pytest

from helpers.panels import (
    CuttingPanel,
    EquivalencePanel,
    MemoryPanel,
    SteppingPanel,
    TokensPanel,
    TrainingPanel,
    WindowsPanel,
)
from tests.subjects.panels import move_at_random


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
