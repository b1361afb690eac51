"""What lesson 10 says and quotes of libraries, held against those installed.

A version that does otherwise turns a test red whose name is the sentence to rewrite.
"""

import inspect
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
import torch

from helpers.contained import contained
from helpers.recorder import record
from helpers.subjects.libraries import measure
from helpers.subjects.library_loops import LinearLoss, Settings, one_by_one, with_trainer

LESSON = Path(__file__).parents[1] / "notebooks" / "10_the_same_batch_in_every_library.ipynb"
TENS = one_by_one([1, 10, 100, 1000, 10000])


def plain(text: str) -> str:
    """In small letters, without Markdown's marks, comments' signs and line breaks."""
    return " ".join(re.sub(r"[`*'\"#$]", "", text).lower().split())


def lesson() -> str:
    cells = nbformat.read(LESSON, as_version=4).cells
    return plain("\n".join(cell.source for cell in cells if cell.cell_type == "markdown"))


def second(library: str, settings: Settings | None = None, **options) -> float:
    run = measure(library, LinearLoss(), TENS, settings or Settings(4, epochs=2), **options)
    return run.updates[1].gradient.item()


def moves(library: str, data=TENS, **options) -> tuple[int, ...]:
    settings = Settings(4, epochs=2, halving=True)
    return measure(library, LinearLoss(), data, settings, **options).moves[:2]


class Deaf(LinearLoss):
    def forward(self, x, labels, **kwargs):
        return super().forward(x)


def deaf_gradient(**attributes) -> float:
    model = type("Deaf", (Deaf,), attributes)()
    batches = [batch | {"labels": torch.ones(1)} for batch in one_by_one([1, 3])]
    with record(model) as trace:
        with_trainer(model, batches, Settings(2))
    return trace.updates[0].gradient.vector.item()


def clipped(**options) -> list[float]:
    batches = [{"x": torch.tensor([pair])} for pair in ([3.0, -2.0], [-1.0, -5.0])]
    settings = Settings(2, max_norm=1.0)
    return measure("Accelerate", LinearLoss(2), batches, settings, **options).updates[0].gradient


SENTENCES = {
    "step on the last batch of the loader, and divide by the full k all the same: 2500": lambda: (
        second("Accelerate") == second("Lightning") == 2500
    ),
    "divides by what is in the window, 10000 / 1": lambda: second("Transformers") == 10000,
    "five then share the next window, and the sum is divided by four: 2777.75": lambda: (
        second("plain PyTorch") == 2777.75
    ),
    "its second update holds the fifth micro-batch and the first three of the next epoch": lambda: (
        second("Keras") == 2527.75
    ),
    "what the last epoch leaves over is never applied": lambda: (
        measure("Keras", LinearLoss(), TENS, Settings(4, epochs=2)).unused == (8, 9)
    ),
    "counts on into the next epoch, as Keras does: 2527.75": lambda: (
        second("Accelerate", sync_with_dataloader=False) == 2527.75
    ),
    "divides the fifth loss by the 1 that is left, does not step, and lets the gradient leak": (
        lambda: second("Transformers", sized=False, max_steps=2) == 10277.75
    ),
    "size a keras schedule in micro-batches": lambda: moves("Keras") == (3, 7),
    "the scheduler moved once an update everywhere but in Keras": lambda: all(
        moves(name) == (0, 1)
        for name in ("plain PyTorch", "Accelerate", "Lightning", "Transformers")
    ),
    "it moves at every one, for every update falls on an even micro-batch": lambda: (
        moves("Lightning", TENS[:4], frequency=2) == (0, 1)
    ),
    "concludes that the model will divide, and does not": lambda: deaf_gradient() == 4,
    "write accepts_loss_kwargs = False in the model's class": lambda: (
        deaf_gradient(accepts_loss_kwargs=False) == 2
    ),
    "clipped after every backward, the first half is cut before the second arrives": lambda: (
        clipped().tolist() == pytest.approx([0.2747, -0.9615], abs=1e-4)
        and clipped(guarded=False).tolist() == pytest.approx([0.1081, -0.9941], abs=1e-4)
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_it_is_as_the_lesson_says(sentence):
    assert plain(sentence) in lesson(), "the lesson no longer says so"
    assert SENTENCES[sentence](), f"rewrite in lesson 10: {sentence!r}"


QUOTES = {
    "closure_loss = closure_loss / normalize": "lightning.pytorch.loops.optimization.automatic",
    "loss = loss / self.gradient_accumulation_steps": "accelerate.accelerator",
    "the average value of the gradients": "keras.src.optimizers.base_optimizer",
    "whether to synchronize setting the gradients when at the end of the dataloader": (
        "accelerate.utils.dataclasses"
    ),
    "accumulates gradients over k batches before stepping the optimizer": (
        "lightning.pytorch.trainer.trainer"
    ),
    "learning rate schedules will look at real iterations value": (
        "keras.src.optimizers.base_optimizer"
    ),
    "how many epochs/steps should pass between calls": "lightning.pytorch.core.module",
}


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quote_stands_in_the_lesson_and_in_the_source(quote):
    assert plain(quote) in lesson()
    with contained():
        source = inspect.getsource(import_module(QUOTES[quote]))
    assert plain(quote) in plain(source)


def test_the_lesson_ran_with_the_versions_that_are_installed():
    (cell,) = (c for c in nbformat.read(LESSON, as_version=4).cells if c.id == "import-libraries")
    printed = "".join(output.get("text", "") for output in cell.outputs)
    named = dict(line.split() for line in printed.splitlines())
    assert named == {name: version(name) for name in named}
    assert len(named) == 4
