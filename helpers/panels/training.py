"""Lesson 02: the same eight samples trained on, right beside wrong."""

from collections.abc import Sequence

import ipywidgets as widgets
import torch

from helpers.figures import (
    FULL_BATCH,
    SCALING_COLOURS,
    SCALING_NAMES,
    Table,
    TrainingPicture,
    number,
)
from helpers.panels.panel import SCALING_CHOICES, Panel, buttons, labelled, side_by_side
from helpers.subjects.training import OPTIMIZERS, UPDATES, Run, loss_surface, run_on_eight

LEARNING_RATES = [
    ("1/64", 1 / 64),
    ("1/32", 1 / 32),
    ("1/16", 1 / 16),
    ("1/8", 1 / 8),
    ("1/4", 1 / 4),
]


class TrainingPanel(Panel):
    """Twelve updates on the eight samples: a run with the chosen loop beside the full batch.

    Controls:
        batch_size: samples in each micro-batch, 1 to 8.
        accumulation_steps: micro-batches in each update; no more than the eight samples allow.
        scaling: "none", "steps" or "samples".
        optimizer: one of ``OPTIMIZERS``.
        lr: one of ``LEARNING_RATES``.

    After every move: ``full`` and ``run``, each a :class:`helpers.subjects.training.Run`;
    ``gradient_ratio`` and ``step_ratio``, how much longer the first gradient and the first weight
    change are.
    """

    title = "Training on the eight samples"

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = device
        self.batch_size = buttons([1, 2, 4, 8], 4)
        self.accumulation_steps = buttons([1, 2], 2)
        self.scaling = buttons(SCALING_CHOICES, "none")
        self.optimizer = buttons(list(OPTIMIZERS), "SGD")
        self.lr = widgets.SelectionSlider(options=LEARNING_RATES, value=1 / 16)
        picture = TrainingPicture(loss_surface(), UPDATES)
        controls = (
            self.batch_size,
            self.accumulation_steps,
            self.scaling,
            self.optimizer,
            self.lr,
        )
        rows = [
            side_by_side(
                labelled("batch size", self.batch_size),
                labelled("steps", self.accumulation_steps),
            ),
            labelled("each loss", self.scaling),
            labelled("optimizer", self.optimizer),
            labelled("learning rate", self.lr),
        ]
        super().__init__(picture, controls, rows)

    def control_moved(self, control: widgets.ValueWidget) -> None:
        if control is self.batch_size:
            steps, allowed = self.accumulation_steps.value, self._steps_allowed()
            self.accumulation_steps.options = allowed
            self.accumulation_steps.value = min(steps, allowed[-1])

    def _steps_allowed(self) -> list[int]:
        return [k for k in (1, 2, 4, 8) if k * self.batch_size.value <= 8]

    def follow(self) -> tuple[Table, Sequence[str]]:
        steps, scaling = self.accumulation_steps.value, self.scaling.value
        effective = self.batch_size.value * steps
        common = (self.optimizer.value, self.lr.value, effective)
        self.full = run_on_eight(*common, 1, "none", self.device)
        self.run = run_on_eight(*common, steps, scaling, self.device)
        self.gradient_ratio = self.run.gradient_norms[0] / self.full.gradient_norms[0]
        self.step_ratio = self.run.first_step / self.full.first_step
        gradient, step = number(self.gradient_ratio), number(self.step_ratio)
        verdict = f"against the full batch: gradient × {gradient}, first step × {step}"
        self.picture.update(self.full, self.run, scaling, verdict)
        rows = [
            _row(f"full batch of {effective}", self.full),
            _row(f"{steps} × {self.batch_size.value}, {SCALING_NAMES[scaling]}", self.run),
        ]
        heading = ("run", "first gradient norm", "first step", f"loss of update {UPDATES}")
        return Table(heading, tuple(rows), verdict), (FULL_BATCH, SCALING_COLOURS[scaling])


def _row(name: str, run: Run) -> tuple[str, ...]:
    return (
        name,
        *(number(v, 3) for v in (run.gradient_norms[0], run.first_step, run.losses[-1])),
    )
