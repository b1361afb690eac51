"""What a recording is made of: one record for each thing that was seen."""

from dataclasses import dataclass, field

from torch import Tensor

PROBED = 4096  # elements of a parameter that enter its fingerprint


@dataclass(frozen=True)
class Reading:
    """A gradient, or any other list of tensors, as one flat vector, as far as it is kept."""

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
    """A completed backward that added to ``.grad`` of the model."""

    number: int
    forwards: tuple[int, ...]  # whose outputs it went through
    added: Reading
    held: Reading  # all of .grad after it
    missing: tuple[str, ...]  # parameters that got no gradient from it


@dataclass(frozen=True)
class Edit:
    """``.grad`` changed outside a backward, but not to nothing: clipped, unscaled, reduced."""

    before: Reading
    after: Reading


@dataclass(frozen=True)
class Clear:
    """``.grad`` of some parameters set to zero or None, by whatever means."""

    backwards: tuple[int, ...]  # whose gradients it held; 0 is from before the recording
    held: Reading  # what was cleared
    to_none: bool
    used: bool  # whether an optimizer had stepped with all of it
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """An optimizer step that ran (one that a GradScaler skips does not): an update.

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


Event = (
    Draw | Forward | Recomputation | Backward | Edit | Clear | Step | Schedule | BufferChange | Log
)
