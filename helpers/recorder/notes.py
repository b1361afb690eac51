"""What the hooks write down while the loop runs: as little as can be, numbers come later."""

from dataclasses import dataclass, field

from torch import Tensor

from helpers.recorder.ledger import Ledger


@dataclass(slots=True)
class Drawn:
    epoch: int
    position: int


@dataclass(slots=True)
class Called:
    """The model was called; its loss is filled in when it returns."""

    samples: int | None
    with_grad: bool
    training: bool
    loss: Tensor | None = None


@dataclass(slots=True)
class Recomputed:
    pass


@dataclass(slots=True)
class Arrived:
    """Gradients of a backward were added to ``.grad``; one backward may arrive in several parts."""

    backward: int
    forwards: tuple[int, ...]
    # For each parameter the row of what was added (None: not seen) and of ``.grad`` after it.
    rows: dict[int, tuple[int | None, int]]


@dataclass(slots=True)
class Looked:
    """``.grad`` was not what was last seen."""

    row: int | None  # None where every .grad is None
    absent: tuple[bool, ...]
    # Parameters whose .grad is another tensor than before: whose that tensor was, None if nobody's.
    replaced: dict[int, int | None]
    first: bool  # when the recording began


@dataclass(slots=True)
class StepBegan:
    pass


@dataclass(slots=True)
class Stepped:
    optimizer: int
    owned: tuple[int, ...]
    learning_rates: tuple[float, ...]
    row: int  # how far the weights moved


@dataclass(slots=True)
class Scheduled:
    optimizer: int
    old: tuple[float, ...]
    new: tuple[float, ...]


@dataclass(slots=True)
class BuffersSeen:
    row: int
    in_forward: bool


@dataclass(slots=True)
class Logged:
    values: dict[str, float | Tensor]


Note = (
    Drawn
    | Called
    | Recomputed
    | Arrived
    | Looked
    | StepBegan
    | Stepped
    | Scheduled
    | BuffersSeen
    | Logged
)


@dataclass(frozen=True)
class Notes:
    """All that was written down, and what is needed to read it."""

    names: tuple[str, ...]  # of the trainable parameters
    buffer_names: tuple[str, ...]
    gradients: Ledger
    buffers: Ledger
    written: list[Note] = field(default_factory=list)

    def write(self, note: Note) -> None:
        self.written.append(note)
