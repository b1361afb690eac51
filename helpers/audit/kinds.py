"""The faults that the audit knows by name: what each says, how it is mended, where it is taught."""

from dataclasses import dataclass

WRONG = "wrong"
NOT_EQUAL = "cannot be equal"

LESSONS = {
    1: "01_eight_samples_two_steps",
    3: "03_the_loop_line_by_line",
    4: "04_the_last_window",
    5: "05_unequal_micro_batches",
    6: "06_where_equivalence_ends",
    7: "07_once_a_window",
    8: "08_memory_and_time",
    9: "09_many_devices",
    10: "10_the_same_batch_in_every_library",
    11: "11_audit_your_own_loop",
}


@dataclass(frozen=True)
class Kind:
    """A kind of fault: one sentence of cause, one of remedy, and the lesson that explains it."""

    cause: str
    remedy: str
    lesson: str
    nature: str = WRONG


def _kind(lesson: int, cause: str, remedy: str, nature: str = WRONG) -> Kind:
    return Kind(cause, remedy, LESSONS[lesson], nature)


KINDS = {
    "loss-not-divided": _kind(
        1,
        "The means of the micro-batches are added up without a divisor.",
        "Divide each mean loss by the number of micro-batches in its window before backward().",
    ),
    "divided-twice": _kind(
        10,
        "The gradient is divided by the accumulation steps once more than it should be.",
        "Divide in one place only: in the loop, in the loss, or in the library.",
    ),
    "mean-of-means": _kind(
        5,
        "Micro-batches of unequal size or weight have equal shares in the update.",
        "Sum the losses of each micro-batch and divide by the number of elements in the window.",
    ),
    "wrong-divisor": _kind(
        5,
        "The sum of the window's losses is divided by a number that is not that of its elements.",
        "Divide by the elements, or the sum of the weights, of this very window.",
    ),
    "short-window-divided-by-k": _kind(
        4,
        "A window that holds fewer micro-batches is divided as if it were full.",
        "Divide by the number of micro-batches, or elements, that the window really holds.",
    ),
    "window-dropped": _kind(
        4,
        "The gradients of a window are never used: no step comes before they are cleared, or "
        "before the loop ends.",
        "Step after the last micro-batch, too, or carry the window on into the next epoch.",
    ),
    "window-leaked": _kind(
        4,
        "The update has a short window's gradients in it beside those of a full window.",
        "Step and clear at the end of an epoch, or let the counter run on over epochs.",
    ),
    "window-carried-on": _kind(
        4,
        "A window begins in one epoch and ends in the next, though each epoch was to end with a "
        "step.",
        "Step and clear after the last micro-batch of an epoch.",
    ),
    "boundary-off-by-one": _kind(
        3,
        "The optimizer steps one micro-batch too early or too late.",
        "Step where (i + 1) % accumulation_steps == 0, with i from 0, and after the last one.",
    ),
    "cleared-inside-window": _kind(
        3,
        "Gradients of the window were cleared before the optimizer used them.",
        "Clear right after the step, nowhere else.",
    ),
    "never-cleared": _kind(
        3,
        "The update uses gradients that an earlier update had used already.",
        "Call optimizer.zero_grad() after each step.",
    ),
    "stepped-every-micro-batch": _kind(
        3,
        "The optimizer steps after every micro-batch, not once a window.",
        "Put step() and zero_grad() under the test for the end of a window.",
    ),
    "never-stepped": _kind(
        3,
        "Gradients are added up, but no optimizer steps on the model.",
        "Make the optimizer inside train, from the model that it is given, and step once a window.",
    ),
    "wrong-number-of-updates": _kind(
        7,
        "The loop does not make as many updates as it was meant to.",
        "Count updates, not micro-batches, wherever a length or an interval is compared.",
    ),
    "clipped-every-micro-batch": _kind(
        7,
        "Gradients are clipped while the window still fills, so later micro-batches weigh more.",
        "Clip once, after the last backward of the window.",
    ),
    "clipped-before-unscaling": _kind(
        7,
        "The gradients are clipped while they are still multiplied by the loss scale.",
        "Call scaler.unscale_(optimizer) before the gradients are clipped.",
    ),
    "clipped-to-another-length": _kind(
        7,
        "The gradients are clipped to another length than max_norm, or left longer than it.",
        "Clip to max_norm once a window, after its last backward.",
    ),
    "scaler-inside-window": _kind(
        7,
        "The loss scale is changed, or taken out, between two micro-batches of one window.",
        "Unscale and update the scaler once a window, after its last backward.",
    ),
    "scheduler-every-micro-batch": _kind(
        7,
        "The learning rate moves at every micro-batch, as many times too fast as a window holds.",
        "Step the scheduler where the optimizer steps.",
    ),
    "scheduler-wrong-length": _kind(
        7,
        "The learning rate follows a schedule that is planned for another number of updates.",
        "Size the schedule in updates: windows in an epoch times epochs.",
    ),
    "ema-every-micro-batch": _kind(
        7,
        "A moving average moves at every micro-batch, so it follows too fast.",
        "Move it once an update, after the step.",
    ),
    "weights-moved-between-updates": _kind(
        7,
        "Weights are changed inside a window without an optimizer step.",
        "Change weights right after the optimizer's step, once a window, if at all.",
    ),
    "stale-gradients": _kind(
        7,
        "The update uses gradients of weights from before the update that came before it.",
        "Run forward and backward of a window between the same two steps.",
    ),
    "nan-micro-batch": _kind(
        7,
        "A micro-batch without a finite loss reaches the update, or counts in its divisor.",
        "Leave such a micro-batch out of the sum and out of the divisor.",
    ),
    "empty-window-stepped": _kind(
        7,
        "The optimizer steps on a window without elements, and weight decay and momentum act.",
        "Skip the step where a window has no elements.",
    ),
    "logged-loss-wrong": _kind(
        7,
        "The loss that the loop reports is not the mean over the window's elements.",
        "Log the sum of the losses over the number of elements, before any scaling.",
    ),
    "graph-kept-alive": _kind(
        8,
        "The graph of a micro-batch is still held when the next but one begins.",
        "Call backward() for each micro-batch, and keep loss.detach() instead of loss.",
    ),
    "low-precision-accumulator": _kind(
        6,
        "Contributions are lost because .grad is too narrow to hold their sum.",
        "Keep the weights, and with them .grad, in float32.",
        NOT_EQUAL,
    ),
    "batch-statistics": _kind(
        6,
        "The model mixes the samples of a micro-batch, as BatchNorm does.",
        "Take GroupNorm or LayerNorm, or freeze the statistics.",
        NOT_EQUAL,
    ),
    "random-layers": _kind(
        6,
        "The model draws random numbers, so that a large batch would meet other ones.",
        "Nothing to mend: the updates were held against gradients with the loop's own draws.",
        NOT_EQUAL,
    ),
    "not-a-mean-of-elements": _kind(
        6,
        "The loss of an element depends on the others in its micro-batch.",
        "Cache the outputs of the whole window for such a loss, or take larger micro-batches.",
        NOT_EQUAL,
    ),
    "order-or-data-differ": _kind(
        11,
        "The loop trains on other data than batches, or in another order.",
        "Hand over the micro-batches as the loop uses them, and let loss give the model the same.",
    ),
    "unexplained": _kind(
        11,
        "The update is not that of the large batch, and no known fault gives what it used.",
        "Look at the comparison, and at whether loss computes what the loop does.",
    ),
}
