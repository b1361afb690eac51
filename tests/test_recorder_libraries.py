"""The recorder sees the loops that libraries drive: the same five micro-gradients, k = 4.

Versions: accelerate 1.15.0, transformers 5.24.0, lightning 2.6.6.
"""

import logging
import warnings

import lightning
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from helpers.recorder import Backward, Clear, Draw, Forward, Trace, record

GRADIENTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # of the one weight; their digits name them


class OneWeight(nn.Module):
    """Output w * x, so that the gradient of a sample's output is the sample, whatever w is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class OneWeightWithLoss(OneWeight):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        loss = super().forward(x).mean()
        return {"loss": loss, "logits": loss.detach().reshape(1, 1)}


class Samples(Dataset):
    def __len__(self) -> int:
        return len(GRADIENTS)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": torch.tensor(GRADIENTS[i])}


class LightningLoop(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = OneWeight()

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        return self.net(batch["x"]).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def with_accelerate(model: nn.Module, trace: Trace, epochs: int = 1) -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Samples()))
    for _ in range(epochs):
        for batch in trace.draws(loader):
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["x"]).mean())
                optimizer.step()
                optimizer.zero_grad()


def with_lightning(module: lightning.LightningModule, **settings: float) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        accumulate_grad_batches=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like more workers
        trainer.fit(module, DataLoader(Samples()))


def with_trainer(model: nn.Module, folder: str, **settings: float) -> None:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=settings.pop("max_grad_norm", 0.0),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
        **settings,
    )
    Trainer(model=model, args=arguments, train_dataset=Samples()).train()


def windows(trace: Trace) -> list[tuple[tuple[int, ...], float]]:
    return [(update.backwards, update.gradient.norm) for update in trace.updates]


def test_accelerate_divides_its_short_last_window_by_k():
    model = OneWeight()
    with record(model) as trace:
        with_accelerate(model, trace)
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 2500.0)]


def test_accelerate_starts_each_epoch_with_an_empty_window():
    model = OneWeight()
    with record(model) as trace:
        with_accelerate(model, trace, epochs=2)
    assert windows(trace)[2:] == [((6, 7, 8, 9), 277.75), ((10,), 2500.0)]


def test_accelerates_step_and_clear_do_nothing_inside_a_window():
    model = OneWeight()
    with record(model) as trace:
        with_accelerate(model, trace)
    kinds = [type(event).__name__ for event in trace.events]
    window = ["Draw", "Forward", "Backward"]
    assert kinds == window * 4 + ["Step", "Clear"] + window + ["Step", "Clear"]


def test_a_loader_prepared_by_accelerate_is_recorded_draw_by_draw():
    model = OneWeight()
    with record(model) as trace:
        with_accelerate(model, trace, epochs=2)
    draws = [(e.epoch, e.position) for e in trace.events if isinstance(e, Draw)]
    assert draws == [(epoch, position) for epoch in (1, 2) for position in range(1, 6)]


def test_lightning_divides_its_short_last_window_by_k():
    module = LightningLoop()
    with record(module) as trace:
        with_lightning(module)
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 2500.0)]


def test_lightning_never_calls_the_module_it_trains_but_its_backwards_are_seen():
    module = LightningLoop()
    with record(module) as trace:
        with_lightning(module)
    assert not [e for e in trace.events if isinstance(e, Forward)]
    assert [e.added.norm for e in trace.events if isinstance(e, Backward)] == [
        0.25,
        2.5,
        25.0,
        250.0,
        2500.0,
    ]


def test_recording_the_network_inside_shows_lightnings_forwards():
    module = LightningLoop()
    with record(module.net) as trace:
        with_lightning(module)
    assert [e.forwards for e in trace.events if isinstance(e, Backward)] == [
        (1,),
        (2,),
        (3,),
        (4,),
        (5,),
    ]


def test_lightnings_clipping_inside_the_closure_shows_before_and_after():
    module = LightningLoop()
    with record(module) as trace:
        with_lightning(module, gradient_clip_val=1000.0)
    last = trace.updates[-1]
    assert (last.before.norm, last.gradient.norm) == (2500.0, pytest.approx(1000.0))


def test_lightning_leaves_the_last_gradient_in_place_but_used():
    module = LightningLoop()
    with record(module) as trace:
        with_lightning(module)
    assert (trace.pending.backwards, trace.pending.used) == ((5,), True)


def test_trainer_divides_its_short_last_window_by_its_length(tmp_path):
    model = OneWeightWithLoss()
    with record(model) as trace:
        with_trainer(model, str(tmp_path))
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 10000.0)]


def test_trainers_clipping_shows_before_and_after(tmp_path):
    model = OneWeightWithLoss()
    with record(model) as trace:
        with_trainer(model, str(tmp_path), max_grad_norm=1000.0)
    last = trace.updates[-1]
    assert (last.before.norm, last.gradient.norm) == (10000.0, pytest.approx(1000.0))


def test_trainers_losses_are_known_because_its_model_returns_them(tmp_path):
    model = OneWeightWithLoss()
    with record(model) as trace:
        with_trainer(model, str(tmp_path))
    assert [update.losses for update in trace.updates] == [(0.0,) * 4, (-2777500.0,)]


@pytest.mark.parametrize("library", ["accelerate", "lightning", "trainer"])
def test_a_librarys_result_is_the_same_with_the_recorder_off(library, tmp_path):
    def run(model: nn.Module, trace: Trace) -> float:
        if library == "accelerate":
            with_accelerate(model, trace)
        elif library == "lightning":
            with_lightning(model)
        else:
            with_trainer(model, str(tmp_path))
        return sum(p.item() for p in model.parameters())

    kind = {"accelerate": OneWeight, "lightning": LightningLoop, "trainer": OneWeightWithLoss}
    watched, alone = kind[library](), kind[library]()
    with record(watched) as trace:
        moved = run(watched, trace)
    assert moved == run(alone, Trace(alone, 0))


def test_every_library_clears_only_what_was_used(tmp_path):
    runs = {}
    for name, model in {"a": OneWeight(), "l": LightningLoop(), "t": OneWeightWithLoss()}.items():
        with record(model) as runs[name]:
            if name == "a":
                with_accelerate(model, runs[name])
            elif name == "l":
                with_lightning(model)
            else:
                with_trainer(model, str(tmp_path))
    for trace in runs.values():
        assert all(event.used for event in trace.events if isinstance(event, Clear))
