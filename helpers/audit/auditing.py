"""The audit: a loop run on a copy, each of its updates held against the large batch's."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from helpers.audit import around
from helpers.audit.checks import check_arguments, check_choices, check_extras
from helpers.audit.inexact import mixtures
from helpers.audit.judging import Judge, Judged
from helpers.audit.objective import Loss, Objective
from helpers.audit.order import disorder_of, is_shuffled, number_anew
from helpers.audit.parts import Parts
from helpers.audit.records import Finding, Update
from helpers.audit.report import Report
from helpers.audit.running import Train, left_as_it_was, random_states_kept, run
from helpers.audit.uses import Story, known_items, story_of
from helpers.audit.windows import Windows, windows_of
from helpers.gradients import compare


def audit(
    train: Train,
    model: nn.Module,
    batches: Iterable,
    loss: Loss,
    accumulation_steps: int,
    *,
    optimizer_updates: int | None = None,
    last_window: str | None = None,
    reduction: str | None = None,
    max_norm: float | None = None,
    learning_rates: Sequence[float] | None = None,
    logged: Callable[[Any], Sequence[float]] | None = None,
    averaged: Callable[[Any], nn.Module] | None = None,
    decay: float | None = None,
) -> Report:
    """Whether the updates of a training loop are those of the large batch, and why not.

    ``train(model, batches)`` is the reader's loop, unchanged: any number of epochs, any library.
    It makes its own optimizer, from the model that it is given, which is a copy: the reader's
    model, data and random state stay as they were.

    Args:
        train: called once with a copy of ``model`` and with ``batches``.
        model: any module with trainable parameters.
        batches: the micro-batches of an epoch, a list or anything that can be iterated again.
        loss: takes (model, micro-batch) and returns the loss of each element, a 1-D tensor, or a
            pair (losses, weights). The right gradient of an update is that of the weighted mean
            over all elements of its window, at the weights that the update started from.
        accumulation_steps: micro-batches in a full window.
        optimizer_updates: how many updates one call of ``train`` is to make; None: any number.
        last_window: what a short last window of an epoch is to do: ``"flush"`` (step on it),
            ``"carry on"`` (into the next epoch) or ``"drop"``; None: either of the first two.
        reduction: ``"mean"`` or ``"sum"`` where the update is to be that; None: a mean, or a sum
            throughout.
        max_norm: the length that gradients are clipped to; None: any, or none.
        learning_rates: that each update is to have, in order; None: any.
        logged: takes what ``train`` returned, and gives the loss it reported for each update.
        averaged: takes what ``train`` returned, and gives the model whose weights are a moving
            average, from the first weights on, of those after each update.
        decay: the share that this average keeps when it moves.

    Returns:
        The updates, each beside the right one, the findings, and the choices that the loop makes.

    Raises:
        TypeError, ValueError: an argument is not what it should be; ``train`` trains another model
            or replaces its parameters, or no gradient reaches the model.
    """
    check_arguments(train, model, batches, loss, accumulation_steps, optimizer_updates)
    check_choices(last_window, reduction, max_norm)
    check_extras(learning_rates, logged, averaged, decay)
    k = accumulation_steps
    with random_states_kept(), left_as_it_was(model):
        objective = Objective(model, loss)
        with random_states_kept():
            items = known_items(objective, copy.deepcopy(list(batches)))
        with random_states_kept():
            done = run(train, copy.deepcopy(model), model, batches, {i.contents for i in items})
        in_order = isinstance(batches, (list, tuple))
        story = story_of(done, items, objective, in_order, k)
        _check_trained(story)
        disorder = disorder_of(story, in_order)
        if disorder:
            shuffled = is_shuffled(story, in_order)
            number_anew(story, len(items))
            disorder = {} if shuffled else disorder
        parts = Parts(done, objective)
        void = {use.key for use in story.uses if parts.own(use).void}
        void |= {key for key in story.lost if story.items[key].void}
        windows = windows_of(story, void, k, last_window)
        if disorder:
            windows.add("order-or-data-differ", (), **disorder)
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        judge = Judge(done, story, windows, void, parts, names, k, reduction, max_norm)
        judged = judge.judge()
        findings = _findings(judged, windows)
        findings += around.learning_rate(done, story, learning_rates)
        findings += around.own_averages(done, story, model) + around.graphs(done, story)
        if logged is not None:
            losses = logged(done.returned)
            findings += around.logged_loss(story, parts, losses, k, judge.sum_meant)
        if averaged is not None:
            findings += around.weight_average(done, story, model, averaged(done.returned), decay)
        findings += mixtures(done, story, objective)
        findings += _on_the_whole(story, findings, optimizer_updates)
        # Over other data than batches, what else is found may be no fault at all.
        findings.sort(key=lambda finding: finding.kind != "order-or-data-differ")
        choices = [*windows.choices, *_choices(judge, judged)]
    return Report(tuple(map(_update, judged)), tuple(findings), tuple(choices))


def _check_trained(story: Story) -> None:
    if not story.uses and not story.strangers and not story.updates:
        raise ValueError(
            "train must call backward() on losses of the model that it is given, but no gradient "
            "reached that model: it may train another one"
        )


def _findings(judged: list[Judged], windows: Windows) -> list[Finding]:
    found: dict[str, tuple[list[int], dict[str, float]]] = {
        kind: ([*updates], {**windows.evidence.get(kind, {})})
        for kind, updates in windows.kinds.items()
    }
    for j in judged:
        for kind in j.kinds:
            updates, numbers = found.setdefault(kind, ([], {}))
            if j.taken.number not in updates:
                updates.append(j.taken.number)
            for name, value in j.evidence[kind].items():
                numbers.setdefault(name, value)
    return [Finding(kind, tuple(sorted(u)), numbers) for kind, (u, numbers) in found.items()]


def _on_the_whole(
    story: Story, findings: list[Finding], optimizer_updates: int | None
) -> list[Finding]:
    if not story.updates:
        return [Finding("never-stepped", (), {"backwards": len(story.backwards)})]
    about_windows = {
        *("window-dropped", "window-leaked", "boundary-off-by-one", "stepped-every-micro-batch"),
        *("window-carried-on", "empty-window-stepped", "order-or-data-differ"),
    }
    if optimizer_updates is None or optimizer_updates == len(story.updates):
        return []
    if any(finding.kind in about_windows for finding in findings):
        return []
    numbers = {"updates made": len(story.updates), "updates meant": optimizer_updates}
    return [Finding("wrong-number-of-updates", (), numbers)]


def _choices(judge: Judge, judged: list[Judged]) -> list[str]:
    choices = []
    if judge.all_sums:
        choices.append("an update is the sum of the losses, not their mean")
    lengths = [j.clipped_to for j in judged if j.clipped_to is not None]
    if lengths:
        choices.append(f"gradients are clipped to a length of {max(lengths):.6g}")
    if any(j.factor is None and not j.kinds for j in judged):
        choices.append("gradients are changed before the step, by more than a factor")
    return choices


def _update(judged: Judged) -> Update:
    owned, gradient = judged.sight.owned, judged.sight.gradient
    right = torch.zeros_like(gradient) if judged.right is None else judged.right * owned
    keys = tuple(use.key for use in judged.taken.fresh)
    return Update(
        judged.taken.number,
        keys,
        judged.expected,
        gradient,
        right,
        compare(gradient, right),
        tuple(judged.kinds),
    )
