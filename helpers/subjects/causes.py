"""What may keep a window from being a large batch: each cause, its choices, and the net with it.

Behaviour hangs on the members below, never on how they are worded.
"""

from dataclasses import asdict, dataclass, fields
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

from helpers import checks
from helpers.device import same_on_every_device

FEATURES, HIDDEN, OUTPUTS = 4, 8, 3
BN_MOMENTUM = 0.1


class Normalisation(StrEnum):
    NONE = "none"
    BATCH = "BatchNorm"
    BATCH_CORRECTED = "BatchNorm, momentum corrected"
    BATCH_FROZEN = "BatchNorm, frozen"
    GROUP = "GroupNorm"


class Checkpointing(StrEnum):
    OFF = "off"
    ON = "on"
    ON_CORRECTED = "on, momentum corrected"


class Objective(StrEnum):
    OWN = "each sample's own"
    IN_BATCH = "in-batch negatives"
    CACHED = "negatives, cached embeddings"


class Dropout(StrEnum):
    OFF = "off"
    OTHER_MASKS = "other masks"
    SAME_MASKS = "the same masks"


class Clipping(StrEnum):
    OFF = "off"
    ONCE = "once a window"
    EACH = "each micro-batch"


class Often(StrEnum):
    ONCE = "once a window"
    EACH = "each micro-batch"


class LossScale(StrEnum):
    HELD = "held"
    GROWS = "grows in the window"


class Accumulator(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


# What a run on whole batches has in the place of a choice, where that is not the choice itself.
OF_THE_FULL_BATCH = {
    Normalisation.BATCH_CORRECTED: Normalisation.BATCH,
    Checkpointing.ON: Checkpointing.OFF,
    Checkpointing.ON_CORRECTED: Checkpointing.OFF,
    Objective.CACHED: Objective.IN_BATCH,
    Dropout.OTHER_MASKS: Dropout.SAME_MASKS,
    Clipping.EACH: Clipping.ONCE,
    Often.EACH: Often.ONCE,
    LossScale.GROWS: LossScale.HELD,
    Accumulator.BFLOAT16: Accumulator.FLOAT32,
}


@dataclass(frozen=True)
class Causes:
    """What the net has and what its loop does; a choice may be given by its wording too.

    Raises:
        ValueError: a cause is none of its choices.
    """

    normalisation: Normalisation = Normalisation.NONE
    checkpointing: Checkpointing = Checkpointing.OFF  # of the hidden layer
    loss: Objective = Objective.OWN
    dropout: Dropout = Dropout.OFF
    clipping: Clipping = Clipping.OFF
    stepping: Often = Often.ONCE  # the optimizer, and with it momentum and weight decay
    schedule: Often = Often.ONCE
    averaging: Often = Often.ONCE  # of the weights, EMA
    loss_scale: LossScale = LossScale.HELD
    accumulator: Accumulator = Accumulator.FLOAT32

    def __post_init__(self):
        for name, value in asdict(self).items():
            checks.one_of(name, value, CHOICES[name])
            object.__setattr__(self, name, CHOICES[name](value))

    def without_effect(self, accumulation_steps: int) -> tuple[str, ...]:
        """Which causes are switched on and yet take the run nowhere, by name.

        Either the whole-batch run has the same and no sample sees another, or nothing in the
        window follows from the choice, as a scheduler stepped once in a window of one.
        """
        several = accumulation_steps > 1
        moving = self.normalisation in (Normalisation.BATCH, Normalisation.BATCH_CORRECTED)
        once = self.stepping is Often.ONCE
        effective = {
            "normalisation": moving and several,
            # Each forward moves running statistics; corrected for two, one alone is off.
            "checkpointing": moving
            and (self.checkpointing is Checkpointing.ON or self.loss is Objective.CACHED),
            "loss": several if self.loss is Objective.IN_BATCH else moving,
            "dropout": self.dropout is Dropout.OTHER_MASKS,
            "clipping": several and self.clipping is Clipping.EACH,
            "stepping": several,
            "schedule": several,
            "averaging": several,
            # A window of one step each is unscaled by its own scale, if nothing clips before.
            "loss_scale": several and (once or self.clipping is Clipping.EACH),
            "accumulator": True,
        }
        on = [name for name in CHOICES if getattr(self, name) is not next(iter(CHOICES[name]))]
        return tuple(name for name in on if not effective[name])

    @property
    def of_the_full_batch(self) -> "Causes":
        """The same net and recipe as a run on whole batches has them."""
        chosen = {name: getattr(self, name) for name in CHOICES}
        return Causes(**{n: of_the_full_batch(choice) for n, choice in chosen.items()})


# For each cause its choices, the first being the cause taken away.
CHOICES: dict[str, type[StrEnum]] = {field.name: field.type for field in fields(Causes)}


def of_the_full_batch(choice: StrEnum) -> StrEnum:
    """What a run on whole batches has in the place of a choice."""
    # Members of two kinds are equal where they are worded alike.
    counterparts = (full for own, full in OF_THE_FULL_BATCH.items() if own is choice)
    return next(counterparts, choice)


def corrected_momentum(momentum: float, times: int) -> float:
    """The momentum with which ``times`` moves of a running average go as far as one would."""
    checks.whole_number("times", times, 1)
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
    return 1 - (1 - momentum) ** (1 / times)


class SmallNet(nn.Module):
    """4 features to 8 hidden to 3 outputs; its normalisation and checkpointing by the causes."""

    def __init__(self, causes: Causes, accumulation_steps: int):
        super().__init__()
        with same_on_every_device(seed=0):
            self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)
        corrected = causes.normalisation is Normalisation.BATCH_CORRECTED
        moves = accumulation_steps if corrected else 1
        moves *= 2 if causes.checkpointing is Checkpointing.ON_CORRECTED else 1
        self.norm: nn.Module = nn.Identity()
        if causes.normalisation is Normalisation.GROUP:
            self.norm = nn.GroupNorm(2, HIDDEN)
        elif causes.normalisation is not Normalisation.NONE:
            self.norm = nn.BatchNorm1d(HIDDEN, momentum=corrected_momentum(BN_MOMENTUM, moves))
        self.norm.train(causes.normalisation is not Normalisation.BATCH_FROZEN)
        self.checkpointing = causes.checkpointing is not Checkpointing.OFF

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Outputs (samples, 3) for inputs (samples, 4) and factors (samples, 8) for dropout."""
        if self.checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(self.hidden, x, use_reentrant=False)
        else:
            hidden = self.hidden(x)
        return self.last(hidden * mask)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.first(x)))


def own_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean squared error: each sample's term depends on that sample alone."""
    return mse_loss(outputs, y)


def contrastive_loss(outputs: Tensor, partners: Tensor) -> Tensor:
    """Cross entropy of picking each output's own partner among all that are in the batch."""
    return cross_entropy(outputs @ partners.T, torch.arange(len(partners), device=outputs.device))
