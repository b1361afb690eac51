"""Running the reader's loop under the recorder, and saying how it went."""

import re
import warnings
from collections.abc import Callable, Sequence

import torch

from helpers.answers import error_text, is_stub
from helpers.device import same_on_every_device
from helpers.loops.data import Setting
from helpers.loops.runs import SETTINGS, TAKES, Right, Run, build, window_means
from helpers.loops.verdict import faults
from helpers.recorder import record

MOST_TOLD = 3  # kinds of faults
MOST_FORWARDS = 1000  # a loop that calls the model more often in a run will not end

Loop = Callable[..., object]


def check_loop(
    loop: Loop,
    takes: Sequence[str] = TAKES,
    settings: Sequence[Setting] = SETTINGS,
    data: str | None = None,
    right: Right = window_means,
    tolerance: float = 1e-4,
) -> None:
    """Print whether the updates that a loop makes are right in every setting, and what is not.

    Args:
        loop: what the reader wrote; with nothing in its body it counts as not written yet.
        takes, data, right: what it is handed and what it should do; see :func:`build`.
        settings: how much data, in which pieces.
        tolerance: how far, relative to what is right, a sample's weight may be off; 0.01 for a
            loop in bfloat16.

    Raises:
        TypeError: ``loop`` cannot be called.
        ValueError: no setting is given, or there is no such object or data.
    """
    if not settings:
        raise ValueError("settings must hold at least one Setting, got none")
    makers = [lambda setting=setting: build(setting, takes, data, right) for setting in settings]
    check_runs(loop, makers, tolerance)


def check_runs(loop: Loop, makers: Sequence[Callable[[], Run]], tolerance: float = 1e-4) -> None:
    """The same as :func:`check_loop` for runs of the exercise's own.

    Args:
        loop: what the reader wrote.
        makers: each makes a fresh run.
        tolerance: as there.

    Raises:
        TypeError: ``loop`` cannot be called.
        ValueError: no run is given.
    """
    if not callable(loop):
        raise TypeError(f"loop must be callable, got {loop!r}")
    if not makers:
        raise ValueError("makers must hold at least one, got none")
    name = getattr(loop, "__name__", None) or type(loop).__name__
    if is_stub(loop):
        print(f"{name}: not written yet")
        return
    told: dict[str, list[str]] = {}
    for maker in makers:
        with same_on_every_device(), torch.inference_mode(False), torch.enable_grad():
            run = maker()
            wrong = _watched(loop, run, tolerance)
        if wrong:
            said = f"{run.said}: {'; '.join(wrong)}"
            told.setdefault(_kind(wrong), []).append(said)
    for alike in list(told.values())[:MOST_TOLD]:
        more = f" (and {len(alike) - 1} more like this)" if len(alike) > 1 else ""
        print(f"✗ {name}, {alike[0]}{more}")
    right = len(makers) - sum(map(len, told.values()))
    if told:
        print(f"{name}: right in {right} of {len(makers)} runs")
    else:
        print(f"✓ {name}: right in all {right} runs")


def _watched(loop: Loop, run: Run, tolerance: float) -> list[str]:
    """What was wrong with one run."""
    calls = 0

    def count(module, args) -> None:
        nonlocal calls
        calls += 1
        if calls > MOST_FORWARDS:
            raise RuntimeError(f"the model was called more than {MOST_FORWARDS} times")

    run.model.register_forward_pre_hook(count)
    with record(run.model) as trace, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they warn of, the verdict says
        try:
            for _ in range(run.calls):
                returned = loop(*run.arguments)
        except Exception as error:  # a reader's loop may fail in any way; say which
            return [f"raised {error_text(error)}"]
    return faults(run, trace, returned, tolerance)


def _kind(wrong: Sequence[str]) -> str:
    """The faults without their numbers."""
    return re.sub(r"[\d./]+(, [\d./]+)*( (and|to) [\d./]+)?", "#", "; ".join(wrong))
