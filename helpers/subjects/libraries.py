"""What training libraries do with the same micro-batches: measured, and as rules for any sizes."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.gradients import flat_gradient, flat_weights
from helpers.recorder import Backward, Step, Trace, record
from helpers.subjects.library_loops import (
    CountedLoss,
    LinearLoss,
    MicroBatch,
    Settings,
    with_accelerate,
    with_keras,
    with_lightning,
    with_pytorch,
    with_trainer,
)
from helpers.subjects.windows import MicroBatch as Piece
from helpers.subjects.windows import Timeline, Window, timeline

LOOPS: dict[str, Callable] = {
    "plain PyTorch": with_pytorch,
    "Accelerate": with_accelerate,
    "Lightning": with_lightning,
    "Transformers": with_trainer,
    "Keras": with_keras,
}
# What becomes of the last window, by a name of helpers.subjects.windows.POLICIES.
_AS_IT_COMES = {
    "plain PyTorch": "leaked",
    "Accelerate": "divided by k",
    "Lightning": "divided by k",
    "Transformers": "true mean",  # but a mean of the micro-batches' means
    "Keras": "carried on",
}
WAYS = ("as it comes", "mended")
IGNORED = -100


@dataclass(frozen=True)
class Update:
    """One update of a run."""

    micro_batches: tuple[int, ...]  # those in it, counted from 0 in the order drawn
    gradient: Tensor  # as the optimizer saw it
    full_batch: Tensor  # the gradient of the mean over everything in it, at the same weights
    divisor: float | None  # what the sum of its mean losses was divided by, if by anything
    lr: float

    @property
    def is_full_batch(self) -> bool:
        """Whether it is the full batch's gradient, rounding aside."""
        return torch.allclose(self.gradient, self.full_batch, rtol=1e-5, atol=1e-6)


@dataclass(frozen=True)
class Run:
    """What a library did with its micro-batches."""

    library: str
    each_epoch: int  # micro-batches drawn in each
    epochs: int
    lr: float  # before a scheduler moved
    updates: tuple[Update, ...]

    @property
    def unused(self) -> tuple[int, ...]:
        """The micro-batches, counted from 0 in the order drawn, that no update used."""
        used = {batch for update in self.updates for batch in update.micro_batches}
        return tuple(i for i in range(self.each_epoch * self.epochs) if i not in used)

    @property
    def last_window(self) -> str:
        """What became of the micro-batches at the end of the first epoch, in a few words."""
        last = self.each_epoch - 1
        inside = [u.micro_batches for u in self.updates if last in u.micro_batches]
        if not inside:
            return "no update"
        (window,) = inside
        return "an update of its own" if window[-1] == last else "runs into the next epoch"

    @property
    def moves(self) -> tuple[int, ...]:
        """How often the scheduler that halves the learning rate had moved before each update."""
        return tuple(round(math.log2(self.lr / update.lr)) for update in self.updates)


def measure(
    library: str, model: nn.Module, batches: Sequence[MicroBatch], settings: Settings, **options
) -> Run:
    """What a library makes of micro-batches, seen by the flight recorder.

    Args:
        library: one of :data:`LOOPS`.
        model: called with a micro-batch's items by name, it hands back a dict with the mean loss;
            it is left as it was.
        batches: all micro-batches of an epoch, in order.
        settings: what the loop is told.
        options: what this library's loop takes besides.

    Raises:
        ValueError: there is no such library, or no micro-batch.
    """
    checks.one_of("library", library, LOOPS)
    if not batches:
        raise ValueError("batches must hold at least one micro-batch, got none")
    trained = copy.deepcopy(model)
    with record(trained) as trace:
        LOOPS[library](trained, batches, settings, **options)
    weights, updates = flat_weights(model), []
    for step, inside in _windows(trace):
        places = [i % len(batches) for i in inside]
        means = [_mean_gradient(model, weights, batches[i]) for i in places]
        counts = torch.tensor([float(_count(batches[i])) for i in places])
        full = (counts[:, None] * torch.stack(means)).sum(0) / counts.sum()
        gradient = step.gradient.vector
        divisor = _divisor(torch.stack(means).sum(0), gradient)
        updates.append(Update(inside, gradient, full, divisor, step.learning_rates[0]))
        weights = weights + step.change.vector
    return Run(library, len(batches), settings.epochs, settings.lr, tuple(updates))


def _windows(trace: Trace) -> list[tuple[Step, tuple[int, ...]]]:
    """Each update with the backwards in it, counted from 0.

    What Keras accumulates it keeps in places of its own, so its updates show as assigned; in each
    is all that came since the last one.
    """
    found, since = [], []
    for event in trace.events:
        if isinstance(event, Backward):
            since.append(event.number)
        elif isinstance(event, Step):
            inside = since if event.assigned else event.backwards
            found.append((event, tuple(number - 1 for number in inside)))
            since = []
    return found


def _mean_gradient(model: nn.Module, weights: Tensor, batch: MicroBatch) -> Tensor:
    """The gradient of a micro-batch's mean loss at these weights, without a factor it may have."""
    there = copy.deepcopy(model).requires_grad_()
    nn.utils.vector_to_parameters(weights, there.parameters())
    there.zero_grad()
    there(**{name: item for name, item in batch.items() if name != "factor"})["loss"].backward()
    return flat_gradient(there)


def _count(batch: MicroBatch) -> int:
    """What the mean of a micro-batch is over: its labels that are not ignored, else its samples."""
    if "labels" in batch:
        return int((batch["labels"] != IGNORED).sum())
    return len(next(iter(batch.values())))


def _divisor(total: Tensor, gradient: Tensor) -> float | None:
    """d where gradient = total / d; None where there is no such number."""
    size = (gradient @ gradient).item()
    if not size:
        return None
    d = (total @ gradient).item() / size
    return d if torch.allclose(total, d * gradient, rtol=1e-4, atol=1e-6) else None


# Which sample enters which update, and how much it counts: by rule, and measured.


def expected(
    library: str, samples: int, batch_size: int, accumulation_steps: int, epochs: int, way: str
) -> Timeline:
    """What a library makes of samples drawn in order, by rule; :func:`measured` is the proof.

    Args:
        library: one of :data:`LOOPS`.
        samples, batch_size, accumulation_steps, epochs: as for
            :func:`helpers.subjects.windows.timeline`.
        way: "as it comes", each micro-batch's mean loss handed over, or "mended": by hand a step
            on the last batch, in Transformers a model that divides by the count handed to it, and
            elsewhere each mean times its samples and k, over the samples of the window.
    """
    checks.one_of("library", library, LOOPS)
    checks.one_of("way", way, WAYS)
    numbers = samples, batch_size, accumulation_steps, epochs
    if way == "as it comes":
        run = timeline(*numbers, _AS_IT_COMES[library])
        return _reweighted(run, _share_of_mean) if library == "Transformers" else run
    if library != "Keras":
        return timeline(*numbers, "true mean")
    return _reweighted(timeline(*numbers, "carried on"), _share_of_samples)


def _share_of_mean(window: Window, piece: Piece) -> float:
    return 1 / (len(window.micro_batches) * len(piece.samples))


def _share_of_samples(window: Window, piece: Piece) -> float:
    return 1 / window.samples


def _reweighted(run: Timeline, share: Callable[[Window, Piece], float]) -> Timeline:
    """The same windows, each sample weighing what ``share`` gives it."""
    updates = tuple(
        Window(tuple(replace(piece, weight=share(w, piece)) for piece in w.micro_batches))
        for w in run.updates
    )
    return replace(run, updates=updates)


def measured(
    library: str, samples: int, batch_size: int, accumulation_steps: int, epochs: int, way: str
) -> Timeline:
    """The same as :func:`expected`, by running the library.

    Every sample has a weight of its own with a gradient of 1, so that a gradient shows what each
    sample counts.
    """
    expected(library, samples, batch_size, accumulation_steps, epochs, way)  # checks them all
    pieces = [range(i, min(i + batch_size, samples)) for i in range(0, samples, batch_size)]
    batches = [{"x": torch.eye(samples)[piece.start : piece.stop]} for piece in pieces]
    model, options = LinearLoss(samples), {}
    settings = Settings(accumulation_steps, epochs)
    if way == "mended" and library == "Transformers":
        model = CountedLoss(samples)
        batches = [batch | {"labels": torch.zeros(len(batch["x"]))} for batch in batches]
    elif way == "mended":
        options = {"flush": True} if library == "plain PyTorch" else {}
        if library == "Keras":  # its windows run on, so factors differ from epoch to epoch
            batches, settings = batches * epochs, Settings(accumulation_steps)
        batches = weighted(batches, accumulation_steps)
    with record(model) as trace:
        LOOPS[library](model, batches, settings, **options)
    added = [event.added.vector for event in trace.events if isinstance(event, Backward)]
    drawn = [Piece(epoch, piece, 0.0) for epoch in range(epochs) for piece in pieces]
    updates, unused = [], set(range(len(drawn)))
    for step, inside in _windows(trace):
        gradient, total = step.gradient.vector, sum(added[i] for i in inside)
        scale = ((gradient @ total) / (total @ total)).item()
        shares = {i: scale * added[i][drawn[i].samples.start].item() for i in inside}
        updates.append(Window(tuple(replace(drawn[i], weight=shares[i]) for i in inside)))
        unused -= set(inside)
    left = [added[i][drawn[i].samples.start].item() for i in sorted(unused)]
    rest = [replace(drawn[i], weight=w) for i, w in zip(sorted(unused), left, strict=True)]
    return Timeline(samples, epochs, tuple(updates), tuple(rest))


def weighted(batches: Sequence[MicroBatch], accumulation_steps: int) -> list[MicroBatch]:
    """Micro-batches with a factor for each sample that makes a library's division by k one by N.

    It is n k / N for the n samples of a micro-batch and the N of its window; windows are counted
    from the start.
    """
    checks.whole_number("accumulation_steps", accumulation_steps, 1)
    result = []
    for start in range(0, len(batches), accumulation_steps):
        window = batches[start : start + accumulation_steps]
        total = sum(map(_count, window))
        for batch in window:
            factor = torch.full((len(batch["x"]),), _count(batch) * accumulation_steps / total)
            result.append(batch | {"factor": factor})
    return result
