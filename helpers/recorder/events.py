"""What a recording is made of: one record for each thing that was seen."""

from dataclasses import dataclass, field

from torch import Tensor

PROBED = 4096  # elements of a parameter that enter its fingerprint


@dataclass(frozen=True)
class Reading:
    """A gradient, or any other list of tensors, as one flat vector, as far as it is kept.

    A complex number counts as two, its real and its imaginary part. What nobody could see is nan.
    """

    norm: float
    # Tensor number i adds its elements times cos(i), cos(i + 1), ...; of one with more than PROBED
    # elements, evenly spaced ones. It has a sign, and adds up as the vectors do.
    fingerprint: float
    vector: Tensor | None = field(default=None, repr=False, compare=False)  # in model order


@dataclass(frozen=True)
class Draw:
    """An item drawn from an iterable handed to :meth:`Trace.draws`. All numbers count from 1."""

    number: int
    epoch: int  # which pass over the iterable
    position: int  # in that pass


@dataclass(frozen=True)
class Forward:
    """A call of the model."""

    number: int
    samples: int | None  # length of the first tensor among the arguments
    with_grad: bool
    training: bool
    loss: float | None = None  # where the model hands back a scalar, or a dict with a scalar "loss"


@dataclass(frozen=True)
class Recomputation:
    """The model called again inside a backward: gradient checkpointing, not a new forward."""


@dataclass(frozen=True)
class Backward:
    """A backward that added to ``.grad`` of the model.

    Where an optimizer steps while the backward still runs, the step comes after it all the same.
    """

    number: int
    forwards: tuple[int, ...]  # whose outputs it went through
    added: Reading
    held: Reading  # all of .grad after it, each parameter's as soon as its gradient was added
    missing: tuple[str, ...]  # parameters that got no gradient from it


@dataclass(frozen=True)
class Edit:
    """``.grad`` changed in place outside a backward, but not to nothing.

    It was clipped, unscaled, reduced, or added to by hand. ``after`` is nan where only the next
    backward showed that something had changed.
    """

    before: Reading
    after: Reading


@dataclass(frozen=True)
class Assign:
    """``.grad`` of some parameters filled, or made another tensor, by no backward: set by hand.

    What came into it, the hooks did not see: it may be a gradient from ``torch.autograd.grad``,
    or anything else. Steps that use it, and clears, say ``assigned``. A ``.grad`` that another
    parameter had before brings along the backwards it came from, and counts as seen.
    """

    before: Reading  # all of .grad
    after: Reading
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Clear:
    """``.grad`` of some parameters set to zero or None, by whatever means."""

    backwards: tuple[int, ...]  # whose gradients it held; 0 is from before the recording
    held: Reading  # what was cleared
    to_none: bool
    used: bool  # whether an optimizer had stepped with all of it
    parameters: tuple[str, ...]
    assigned: bool  # whether it held, too, what an Assign had put there


@dataclass(frozen=True)
class Step:
    """An optimizer step that ran (one that a GradScaler skips does not): an update.

    Steps that it calls in turn, as a wrapper does, are part of it; where a wrapper has no learning
    rates, they are those of the optimizer inside. What is cleared during the step comes after it.
    Readings cover those parameters of the model that the optimizer owns, in model order.
    """

    number: int
    optimizer: int  # in the order of their first steps
    backwards: tuple[int, ...]  # whose gradients it used; 0 is from before the recording
    losses: tuple[float, ...]  # of their forwards, as far as known
    before: Reading  # .grad after the last backward: before clipping and unscaling
    gradient: Reading  # .grad as the optimizer saw it
    learning_rates: tuple[float, ...]  # one for each parameter group
    change: Reading  # weights after the step minus before
    missing: tuple[str, ...]  # parameters it skipped because they had no gradient
    assigned: bool  # whether it used, too, what an Assign had put there
    parameters: tuple[str, ...]  # that the optimizer owns, and of which the readings tell


@dataclass(frozen=True)
class Schedule:
    """An optimizer's learning rates changed."""

    optimizer: int
    old: tuple[float, ...]
    new: tuple[float, ...]


@dataclass(frozen=True)
class BufferChange:
    """Buffers changed (BatchNorm statistics): in a forward, or outside, as by a recomputation."""

    buffers: tuple[str, ...]
    in_forward: bool
    before: Reading
    after: Reading


@dataclass(frozen=True)
class Log:
    """What the loop itself reported through :meth:`Trace.log`, after ``updates`` updates."""

    values: dict[str, float]
    updates: int


@dataclass(frozen=True)
class Pending:
    """What is in ``.grad`` at the end, and the backwards it came from."""

    backwards: tuple[int, ...]  # 0 is from before the recording
    held: Reading
    used: bool  # whether an optimizer had stepped with all of it
    assigned: bool  # whether it holds, too, what an Assign put there


Event = (
    Draw
    | Forward
    | Recomputation
    | Backward
    | Edit
    | Assign
    | Clear
    | Step
    | Schedule
    | BufferChange
    | Log
)
