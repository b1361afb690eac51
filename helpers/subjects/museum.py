"""Lesson 11's museum: each loop with the data that give it away, and the kinds that it must get."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from helpers.audit import Report, audit
from helpers.device import same_on_every_device
from helpers.models import encoder, micro_batch_model, net_with
from helpers.samples import random_numbers
from helpers.subjects import museum_data as data
from helpers.subjects import museum_loops as loops
from helpers.subjects.museum_loops import IGNORED, K


def micro_batches(*numbers: Sequence[float]) -> list[Tensor]:
    """A micro-batch for each list of numbers; a number is a sample, and its gradient."""
    return [torch.tensor(each, dtype=torch.float64).unsqueeze(1) for each in numbers]


def each(model: nn.Module, x: Tensor) -> Tensor:
    """The loss of each sample: what the model puts out for it."""
    return model(x).flatten()


def each_target(model: nn.Module, x: Tensor) -> Tensor:
    """The same, without the targets that are ignored."""
    return model(x)[x != IGNORED]


SIX = micro_batches([1, 2], [3, 5], [7, 9], [4, 2], [8, 1], [2, 6])
SEVEN = micro_batches([1], [2], [4], [8], [16], [32], [64])
RAGGED = micro_batches([1] * 4, [1] * 4, [7] * 2, [2], [3, 5, 1], [6, 4])
TOKENS = micro_batches([4, 4] + [IGNORED] * 4, [1] * 6, [2, 3, 4])
ONE_EMPTY = micro_batches([1, 2, 3], [IGNORED] * 3, [4, 5, 9])
ALL_EMPTY = micro_batches([1], [2], [3], [IGNORED], [IGNORED] * 2, [IGNORED])
TURNING = [torch.tensor([v], dtype=torch.float64) for v in ([3.0, 0.0], [0.0, 6.0], [6.0, 3.0])]
FEATURES = list(random_numbers(18, 4).split(3))
NARROW = [torch.tensor([[v]], dtype=torch.bfloat16) for v in [1.0] + [2.0**-8] * 256]


def line() -> nn.Module:
    """One weight at 0, in float64; its output for x is the weight times x."""
    return micro_batch_model().double()


def narrow() -> nn.Module:
    """The same in bfloat16."""
    return micro_batch_model().bfloat16()


REPORTS = {
    "nanogpt_168": "karpathy/nanoGPT #168",
    "rf_detr_1503": "roboflow/rf-detr #1503",
    "deepmtp_34": "diliadis/DeepMTP #34",
    "transformers_24725": "huggingface/transformers #24725",
    "transformers_46204": "huggingface/transformers #46204",
    "sparseml_135": "neuralmagic/sparseml #135",
    "torchseq_8": "tomhosking/torchseq #8",
    "transformers_22082": "huggingface/transformers #22082",
    "lightning_19987": "Lightning-AI/pytorch-lightning #19987",
    "llms_from_scratch_299": "rasbt/LLMs-from-scratch #299",
    "qwen3_tts_326": "QwenLM/Qwen3-TTS #326",
    "mmf_521": "facebookresearch/mmf #521",
    "accelerate_616": "huggingface/accelerate #616",
    "transformers_986": "huggingface/transformers #986",
    "accelerate_641": "huggingface/accelerate #641",
    "lightning_1476": "Lightning-AI/pytorch-lightning #1476",
    "axolotl_1170": "axolotl-ai-cloud/axolotl #1170",
    "f5_tts_631": "SWivid/F5-TTS #631",
    "espnet_5090": "espnet/espnet #5090",
    "torchtune_1875": "meta-pytorch/torchtune #1875",
    "pytorch_116349": "pytorch/pytorch #116349",
    "nanochat_623": "karpathy/nanochat #623",
    "transformers_5605": "huggingface/transformers #5605",
    "sentence_transformers_2916": "huggingface/sentence-transformers #2916",
    "deepspeed_2768": "deepspeedai/DeepSpeed #2768",
}


@dataclass(frozen=True)
class Exhibit:
    """A loop, what it is audited on, and what the audit must say."""

    loop: Callable[[nn.Module, Sequence[Tensor]], Any]
    kinds: tuple[str, ...]
    batches: Sequence[Tensor]
    model: Callable[[], nn.Module] = line
    loss: Callable[[nn.Module, Tensor], Tensor] = each
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = K

    @property
    def report(self) -> str:
        """Where it was reported; empty where it was not."""
        return REPORTS.get(self.name, "")

    @property
    def name(self) -> str:
        """The repository and the number of the report, joined by underscores."""
        return self.loop.__name__

    def audited(self) -> Report:
        """What the audit says of the loop; PyTorch's own warnings are kept to themselves."""
        with warnings.catch_warnings(), same_on_every_device():
            warnings.simplefilter("ignore")  # of a scheduler that moves before the first update
            return audit(
                self.loop, self.model(), self.batches, self.loss, self.steps, **self.options
            )


def _logged(log: list[float]) -> list[float]:
    return log


def _averaged(average: nn.Module) -> nn.Module:
    return average


ROOMS: dict[str, tuple[Exhibit, ...]] = {
    "scale": (
        Exhibit(loops.nanogpt_168, ("loss-not-divided",), SIX),
        Exhibit(loops.rf_detr_1503, ("divided-twice",), SIX),
        Exhibit(loops.deepmtp_34, ("mean-of-means",), RAGGED),
        Exhibit(loops.transformers_24725, ("mean-of-means",), TOKENS, loss=each_target),
        Exhibit(loops.transformers_46204, ("wrong-divisor",), RAGGED),
        Exhibit(loops.sparseml_135, ("wrong-divisor",), SIX),
    ),
    "windows": (
        Exhibit(loops.torchseq_8, ("window-dropped",), SEVEN),
        Exhibit(loops.transformers_22082, ("window-leaked",), SEVEN),
        Exhibit(loops.lightning_19987, ("short-window-divided-by-k",), SEVEN),
        Exhibit(loops.llms_from_scratch_299, ("boundary-off-by-one",), SEVEN),
        Exhibit(loops.qwen3_tts_326, ("stepped-every-micro-batch",), SEVEN[:6]),
        Exhibit(loops.mmf_521, ("window-dropped",), SEVEN),
    ),
    "clear": (
        Exhibit(loops.accelerate_616, ("cleared-inside-window",), SEVEN[:6]),
        Exhibit(loops.never_clears, ("never-cleared",), SEVEN[:6]),
        Exhibit(loops.validates, ("cleared-inside-window",), SEVEN[:6]),
    ),
    "once a window": (
        Exhibit(
            loops.transformers_986,
            ("clipped-every-micro-batch",),
            TURNING,
            lambda: micro_batch_model(2).double(),
        ),
        Exhibit(loops.accelerate_641, ("scaler-inside-window",), SIX),
        Exhibit(loops.lightning_1476, ("scheduler-every-micro-batch",), SIX),
        Exhibit(
            loops.axolotl_1170,
            ("scheduler-wrong-length",),
            SIX,
            options={"learning_rates": (0.1, 0.05)},
        ),
        Exhibit(
            loops.f5_tts_631,
            ("ema-every-micro-batch",),
            SIX,
            options={"averaged": _averaged, "decay": 0.9},
        ),
        Exhibit(loops.espnet_5090, ("logged-loss-wrong",), SIX, options={"logged": _logged}),
        Exhibit(loops.torchtune_1875, ("graph-kept-alive",), SIX),
    ),
    "data and randomness": (
        Exhibit(data.pytorch_116349, ("nan-micro-batch",), ONE_EMPTY, loss=each_target),
        Exhibit(data.nanochat_623, ("empty-window-stepped",), ALL_EMPTY, loss=each_target),
        Exhibit(data.transformers_5605, ("order-or-data-differ",), SIX + SIX[:2]),
        Exhibit(
            data.sentence_transformers_2916,
            ("not-a-mean-of-elements",),
            FEATURES,
            lambda: encoder(0.0),
            data.in_batch,
        ),
    ),
}
# One loop, right for any data that it can be right for, on what no loop makes equal.
CANNOT_BE_EQUAL = (
    Exhibit(data.right_loop, ("batch-statistics",), FEATURES, lambda: net_with(nn.BatchNorm1d(8))),
    Exhibit(data.right_loop, ("random-layers",), FEATURES, lambda: net_with(nn.Dropout(0.5))),
    Exhibit(
        data.deepspeed_2768,
        ("low-precision-accumulator",),
        NARROW,
        narrow,
        options={"reduction": "sum"},
        steps=len(NARROW),
    ),
)
EXHIBITS = {exhibit.name: exhibit for room in ROOMS.values() for exhibit in room}
