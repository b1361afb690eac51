"""What lessons 04 and 05 say that libraries do, held against the libraries."""

import logging
import re
import warnings
from importlib.metadata import version
from pathlib import Path

import lightning
import nbformat
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from helpers.recorder import record

ROOT = Path(__file__).parents[1]
LESSON = ROOT / "notebooks" / "04_the_last_window.ipynb"
GRADIENTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)


class OneWeight(nn.Module):
    """Loss w * x: the gradient of a sample is the sample, whatever w is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        loss = (self.weight * x).mean()
        return {"loss": loss, "logits": loss.detach().reshape(1, 1)}


class Samples(Dataset):
    def __len__(self) -> int:
        return len(GRADIENTS)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": torch.tensor(GRADIENTS[i])}


class Stream(IterableDataset):
    """The same samples, of a length that nobody can ask for."""

    def __iter__(self):
        return ({"x": torch.tensor(c)} for c in GRADIENTS)


class LightningLoop(lightning.LightningModule):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        return self.net(batch["x"])["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def accelerate(model: nn.Module, **plugin: bool) -> None:
    accumulation = GradientAccumulationPlugin(num_steps=4, **plugin)
    accelerator = Accelerator(gradient_accumulation_plugin=accumulation, cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Samples()))
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["x"])["loss"])
                optimizer.step()
                optimizer.zero_grad()


def lightning_trainer(model: nn.Module) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    off = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, accumulate_grad_batches=4, **off)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like more workers
        trainer.fit(LightningLoop(model), DataLoader(Samples()))


def transformers_trainer(model: nn.Module, folder: str, data: Dataset, **length: int) -> None:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
        **length,
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()


LOOPS = {
    "Transformers, `Trainer`": lambda model, folder: transformers_trainer(
        model, folder, Samples(), num_train_epochs=2
    ),
    "Accelerate, `accumulate`": lambda model, folder: accelerate(model),
    "Lightning, `Trainer`": lambda model, folder: lightning_trainer(model),
    "Accelerate, `sync_with_dataloader=False`": lambda model, folder: accelerate(
        model, sync_with_dataloader=False
    ),
    "Transformers, data of unknown length": lambda model, folder: transformers_trainer(
        model, folder, Stream(), max_steps=2
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
def test_the_second_update_is_as_the_lesson_says(library, tmp_path):
    model = OneWeight()
    with record(model) as trace:
        LOOPS[library](model, str(tmp_path))
    measured = [update.gradient.fingerprint for update in trace.updates]
    assert measured[0] == pytest.approx(277.75)
    named, value = said()[library]
    assert measured[1] == pytest.approx(value)
    assert version(library.split(",")[0].lower()) == named


# What lesson 05 says of Transformers' own division.


class Items(Dataset):
    def __init__(self, items: list[dict]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> dict:
        return self.items[i]


def norm_ratio(model: nn.Module, items: list[dict], folder: str) -> float:
    """The gradient norm of four micro-batches of one over that of one batch of four."""
    norms = []
    for batch_size, k in ((1, 4), (4, 1)):
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=1,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=k,
            optim="sgd",
            learning_rate=0.0,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            train_sampling_strategy="sequential",
        )
        with record(model) as trace:
            Trainer(model=model, args=arguments, train_dataset=Items(items)).train()
        norms.append(trace.updates[0].gradient.norm)
    return norms[0] / norms[1]


def test_transformers_causal_lm_counts_tokens_right(tmp_path):
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
    assert norm_ratio(GPT2LMHeadModel(config), items, str(tmp_path)) == pytest.approx(1, abs=1e-4)


def test_transformers_bert_classifier_is_k_times_as_long(tmp_path):
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
    assert norm_ratio(model, items, str(tmp_path)) == pytest.approx(4, abs=1e-3)


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


def test_transformers_counts_tokens_only_for_models_that_take_keywords_or_say_so(tmp_path):
    tokens = torch.arange(8)
    items = [
        {"input_ids": tokens, "labels": tokens.masked_fill(tokens >= n, -100)} for n in (3, 8, 4, 6)
    ]
    assert norm_ratio(SaysSo(), items, str(tmp_path)) == pytest.approx(1, abs=1e-4)
    assert norm_ratio(TakesAny(), items, str(tmp_path)) == pytest.approx(1, abs=1e-4)
    model, norms = NoKeywords(), []
    for batches in ([[item] for item in items], [items]):
        model.zero_grad()
        for batch in batches:
            inputs = {name: torch.stack([item[name] for item in batch]) for name in batch[0]}
            (model(**inputs)["loss"] / len(batches)).backward()
        norms.append(model.table.weight.grad.norm().item())
    mean_of_means = norms[0] / norms[1]
    assert abs(mean_of_means - 1) > 0.01
    assert norm_ratio(model, items, str(tmp_path)) == pytest.approx(mean_of_means, abs=1e-4)
