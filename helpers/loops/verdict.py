"""What a loop did, from its trace, held against what it should have done; in words."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import takewhile

from torch import Tensor

from helpers.loops.runs import Run
from helpers.recorder import Assign, Backward, Clear, Edit, Step, Trace


def faults(run: Run, trace: Trace, returned: object, tolerance: float) -> list[str]:
    """What is wrong with a run, a phrase each; empty if nothing is."""
    told = [
        *_steps(run, trace),
        *_first_wrong_gradient(run, trace, tolerance),
        *_learning_rates(run, trace),
        *_counters(run),
        *_left(run, trace),
        *_several_at_once(run, trace),
    ]
    if not told and run.also:
        told = list(filter(None, [run.also(trace, returned)]))
    return told


def listed(numbers: Iterable[int]) -> str:
    """Numbers as one says them: "5", "5 and 6", "5, 6 and 7", and "1 to 5" for long stretches."""
    numbers = sorted(numbers)
    if len(numbers) > 4 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def share(weight: float) -> str:
    """A weight as a fraction, such as 1/3, where it is a plain one."""
    fraction = Fraction(weight).limit_denominator(100)
    near = abs(float(fraction) - weight) <= 1e-4 * abs(weight)
    return str(fraction) if near else f"{weight:.4g}"


def _steps(run: Run, trace: Trace) -> Iterator[str]:
    got, right = len(trace.updates), len(run.gradients)
    if got != right:
        yield f"stepped {_times(got)}, should be {right}"
    if not any(isinstance(event, Backward | Assign) for event in trace.events):
        yield "no backward added to .grad"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _first_wrong_gradient(run: Run, trace: Trace, tolerance: float) -> Iterator[str]:
    for number, (step, right) in enumerate(
        zip(trace.updates, run.gradients, strict=False), start=1
    ):
        # The optimizer may own fewer parameters than the model has.
        got = step.gradient.vector
        if got is None or got.shape != right.shape:
            there = 0 if got is None else len(got)
            yield f"update {number} reached {there} weights of {len(right)}"
            return
        wrong = _wrong_gradient(run, trace, step, number, got.to(right), right, tolerance)
        if wrong:
            yield wrong
            return


def _wrong_gradient(
    run: Run, trace: Trace, step: Step, number: int, got: Tensor, right: Tensor, tolerance: float
) -> str:
    of = f"the gradient of update {number}"
    if not got.isfinite().all():
        return f"{of} holds NaN or infinity"
    if not got.any():
        return f"{of} is zero" if right.any() else ""
    if run.parts is None:
        return _away(of, got, right, tolerance)
    weights, expected = _weights(run, got), _weights(run, right)
    if (got - weights @ run.parts).norm() > tolerance * got.norm():
        return f"{of} holds more than its micro-batches' gradients"
    wanted = set(run.updates[number - 1])
    held = _held(run, trace, step.backwards, got, wanted)
    if held != wanted:
        some = f"micro-batch{'es' * (len(held) > 1)} {listed(held)}"
        return f"{of} holds {some}, not {listed(wanted)}"
    if run.max_norm is not None and right.norm() > run.max_norm * (1 - tolerance):
        return _clipped(run, trace, step, number, got, right, tolerance)
    off = (weights - expected).abs() > tolerance * expected.abs()
    if not off.any():
        return ""
    shares = [
        (share(weights[i].item()), share(expected[i].item())) for i in off.nonzero().flatten()
    ]
    which = "each"
    if len(set(shares)) > 1 or not off[expected != 0].all():
        first = run.owners[off.nonzero()[0]]
        number_of = {(n - 1) % run.micro_batches: n for n in held}
        which = f"each {run.unit} of micro-batch {number_of[first]}"
    elif len(run.owners) > run.micro_batches:
        which = f"each {run.unit}"
    came, should = shares[0]
    return f"in update {number} {which} counted {came}, should be {should}"


def _weights(run: Run, gradient: Tensor) -> Tensor:
    """What each sample counts in a gradient; no two samples share a weight of the model."""
    return run.parts @ gradient / run.parts.square().sum(1)


def _samples_in(run: Run, gradient: Tensor) -> list[int]:
    return _weights(run, gradient).nonzero().flatten().tolist()


def _in_it(run: Run, gradient: Tensor) -> set[int]:
    """Which micro-batches of an epoch, from 0, are in a gradient."""
    return {run.owners[sample] for sample in _samples_in(run, gradient)}


def _held(
    run: Run,
    trace: Trace,
    backwards: Sequence[int],
    gradient: Tensor,
    wanted: Iterable[int] = (),
) -> set[int]:
    """The micro-batches in a gradient, counted from 1 over all epochs.

    A sample's gradient is the same in every epoch; how often it has gone backward tells which.
    Of a gradient set by hand nothing tells, and it is taken to be those ``wanted``.
    """
    there, numbers, seen = set(_samples_in(run, gradient)), set(), Tally()
    for event in trace.events:
        if isinstance(event, Backward) and event.added.vector is not None:
            for sample in _samples_in(run, event.added.vector.to(gradient)):
                if event.number in backwards and sample in there:
                    epoch = min(seen[sample], run.epochs - 1)  # one gone backward twice is no more
                    numbers.add(epoch * run.micro_batches + run.owners[sample] + 1)
                seen[sample] += 1
    meant = {(number - 1) % run.micro_batches: number for number in wanted}
    return numbers or {meant.get(i, i + 1) for i in _in_it(run, gradient)}


def _clipped(
    run: Run, trace: Trace, step: Step, number: int, got: Tensor, right: Tensor, tolerance: float
) -> str:
    norm, wanted = got.norm().item(), right.norm().item()
    if abs(norm - wanted) > tolerance * wanted:
        return f"update {number} has a gradient of norm {norm:.4g}, should be {wanted:.4g}"
    if (got - right).norm() <= tolerance * wanted:
        return ""
    events = list(trace.events)
    before = reversed(events[: events.index(step)])
    window = takewhile(lambda event: not isinstance(event, Step | Clear), before)
    edits = sum(isinstance(event, Edit) for event in window)
    turned = f"the gradient of update {number} has the right norm and points elsewhere"
    return f"{turned}: .grad was changed {edits} times on the way" if edits > 1 else turned


def _away(of: str, got: Tensor, right: Tensor, tolerance: float) -> str:
    distance, length = (got - right).norm().item(), right.norm().item()
    if distance <= tolerance * length:
        return ""
    ratio = (got @ right / length**2).item() if length else 0.0
    if (got - ratio * right).norm() <= tolerance * got.norm():
        return f"{of} is {ratio:.4g} times what it should be"
    return (
        f"{of} is off by {distance / length:.1%} of what it should be"
        if length
        else (f"{of} should be zero")
    )


def _learning_rates(run: Run, trace: Trace) -> Iterator[str]:
    for number, (step, right) in enumerate(
        zip(trace.updates, run.learning_rates, strict=False), start=1
    ):
        if any(abs(lr - right) > 1e-9 * right for lr in step.learning_rates):
            yield f"update {number} ran at lr {step.learning_rates[0]:.4g}, should be {right:.4g}"
            return


def _counters(run: Run) -> Iterator[str]:
    for counter in run.counters:
        got = counter.read()
        if got != counter.right:
            yield f"{counter.said} {_times(got)}, should be {counter.right}"


def _left(run: Run, trace: Trace) -> Iterator[str]:
    pending = trace.pending
    if pending.used or not run.all_used or run.parts is None or not pending.held.norm:
        return
    left = pending.held.vector.to(run.parts)
    if left.isfinite().all() and (held := _held(run, trace, pending.backwards, left)):
        yield f"left in .grad at the end: micro-batch{'es' * (len(held) > 1)} {listed(held)}"


def _several_at_once(run: Run, trace: Trace) -> Iterator[str]:
    """A backward through a whole window has kept all of its activations until then."""
    for event in trace.events:
        if isinstance(event, Backward) and event.added.vector is not None and run.parts is not None:
            added = event.added.vector.to(run.parts)
            together = _in_it(run, added) if added.isfinite().all() else ()
            if len(together) > 1:
                numbers = listed(i + 1 for i in together)
                yield f"one backward went through micro-batches {numbers}, all in memory at once"
                return
