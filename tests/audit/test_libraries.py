"""Loops of Accelerate, Lightning and the Trainer, audited as they are; five micro-batches, k = 4.

Versions: accelerate 1.15.0, transformers 5.24.0, lightning 2.6.6.
"""

import logging
import warnings

import lightning
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from helpers.audit import audit
from tests.audit.loops import SGD, kinds

GRADIENTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # of the one weight; their digits name them


class OneWeight(nn.Module):
    """Output w * x, so that the gradient of a sample's output is the sample, whatever w is."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.weight * x


class OneWeightWithLoss(OneWeight):
    def forward(self, x):
        loss = super().forward(x).mean()
        return {"loss": loss, "logits": loss.detach().reshape(1, 1)}


class Samples(Dataset):
    def __init__(self, *numbers):
        self.numbers = numbers or GRADIENTS

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        return {"x": torch.tensor(self.numbers[i])}


def each(model, batch):
    return model(batch["x"])


def with_accelerate(body, epochs=1, **settings):
    def train(model, loader):
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(4, **settings)
        )
        model, optimizer, loader = accelerator.prepare(model, SGD(model.parameters(), 1.0), loader)
        for _ in range(epochs):
            for batch in loader:
                with accelerator.accumulate(model):
                    body(accelerator, model, optimizer, batch)

    return train


def as_the_usage_page_says(accelerator, model, optimizer, batch):
    accelerator.backward(model(batch["x"]).mean())
    optimizer.step()
    optimizer.zero_grad()


def as_the_concept_guide_says(accelerator, model, optimizer, batch):
    optimizer.zero_grad()
    accelerator.backward(model(batch["x"]).mean())
    optimizer.step()


def dividing_too(accelerator, model, optimizer, batch):
    accelerator.backward(model(batch["x"]).mean() / 4)
    optimizer.step()
    optimizer.zero_grad()


def with_the_losss_own_backward(accelerator, model, optimizer, batch):
    model(batch["x"]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def audited(train, samples=None, model=None, loss=each, **options):
    return audit(train, model or OneWeight(), DataLoader(samples or Samples()), loss, 4, **options)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (as_the_usage_page_says, {"short-window-divided-by-k"}),
        (as_the_concept_guide_says, {"cleared-inside-window", "short-window-divided-by-k"}),
        (dividing_too, {"divided-twice"}),
        (with_the_losss_own_backward, {"loss-not-divided"}),
    ],
)
def test_accelerate(body, found):
    assert found <= kinds(audited(with_accelerate(body)))
    eight = Samples(*GRADIENTS[:4], *GRADIENTS[:4])
    whole = kinds(audited(with_accelerate(body), eight))
    assert whole == found - {"short-window-divided-by-k"}


def test_accelerate_carrying_windows_on():
    train = with_accelerate(as_the_usage_page_says, epochs=4, sync_with_dataloader=False)
    report = audited(train)
    assert report.ok, str(report)
    assert "carried on" in report.choices[0]


class LightningLoop(lightning.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, _):
        return self.net(batch["x"]).mean()

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=1.0)


def with_lightning(model, loader):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        accumulate_grad_batches=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like more workers
        trainer.fit(LightningLoop(model), loader)


def test_lightning_19987():
    report = audited(with_lightning)
    assert kinds(report) == {"short-window-divided-by-k"}
    assert report.updates[1].gradient.item() == 2500
    assert report.updates[1].right.item() == 10000
    assert audited(with_lightning, Samples(*GRADIENTS[:4])).ok


def test_the_trainer_divides_by_what_a_window_holds(tmp_path):
    def train(model, loader):
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            num_train_epochs=2,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
            optim="sgd",
            learning_rate=0.5,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            train_sampling_strategy="sequential",
        )
        Trainer(model=model, args=arguments, train_dataset=loader.dataset).train()

    report = audited(
        train, model=OneWeightWithLoss(), loss=lambda m, b: m(**b)["loss"].reshape(1), max_norm=1.0
    )
    assert report.ok, str(report)
    assert [len(u.micro_batches) for u in report.updates] == [4, 1, 4, 1]
