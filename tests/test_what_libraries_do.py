"""What lessons 04 and 05 say that libraries do, held against the libraries."""

import re
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from helpers.recorder import record
from helpers.subjects.library_loops import (
    LinearLoss,
    Settings,
    one_by_one,
    with_accelerate,
    with_lightning,
    with_trainer,
)

ROOT = Path(__file__).parents[1]
LESSON = ROOT / "notebooks" / "04_the_last_window.ipynb"
GRADIENTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)


K = 4


def settings(epochs: int = 2) -> Settings:
    return Settings(accumulation_steps=K, epochs=epochs)


LOOPS = {
    "Transformers, `Trainer`": lambda model, data: with_trainer(model, data, settings()),
    "Accelerate, `accumulate`": lambda model, data: with_accelerate(model, data, settings()),
    "Lightning, `Trainer`": lambda model, data: with_lightning(model, data, settings()),
    "Accelerate, `sync_with_dataloader=False`": lambda model, data: with_accelerate(
        model, data, settings(), sync_with_dataloader=False
    ),
    "Transformers, data of unknown length": lambda model, data: with_trainer(
        model, data, settings(), sized=False, max_steps=2
    ),
}
ROW = re.compile(r"^\| (\w+) ([\d.]+), (.+?) \| (.+?) \| ([\d.]+) \|$", re.MULTILINE)


def said() -> dict[str, tuple[str, float]]:
    """For each row of the lesson's table the version it names and the second update."""
    cells = nbformat.read(LESSON, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return {f"{lib}, {how}": (v, float(value)) for lib, v, how, _, value in ROW.findall(text)}


def test_the_lesson_speaks_of_every_loop_that_is_run_here():
    assert set(said()) == set(LOOPS)


@pytest.mark.parametrize("library", LOOPS)
def test_the_second_update_is_as_the_lesson_says(library):
    model = LinearLoss()
    with record(model) as trace:
        LOOPS[library](model, one_by_one(GRADIENTS))
    measured = [update.gradient.fingerprint for update in trace.updates]
    assert measured[0] == pytest.approx(277.75)
    named, value = said()[library]
    assert measured[1] == pytest.approx(value)
    assert version(library.split(",")[0].lower()) == named


# What lesson 05 says of Transformers' own division.


def norm_ratio(model: nn.Module, items: list[dict]) -> float:
    """The gradient norm of four micro-batches of one over that of one batch of four."""
    whole = {
        name: torch.stack([torch.as_tensor(item[name]) for item in items]) for name in items[0]
    }
    parts = [{name: values[i : i + 1] for name, values in whole.items()} for i in range(len(items))]
    norms = []
    for batches in (parts, [whole]):
        with record(model) as trace:
            with_trainer(model, batches, Settings(len(batches), lr=1e-30))
        norms.append(trace.updates[0].gradient.norm)
    return norms[0] / norms[1]


def test_transformers_causal_lm_counts_tokens_right():
    config = GPT2Config(
        vocab_size=20,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=16,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        eos_token_id=0,
        bos_token_id=0,
    )
    tokens = torch.arange(8)
    items = [
        {"input_ids": tokens, "labels": tokens.masked_fill(tokens >= n, -100)} for n in (3, 8, 4, 6)
    ]
    assert norm_ratio(GPT2LMHeadModel(config), items) == pytest.approx(1, abs=1e-4)


def test_transformers_bert_classifier_is_k_times_as_long():
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    items = [{"input_ids": torch.tensor([i, 3 * i, 5]), "labels": i % 2} for i in range(4)]
    model = BertForSequenceClassification(config)
    assert norm_ratio(model, items) == pytest.approx(4, abs=1e-3)


class Counting(nn.Module):
    """Next tokens from a table; divides by the count that it is given, if it takes one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(8, 8)

    def loss(self, input_ids, labels, count):
        kept = labels[:, 1:] != -100
        scores = self.table(input_ids[:, :-1])[kept]
        total = nn.functional.cross_entropy(scores, labels[:, 1:][kept], reduction="sum")
        return {"loss": total / (kept.sum() if count is None else count)}


class NoKeywords(Counting):
    def forward(self, input_ids, labels, num_items_in_batch=None):
        return self.loss(input_ids, labels, num_items_in_batch)


class SaysSo(NoKeywords):
    accepts_loss_kwargs = True


class TakesAny(Counting):
    def forward(self, input_ids, labels, **kwargs):
        return self.loss(input_ids, labels, kwargs.get("num_items_in_batch"))


def test_transformers_counts_tokens_only_for_models_that_take_keywords_or_say_so():
    tokens = torch.arange(8)
    items = [
        {"input_ids": tokens, "labels": tokens.masked_fill(tokens >= n, -100)} for n in (3, 8, 4, 6)
    ]
    assert norm_ratio(SaysSo(), items) == pytest.approx(1, abs=1e-4)
    assert norm_ratio(TakesAny(), items) == pytest.approx(1, abs=1e-4)
    model, norms = NoKeywords(), []
    for batches in ([[item] for item in items], [items]):
        model.zero_grad()
        for batch in batches:
            inputs = {name: torch.stack([item[name] for item in batch]) for name in batch[0]}
            (model(**inputs)["loss"] / len(batches)).backward()
        norms.append(model.table.weight.grad.norm().item())
    mean_of_means = norms[0] / norms[1]
    assert abs(mean_of_means - 1) > 0.01
    assert norm_ratio(model, items) == pytest.approx(mean_of_means, abs=1e-4)
