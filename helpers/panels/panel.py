"""What every panel does: follow its controls, and show itself wherever it is looked at."""

import base64
import html
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ipywidgets as widgets

from helpers.figures import SCALING_NAMES, SvgDrawing, Table, png
from helpers.gradients import SCALINGS

SCALING_CHOICES = [(SCALING_NAMES[scaling], scaling) for scaling in SCALINGS]
MOST_BUTTONS = 16


def buttons(options, value) -> widgets.ToggleButtons:
    """A row of toggle buttons, each as wide as its label, of which one is pressed.

    Used for short lists too: JupyterLab keeps the keys pressed in a drop-down menu to itself.
    """
    return widgets.ToggleButtons(
        options=options, value=value, style={"button_width": "max-content"}
    )


def side_by_side(*boxes: widgets.Widget) -> widgets.HBox:
    """Labelled controls, as :func:`in_a_row` has them but apart.

    A gap keeps a label apart from the control before it: "8" and "steps" are not "8 steps".
    """
    for box in boxes[1:]:
        box.layout.margin = "0 0 0 24px"
    return in_a_row(*boxes)


def in_a_row(*boxes: widgets.Widget) -> widgets.HBox:
    """Controls close to each other, in several lines where they don't fit into one."""
    return widgets.HBox(boxes, layout=widgets.Layout(flex_flow="row wrap"))


def labelled(text: str, control: widgets.Widget) -> widgets.HBox:
    """A control with its label in front; JupyterLab would put the label of buttons above them.

    A screen reader hears the label with each button, and as the name of a menu; ipywidgets has no
    way to name a slider.
    """
    if isinstance(control, widgets.ToggleButtons):
        # One for each button there may ever be: those of new options take theirs from here.
        control.tooltips = [text] * MOST_BUTTONS
    elif isinstance(control, widgets.Dropdown):
        control.tooltip = text
    label = widgets.Label(text, layout=widgets.Layout(min_width="100px", flex="0 0 auto"))
    return in_a_row(label, control)


def _reset_button() -> widgets.Button:
    layout = widgets.Layout(width="max-content", flex="0 0 auto", margin="2px 2px 2px auto")
    tooltip = "set all controls of this panel back"
    return widgets.Button(description="Reset", tooltip=tooltip, layout=layout)


def _failure(error: str, settings: str) -> str:
    told = f"This panel could not follow its controls ({settings}). {error}"
    return f"<div role='alert' style='padding:12px'><b>{html.escape(told)}</b></div>"


class Panel:
    """Controls above a picture that follows them.

    A panel computes plain numbers from its controls' values and moves the artists of one figure
    to them. In JupyterLab it is a live widget, the picture as SVG; anywhere without a kernel it is
    a PNG with alt text; as plain text it is the table of the numbers drawn.

    A subclass gives ``title``, makes its controls and its picture, then calls ``super().__init__``
    with the rows that its controls stand in; it says in :meth:`follow` how numbers follow from
    controls. ``reset``, a button, sets all controls back to what they were after that call.
    """

    title: str

    def __init__(
        self,
        picture,
        controls: Sequence[widgets.ValueWidget],
        rows: Sequence[widgets.Widget],
    ):
        self.picture, self.controls = picture, tuple(controls)
        self.drawing = SvgDrawing(picture.figure, picture.moving)
        # One cell of a grid for both: the moving part lies on the still one, which is sent once.
        place = widgets.Layout(grid_area="1 / 1 / 2 / 2", margin="0")
        self.ground, self.screen = widgets.HTML(layout=place), widgets.HTML(layout=place)
        # No wider than the notebook's column, however wide a table would like to be.
        column = widgets.Layout(grid_template_columns="minmax(0, 1fr)")
        shown = widgets.GridBox([self.ground, self.screen], layout=column)
        self.reset = _reset_button()
        self.reset.on_click(lambda _: self._set_back())
        first, *others = rows
        top = in_a_row(first, self.reset)
        top.layout.max_width = f"{72 * picture.figure.get_size_inches()[0]:g}pt"
        self.widget = widgets.VBox([top, *others, shown])
        self._held, self._first = False, [control.value for control in self.controls]
        for control in self.controls:
            control.observe(self._moved, "value")
        self.refresh()

    def follow(self) -> tuple[Table, Sequence[str]]:
        """Compute the numbers, move the artists; the table of numbers and a colour for each row."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Bring numbers and picture up to date with the controls.

        Where that fails the panel says so in its place, and shows the next setting as ever.
        """
        try:
            self.table, colours = self.follow()
        except Exception as error:  # a stale picture would tell another setting's numbers
            settings = ", ".join(f"{control.value!r}" for control in self.controls)
            self.screen.value = _failure(f"{type(error).__name__}: {error}", settings)
            self.ground.value = ""
            raise
        table = self.table.html(colours)
        still, moving = self.drawing.parts()
        ground = self.drawing.element(still)
        if ground != self.ground.value:
            # The whole picture, opaque, covers the ground while that is changed for another.
            self.screen.value = self.drawing.element(still + moving, self.alt) + table
            self.ground.value = ground
        self.screen.value = self.drawing.element(moving, self.alt) + table

    @property
    def alt(self) -> str:
        """The picture in words: title, settings, what came out."""
        return f"{self.title}: {self.table.closing}"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Several controls moved inside, one picture afterwards."""
        if self._held:
            yield
            return
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.refresh()

    def _set_back(self) -> None:
        """All controls as they were at first, in their order: some decide what others may be."""
        with self.hold():
            for control, value in zip(self.controls, self._first, strict=True):
                control.value = value

    def _moved(self, change: dict) -> None:
        with self.hold():
            self.control_moved(change["owner"])

    def control_moved(self, control: widgets.ValueWidget) -> None:
        """Bring the other controls into line with the one that moved; nothing unless overridden."""

    def _repr_mimebundle_(self, include=None, exclude=None):
        live = self.widget._repr_mimebundle_() or {}
        image = base64.b64encode(png(self.picture.figure)).decode()
        data = {**live, "image/png": image, "text/plain": self.table.text()}
        return data, {"image/png": {"alt": self.alt}}
