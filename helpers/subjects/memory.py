"""Memory and time: a transformer's from its shape alone, by published formulas; seconds measured.

What a plan for a budget is made of; :mod:`helpers.memory` measures models that exist.
"""

from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from helpers import checks
from helpers.device import same_on_every_device
from helpers.gradients import accumulate, scale_factors
from helpers.models import small_convnet

GIB = 2**30


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
RECOMPUTED = ("nothing", "attention", "layer")
ALLOWANCE = 1343 * 2**20  # the CUDA context that Hugging Face measured on a V100
# Seconds of a launch and of a sample, from the same measurements (the lesson works them out): of
# bert-large at 512 tokens, and taken here for every model and length, which the lesson says.
LAUNCH, SAMPLE = 0.0215, 0.1075


def activation_formula(
    sequence: int, batch: int, hidden: int, heads: int, recompute: str = "nothing"
) -> int:
    """Bytes that one transformer layer keeps for backward in half precision.

    s·b·h·(34 + 5·a·s/h) for a sequence of s tokens, a (micro-)batch of b, hidden size h and a
    heads. Recomputing the attention's softmax and dropout leaves 34·s·b·h, the whole layer 2·s·b·h.

    Source: V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
    arXiv 2205.05198, equation 1 and table 2. It leaves out what is small beside s·b·h.
    """
    checks.attention_heads(hidden, heads)
    checks.whole_number("sequence", sequence, 1)
    checks.whole_number("batch", batch, 1)
    checks.one_of("recompute", recompute, RECOMPUTED)
    tokens = sequence * batch * hidden
    if recompute == "layer":
        return 2 * tokens
    return 34 * tokens + (5 * heads * sequence**2 * batch if recompute == "nothing" else 0)


def estimate(
    shape: Shape,
    sequence: int,
    micro_batch: int,
    precision: str = "float32",
    optimizer: str = "Adam",
    checkpointing: bool = False,
) -> dict[str, int]:
    """Bytes of weights, gradients, optimizer state, activations and logits, while training.

    Activations follow :func:`activation_formula` in half precision; in float32 all
    but the one-byte dropout masks is twice as wide. With checkpointing each layer keeps its input
    only, and one layer at a time is recomputed. Logits over the vocabulary are kept twice: as
    computed, and as float32 log-probabilities. Kernels' workspaces are left out.

    Raises:
        ValueError: a number is out of range or a name unknown; it says what is allowed.
    """
    checks.whole_number("sequence", sequence, 1)
    checks.whole_number("micro_batch", micro_batch, 1)
    checks.one_of("precision", precision, PRECISIONS)
    checks.one_of("optimizer", optimizer, STATES)
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
        "activations": kept,
        "logits": logits,
    }


def update_time(effective_batch: int, micro_batch: int, launch: float, sample: float) -> float:
    """Seconds of the forwards and backwards of one update: k launches, and every sample once."""
    steps = -(-effective_batch // micro_batch)
    return steps * launch + effective_batch * sample


@dataclass(frozen=True)
class Split:
    """The fewest, most even micro-batches that fit a budget, what fills the memory, the cost."""

    micro_batch: int | None  # samples in the largest; None where not even one sample fits
    steps: int | None
    parts: dict[str, int]  # bytes of each part, with micro-batches of one sample if none fits
    times: dict[int, float]  # of an update, by micro-batch; one batch, nothing recomputed, is 1


def split_for(
    shape: Shape,
    sequence: int,
    effective_batch: int,
    budget: int,
    precision: str = "float32",
    optimizer: str = "Adam",
    checkpointing: bool = False,
) -> Split:
    """The split of an update into micro-batches that a budget of bytes allows.

    As few as fit, and as even as whole samples allow: 64 samples of which 9 fit make 8 of 8.

    Args:
        shape, sequence, precision, optimizer, checkpointing: as for :func:`estimate`.
        effective_batch: samples in one update.
        budget: bytes there are, ``ALLOWANCE`` included.
    """
    checks.whole_number("effective_batch", effective_batch, 1)
    checks.whole_number("budget", budget, 1)

    def parts(micro_batch: int) -> dict[str, int]:
        held = estimate(shape, sequence, micro_batch, precision, optimizer, checkpointing)
        return {**held, "allowance": ALLOWANCE}

    sizes = range(1, effective_batch + 1)
    fitting = sizes[: bisect_right(sizes, budget, key=lambda m: sum(parts(m).values()))]
    steps = -(-effective_batch // fitting[-1]) if fitting else None
    micro_batch = -(-effective_batch // steps) if steps else None
    sample = SAMPLE * (RECOMPUTED_FORWARD if checkpointing else 1)
    whole = update_time(effective_batch, effective_batch, LAUNCH, SAMPLE)
    return Split(
        micro_batch,
        steps,
        parts(micro_batch or 1),
        {
            m: update_time(effective_batch, m, LAUNCH, sample) / whole
            for m in fitting
            if m & (m - 1) == 0 or m == micro_batch
        },
    )


@same_on_every_device()
def update_seconds(x: Tensor, y: Tensor, micro_batch: int) -> float:
    """The median time of one update of the digits net over x and y in equal micro-batches.

    Measured with PyTorch's own timer, which waits for a GPU before and after and not in between.
    """
    net, loss_fn = small_convnet(x.device), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    batches = list(zip(x.split(micro_batch), y.split(micro_batch), strict=True))
    factors = scale_factors([len(part) for part, _ in batches], "samples")

    def update() -> None:
        optimizer.zero_grad()  # clear
        accumulate(net, loss_fn, batches, factors)
        optimizer.step()  # step

    timer = Timer("update()", globals={"update": update}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=0.05).median
