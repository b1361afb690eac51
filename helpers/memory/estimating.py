"""A transformer's memory and time from its shape alone, by published formulas."""

from dataclasses import dataclass

from helpers.memory.transformer import activation_formula
from helpers.samples import whole_number


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer that its memory follows from."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int

    def parameters(self, sequence: int) -> int:
        """Weights of attention, MLP, norms, and one table of tokens and one of places."""
        layer = 12 * self.hidden**2 + 13 * self.hidden
        return self.layers * layer + (self.vocabulary + sequence) * self.hidden


SHAPES = {
    "GPT-2 small": Shape(12, 768, 12, 50257),
    "GPT-2 medium": Shape(24, 1024, 16, 50257),
    "GPT-2 large": Shape(36, 1280, 20, 50257),
    "GPT-2 XL": Shape(48, 1600, 25, 50257),
}
# Bytes of a weight (with the copy that mixed precision computes with), of its gradient, and of one
# number of optimizer state.
PRECISIONS = {"float32": (4, 4, 4), "mixed": (6, 4, 4), "bfloat16": (2, 2, 2)}
STATES = {"SGD": 0, "SGD, momentum": 1, "Adam": 2}
RECOMPUTED_FORWARD = 4 / 3  # forward is a third of a step, and checkpointing runs it twice


def estimate(
    shape: Shape,
    sequence: int,
    micro_batch: int,
    precision: str = "float32",
    optimizer: str = "Adam",
    checkpointing: bool = False,
) -> dict[str, int]:
    """Bytes of weights, gradients, optimizer state and activations, while training.

    Activations follow :func:`helpers.memory.activation_formula` in half precision; in float32 all
    but the one-byte dropout masks is twice as wide. With checkpointing each layer keeps its input
    only, and one layer at a time is recomputed. Logits over the vocabulary are kept twice: as
    computed, and as float32 log-probabilities. Kernels' workspaces are left out.

    Raises:
        ValueError: a number is out of range or a name unknown; it says what is allowed.
    """
    whole_number("sequence", sequence, 1)
    whole_number("micro_batch", micro_batch, 1)
    for name, value, allowed in (
        ("precision", precision, PRECISIONS),
        ("optimizer", optimizer, STATES),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    weight, gradient, state = PRECISIONS[precision]
    parameters = shape.parameters(sequence)
    layer = activation_formula(sequence, micro_batch, shape.hidden, shape.heads)
    masks = 2 * sequence * micro_batch * shape.hidden + shape.heads * sequence**2 * micro_batch
    width = 2 if precision != "float32" else 4
    if width == 4:
        layer = 2 * layer - masks
    kept = shape.layers * layer
    if checkpointing:
        kept = shape.layers * width * sequence * micro_batch * shape.hidden + layer
    logits = sequence * micro_batch * shape.vocabulary * (width + 4)
    return {
        "weights": weight * parameters,
        "gradients": gradient * parameters,
        "optimizer state": state * STATES[optimizer] * parameters,
        "activations": kept + logits,
    }


def update_time(effective_batch: int, micro_batch: int, launch: float, sample: float) -> float:
    """Seconds of the forwards and backwards of one update: k launches, and every sample once."""
    steps = -(-effective_batch // micro_batch)
    return steps * launch + effective_batch * sample
