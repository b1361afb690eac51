"""Public reports that take more than one of the short loops, or fit no other family."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers.audit import audit
from tests.audit.loops import SGD, OneWeight, audited, kinds, loop, samples, windows


def test_yolov5_464_a_mean_times_the_batch_size_is_a_sum():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            for x in window:
                (model(x).mean() * len(x)).backward()
            optimizer.step()
            optimizer.zero_grad()

    report = audited(loop(epoch), samples([1, 2], [3, 4, 5], [6, 7], [8, 9, 1]), 3)
    assert report.ok
    assert "sum" in report.choices[0]


def test_sparseml_135_a_mean_times_the_world_size():
    def epoch(model, optimizer, batches):
        for x in batches:
            (model(x).mean() * 2 / 3).backward()
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), samples([2, 2], [4, 4], [3, 5]), 3)
    assert kinds(report) == {"wrong-divisor"}
    (update,) = report.updates
    assert (update.gradient.item(), update.right.item()) == pytest.approx((20 / 3, 10 / 3))


class Logits(nn.Module):
    """One weight b, logits (b, 0) for every token."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, labels):
        return torch.stack((self.bias, torch.zeros_like(self.bias))).expand(len(labels), 2)


TOKENS = [torch.tensor([1, 1, -100, -100, -100, -100]), torch.tensor([0] * 6)]


def entropies(model, labels):
    return F.cross_entropy(model(labels), labels, reduction="none")[labels != -100]


def test_transformers_24725_means_over_the_tokens_of_each_row():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for labels in batches:
            (F.cross_entropy(model(labels), labels) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    report = audit(train, Logits(), TOKENS, entropies, 2)
    assert kinds(report) == {"mean-of-means"}
    (update,) = report.updates
    assert (update.gradient.item(), update.right.item()) == pytest.approx((0, -0.25))


def test_detr_267_boxes_divided_by_those_of_their_micro_batch():
    """One loss for each box: the elements are boxes, of which images have one or three."""

    def epoch(model, optimizer, batches):
        for boxes in batches:
            (model(boxes).sum() / len(boxes) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), samples([4], [1, 1, 1]), 2)
    assert kinds(report) == {"mean-of-means"}
    (update,) = report.updates
    assert (update.gradient.item(), update.right.item()) == (2.5, 1.75)


def test_lightning_591_gradients_left_by_another_networks_loss():
    """The model discriminates: what the generator's backward leaves in it comes from other data."""

    def train(model, batches):
        generator = OneWeight(5.0)
        optimizer = SGD(model.parameters(), 0.1)
        for x in batches:
            model(generator(torch.ones(1, dtype=torch.float64))).sum().backward()
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    report = audited(train, samples(1, 2), 1)
    assert "order-or-data-differ" in kinds(report)


def test_pecos_288_sparse_gradients_are_added_up():
    def rows(model, indices):
        return model(indices).squeeze(-1)

    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for indices in window:
                (rows(model, indices).sum() / sum(map(len, window))).backward()
            optimizer.step()
            optimizer.zero_grad()

    data = [torch.tensor(i) for i in ([0, 0], [0, 1], [2, 1, 1], [0])]
    assert audit(train, nn.Embedding(3, 1, sparse=True), data, rows, 2).ok


def test_composer_48_a_parameter_used_in_one_micro_batch_only():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = OneWeight(), OneWeight()

        def forward(self, x):
            return self.a(x) if x[0] > 0 else self.b(x)

    def epoch(model, optimizer, batches):
        for x in batches:
            (model(x).mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert audited(loop(epoch), samples([1, 2], [-3, -4]), 2, TwoHeads()).ok


def test_swin_311_gradients_unscaled_by_a_gate_of_their_own():
    """Two counters that disagree: the window is unscaled after each micro-batch but the last."""

    def epoch(model, optimizer, batches):
        for n, x in enumerate(batches):
            (model(x).mean() / 3 * 8).backward()
            for parameter in model.parameters():
                if n != 1:
                    parameter.grad /= 8
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), samples([1, 4], [2, 5], [3, 9]), 3)
    assert report.findings
    assert kinds(report) <= {"unexplained", "scaler-inside-window"}


def test_pytorch_83769_zeros_in_place_of_none_are_not_the_audits_to_judge():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 2):
            for x in window:
                (model(x).mean() / 2).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    assert audited(loop(epoch, epochs=2), samples(1, 2, 3, 4), 2).ok


def test_f_sam_3_a_second_pass_over_the_window_is_no_right_update():
    """SAM takes its gradient at moved weights, which is not that of the mean at the start."""

    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for half in (0, 1):
                for x in window:
                    ((model(x) - 1).square().mean() / 2).backward()
                if not half:
                    before = copy.deepcopy(model.state_dict())
                    with torch.no_grad():
                        model.weight += 0.1 * model.weight.grad.sign()
                    optimizer.zero_grad()
            model.load_state_dict(before)
            optimizer.step()
            optimizer.zero_grad()

    def squares(model, x):
        return (model(x) - 1).square()

    report = audited(train, samples([1, 2], [3, 4], [5, 6], [7, 8]), 2, loss=squares)
    assert "order-or-data-differ" in kinds(report)
