"""The same model and micro-batches through five training loops: by hand, and by four libraries.

Read and run at accelerate 1.15.0, lightning 2.6.6, transformers 5.24.0, keras 3.15.1 (on torch).
A library is imported by the loop that needs it, so importing this module costs nothing. Each loop
runs on the CPU and offline, prints nothing and leaves nothing behind, see :mod:`helpers.contained`.

A model is called with a micro-batch's items by name and hands back ``{"loss": a scalar}``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from helpers import checks
from helpers.contained import contained, older_objects_kept

MicroBatch = dict[str, Tensor]
Draws = Callable[[Iterable], Iterable]


@dataclass(frozen=True)
class Settings:
    """What every loop is told."""

    accumulation_steps: int
    epochs: int = 1
    lr: float = 1.0
    max_norm: float | None = None  # to clip to, once an update
    halving: bool = False  # a scheduler that halves the learning rate at every move

    def __post_init__(self):
        checks.whole_number("accumulation_steps", self.accumulation_steps, 1)
        checks.whole_number("epochs", self.epochs, 1)
        for name in ("lr", "max_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")


class LinearLoss(nn.Module):
    """Weights of 0; the loss is the mean of x · weights, so a sample's gradient is the sample."""

    def __init__(self, weights: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weights))

    def forward(self, x: Tensor, factor: Tensor | float = 1.0) -> MicroBatch:
        outputs = x @ self.weight
        return {"loss": (outputs * factor).mean(), "logits": outputs.detach()}


class CountedLoss(LinearLoss):
    """The sum over the count that Transformers' Trainer hands over: all labels of the window."""

    accepts_loss_kwargs = True  # the Trainer's own question, whether it may hand it over

    def forward(self, x: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> MicroBatch:
        outputs = x @ self.weight
        return {"loss": outputs.sum() / num_items_in_batch, "logits": outputs.detach()}


def one_by_one(samples: Iterable[float]) -> list[MicroBatch]:
    """Micro-batches for a :class:`LinearLoss` of one weight: a sample each."""
    return [{"x": torch.tensor([[float(sample)]])} for sample in samples]


def with_pytorch(
    model: nn.Module, batches: Sequence[MicroBatch], settings: Settings, flush: bool = False
) -> None:
    """The loop that many pages print: every loss divided by k, a step after each k-th batch.

    With ``flush`` also after the last batch.
    """
    optimizer, scheduler = sgd(model, settings)
    for _ in range(settings.epochs):
        for number, batch in enumerate(batches, start=1):
            (model(**batch)["loss"] / settings.accumulation_steps).backward()
            last = flush and number == len(batches)
            if number % settings.accumulation_steps == 0 or last:
                if settings.max_norm:
                    nn.utils.clip_grad_norm_(model.parameters(), settings.max_norm)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def with_accelerate(
    model: nn.Module,
    batches: Sequence[MicroBatch],
    settings: Settings,
    draws: Draws = iter,
    guarded: bool = True,
    **plugin: bool,
) -> None:
    """Accelerate's ``accumulate``; ``plugin`` goes to its ``GradientAccumulationPlugin``.

    Unless ``guarded``, gradients are clipped after every backward.
    """
    with contained():
        from accelerate import Accelerator
        from accelerate.utils import GradientAccumulationPlugin

        accumulation = GradientAccumulationPlugin(num_steps=settings.accumulation_steps, **plugin)
        accelerator = Accelerator(gradient_accumulation_plugin=accumulation, cpu=True)
        model, optimizer, scheduler, loader = accelerator.prepare(
            model, *sgd(model, settings), DataLoader(batches, batch_size=None)
        )
        for _ in range(settings.epochs):
            for batch in draws(loader):
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch)["loss"])
                    if settings.max_norm and (accelerator.sync_gradients or not guarded):
                        accelerator.clip_grad_norm_(model.parameters(), settings.max_norm)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()


def lightning_module(model: nn.Module, settings: Settings, frequency: int = 1) -> Any:
    """A LightningModule whose ``net`` is the model; ``frequency`` is that of its scheduler."""
    with contained():
        import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model

        def training_step(self, batch: MicroBatch, _: int) -> Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> dict:
            optimizer, scheduler = sgd(self, settings)
            moves = {"scheduler": scheduler, "interval": "step", "frequency": frequency}
            return {"optimizer": optimizer, "lr_scheduler": moves}

    return Module()


def with_lightning(
    model: nn.Module, batches: Sequence[MicroBatch], settings: Settings, frequency: int = 1
) -> None:
    """Lightning's ``Trainer``; ``model`` may be a LightningModule already."""
    with contained() as folder:
        import lightning

        if not isinstance(model, lightning.LightningModule):
            model = lightning_module(model, settings, frequency)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=settings.epochs,
            accumulate_grad_batches=settings.accumulation_steps,
            gradient_clip_val=settings.max_norm,
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, DataLoader(batches, batch_size=None))


def with_trainer(
    model: nn.Module,
    batches: Sequence[MicroBatch],
    settings: Settings,
    sized: bool = True,
    **options: Any,
) -> None:
    """Transformers' ``Trainer``; ``options`` go to its ``TrainingArguments``.

    Unless ``sized``, it is not told how long the data are, and needs the option ``max_steps``.
    """
    with contained() as folder:
        from transformers import PrinterCallback, Trainer, TrainingArguments

        arguments = {
            "num_train_epochs": settings.epochs,
            "gradient_accumulation_steps": settings.accumulation_steps,
            "max_grad_norm": settings.max_norm or 0.0,
            "per_device_train_batch_size": 1,  # an item of the data is a micro-batch already
            "train_sampling_strategy": "sequential",
            "output_dir": str(folder),
            "use_cpu": True,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "dataloader_pin_memory": False,
        }
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**arguments | options),
            train_dataset=_Items(batches) if sized else _Stream(batches),
            data_collator=lambda items: items[0],
            optimizers=sgd(model, settings),
        )
        trainer.remove_callback(PrinterCallback)
        with older_objects_kept():
            trainer.train()


def with_keras(model: nn.Module, batches: Sequence[MicroBatch], settings: Settings) -> None:
    """Keras' ``fit`` on torch, with the model in its ``TorchModuleWrapper``."""
    with contained():
        import keras

        if keras.backend.backend() != "torch":
            raise ValueError(f"keras must run on torch, got {keras.backend.backend()!r}")
        schedule = keras.optimizers.schedules.ExponentialDecay(settings.lr, 1, 0.5)
        optimizer = keras.optimizers.SGD(
            schedule if settings.halving else settings.lr,
            # Keras takes no 1 here, and None means every batch.
            gradient_accumulation_steps=None
            if settings.accumulation_steps == 1
            else settings.accumulation_steps,
            global_clipnorm=settings.max_norm,
        )

        class Whole(keras.Model):
            def __init__(self):
                super().__init__()
                self.net = keras.layers.TorchModuleWrapper(model)

            def call(self, batch: MicroBatch) -> Tensor:
                return self.net(**batch)["loss"]

        whole = Whole()
        whole.compile(optimizer=announced(optimizer), loss=lambda _, loss: loss, run_eagerly=True)
        pairs = [(batch, torch.zeros(1)) for batch in batches]
        whole.fit(
            DataLoader(pairs, batch_size=None), epochs=settings.epochs, shuffle=False, verbose=0
        )


def announced(optimizer: Any) -> Any:
    """The Keras optimizer, each update of which looks to PyTorch's hooks like an optimizer step.

    Keras changes weights by itself, so whoever watches torch's optimizers sees nothing of it. Here
    the averaged gradient is put into ``.grad`` and the update made by the ``step`` of an optimizer
    of torch, whose learning rate is the one that Keras uses.
    """
    update = optimizer._backend_update_step

    class Announced(torch.optim.Optimizer):
        def step(self, closure: None = None) -> None:
            update(*self.arguments)

    def announce(gradients: Sequence[Tensor], variables: Sequence[Any], lr: Tensor) -> None:
        shell = Announced([variable.value for variable in variables], {"lr": float(lr)})
        shell.arguments = gradients, variables, lr
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.value.grad = gradient
        shell.step()

    optimizer._backend_update_step = announce
    return optimizer


def sgd(model: nn.Module, settings: Settings) -> tuple[Any, Any]:
    """Plain SGD and its scheduler: the learning rate halved at every move, or left alone."""
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    factor = 0.5 if settings.halving else 1.0
    return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=factor)


class _Items(Dataset):
    def __init__(self, items: Iterable):
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> MicroBatch:
        return self.items[i]


class _Stream(IterableDataset):
    def __init__(self, items: Iterable):
        self.items = items

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.items)
