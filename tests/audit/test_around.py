"""What goes along with the updates: schedules, averages, reported losses, graphs."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from tests.audit.loops import SGD, OneWeight, audited, kinds, loop, of_updates, samples, windows

TWELVE = samples(*range(1, 13))
FOUR = samples(2, 4, 6, 8)
SIX = samples([1, 2], [3, 5], [7, 9], [4, 2], [1, 1], [5, 6])


def scheduled(every_micro_batch, length, k=4, warm_up=False):
    """A linear schedule over ``length`` steps of it."""

    def train(model, batches):
        optimizer = SGD(model.parameters(), 1.0)
        up, down = (lambda n: min(1, (n + 1) / length)), (lambda n: max(0, 1 - n / length))
        scheduler = LambdaLR(optimizer, up if warm_up else down)
        for i, x in enumerate(batches):
            (model(x).mean() / k).backward()
            if (i + 1) % k == 0:
                optimizer.step()
                optimizer.zero_grad()
                if not every_micro_batch:
                    scheduler.step()
            if every_micro_batch:
                scheduler.step()

    return train


DECAY = [1, 2 / 3, 1 / 3]


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler")
def test_lightning_1476_a_scheduler_that_steps_with_the_micro_batches():
    assert kinds(audited(scheduled(True, 6), TWELVE, 4)) == {"scheduler-every-micro-batch"}
    assert audited(scheduled(False, 6), TWELVE, 4).ok


def test_the_learning_rates_of_a_right_schedule_are_those_that_are_meant():
    assert audited(scheduled(False, 3), TWELVE, 4, learning_rates=DECAY).ok


def test_axolotl_1170_a_schedule_sized_in_micro_batches():
    report = audited(scheduled(False, 12), TWELVE, 4, learning_rates=DECAY)
    assert kinds(report) == {"scheduler-wrong-length"}
    assert of_updates(report, "scheduler-wrong-length") == (2, 3)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler")
def test_a_warm_up_that_ends_after_the_first_window():
    report = audited(scheduled(True, 8, warm_up=True), TWELVE, 4)
    assert kinds(report) == {"scheduler-every-micro-batch"}


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler")
def test_a_first_update_at_a_rate_meant_for_the_fourth():
    warm_up = [(n + 1) / 8 for n in range(8)]
    train = scheduled(True, 8, warm_up=True)
    report = audited(train, TWELVE[:4], 4, learning_rates=warm_up)
    assert kinds(report) == {"scheduler-every-micro-batch"}
    assert report.findings[0].evidence == {"first used": 0.5, "first meant": 0.125}


def averaging(every_micro_batch, decay=0.9):
    def train(model, batches):
        optimizer, average = SGD(model.parameters(), 0.1), copy.deepcopy(model)

        @torch.no_grad()
        def follow():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                a.mul_(decay).add_(p, alpha=1 - decay)

        for window in windows(batches, 2):
            for n, x in enumerate(window):
                (model(x).mean() / 2).backward()
                if n == 1:
                    optimizer.step()
                    optimizer.zero_grad()
                if every_micro_batch or n == 1:
                    follow()
        return average

    return train


def test_f5_tts_631_an_average_that_moves_with_the_micro_batches():
    options = {"averaged": lambda average: average, "decay": 0.9}
    assert kinds(audited(averaging(True), SIX, 2, **options)) == {"ema-every-micro-batch"}
    assert audited(averaging(False), SIX, 2, **options).ok


def test_an_average_that_follows_no_known_rule_is_unexplained():
    options = {"averaged": lambda average: average, "decay": 0.5}
    assert kinds(audited(averaging(False), SIX, 2, **options)) == {"unexplained"}


class FollowsItsInput(OneWeight):
    def __init__(self, count_only=False):
        super().__init__(1.0)
        self.count_only = count_only
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        with torch.no_grad():
            self.mean += 1 if self.count_only else 0.1 * (x.mean() - self.mean)
        return super().forward(x)


def dividing_by_two(model, optimizer, batches):
    for window in windows(batches, 2):
        for x in window:
            (model(x).mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_module_that_follows_its_input_moves_with_the_micro_batches():
    report = audited(loop(dividing_by_two), SIX, 2, FollowsItsInput())
    assert kinds(report) == {"ema-every-micro-batch"}
    assert audited(loop(dividing_by_two), SIX, 2, FollowsItsInput(count_only=True)).ok


def logging(value):
    """Reports what ``value`` makes of a window's losses, which are a mean each."""

    def train(model, batches):
        optimizer, logged = SGD(model.parameters(), 0.1), []
        for window in windows(batches, 4):
            losses = []
            for x in window:
                loss = model(x).mean()
                (loss / len(window)).backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
            logged.append(value(losses))
        return logged

    return train


@pytest.mark.parametrize(
    "value",
    [
        lambda losses: sum(losses) / 16,
        lambda losses: losses[-1] / 4,
        lambda losses: sum(losses),
        lambda losses: sum(losses) / 4 * 65536,
    ],
    ids=["espnet 5090", "last one scaled", "transformers 35204", "fastai 3048"],
)
def test_a_reported_loss_that_is_not_the_windows(value):
    report = audited(logging(value), FOUR, 4, OneWeight(1.0), logged=lambda losses: losses)
    assert kinds(report) == {"logged-loss-wrong"}
    (finding,) = report.findings
    assert finding.evidence["loss"] == 5


def test_the_mean_of_the_window_is_the_right_loss_to_report():
    mean = logging(lambda losses: sum(losses) / len(losses))
    assert audited(mean, FOUR, 4, OneWeight(1.0), logged=lambda losses: losses).ok


def test_a_report_without_one_loss_for_each_update_is_refused():
    with pytest.raises(ValueError, match="one loss for each update, 1, got 0"):
        audited(logging(sum), FOUR, 4, logged=lambda losses: [])


def test_torchtune_1875_one_backward_for_a_window_keeps_all_its_graphs():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            sum(model(x).mean() / 3 for x in window).backward()
            optimizer.step()
            optimizer.zero_grad()

    report = audited(loop(epoch), SIX, 3)
    assert kinds(report) == {"graph-kept-alive"}
    assert of_updates(report, "graph-kept-alive") == (1, 2)


def test_a_running_loss_that_is_not_detached_keeps_graphs():
    def epoch(model, optimizer, batches):
        total = 0
        for window in windows(batches, 3):
            for x in window:
                loss = model(x).mean() / 3
                loss.backward()
                total = total + loss
            optimizer.step()
            optimizer.zero_grad()

    assert kinds(audited(loop(epoch), SIX, 3)) == {"graph-kept-alive"}


def test_a_running_loss_that_is_detached_keeps_none():
    def epoch(model, optimizer, batches):
        total, outputs = 0, None
        for window in windows(batches, 3):
            for x in window:
                outputs = model(x)
                loss = outputs.mean() / 3
                loss.backward()
                total = total + loss.detach()
            optimizer.step()
            optimizer.zero_grad()
        return outputs

    assert audited(loop(epoch), SIX, 3).ok


def test_an_average_without_its_decay_is_refused():
    with pytest.raises(ValueError, match="averaged and decay must be given together"):
        audited(averaging(False), SIX, 2, averaged=nn.Identity())
