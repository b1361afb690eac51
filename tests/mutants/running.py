"""Runs the tests of a room on a mutant, in a copy of the tree."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.mutating import Mutant
from tests.mutants.rooms import room_of

_PASSED, _USAGE, _NO_TESTS = 0, 4, 5  # pytest's exit codes
_ALLOWED = (3, 10)  # times the seconds without a fault, and seconds on top; later is killed
_COPIED = ("helpers", "tests", "notebooks", "docs", "conftest.py", "pyproject.toml")

# A server that has imported what takes long and nothing of helpers/ forks for each mutant.
_PROCESSES = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
_SLOW_TO_IMPORT = ["torch", "matplotlib.pyplot", "ipywidgets", "IPython", "pytest", "hypothesis"]


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float


def run(
    root: Path, mutants: Sequence[Mutant], told: Callable[[Result], None], workers: int = 2
) -> list[Result]:
    """One result for each mutant, in order; ``told`` hears of each as it comes."""
    rooms = {mutant.module: room_of(mutant.module, root) for mutant in mutants}
    os.environ["OMP_NUM_THREADS"] = "1"
    if os.name != "nt":
        _PROCESSES.set_forkserver_preload(_SLOW_TO_IMPORT)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            copies.put(_copy(root, Path(folder, str(number))))

        def tested(
            tests: tuple[str, ...], timeout: float, mutant: Mutant | None = None
        ) -> tuple[bool, float]:
            copy = copies.get()
            try:
                if mutant is not None:
                    (copy / mutant.module).write_text(mutant.mutated, "utf-8")
                code, seconds = _run_tests(copy, tests, timeout)
            finally:
                if mutant is not None:
                    (copy / mutant.module).write_text(mutant.source, "utf-8")
                copies.put(copy)
            if code in (_USAGE, _NO_TESTS) or (mutant is None and code != _PASSED):
                raise RuntimeError(f"{' '.join(tests)} must pass without a fault: exit code {code}")
            return code != _PASSED, seconds

        def result(mutant: Mutant) -> Result:
            tests, (factor, on_top) = rooms[mutant.module], _ALLOWED
            outcome = Result(mutant, *tested(tests, factor * unharmed[tests] + on_top, mutant))
            told(outcome)
            return outcome

        different = sorted(set(rooms.values()))
        times = pool.map(lambda tests: tested(tests, 1200)[1], different)
        unharmed = dict(zip(different, times, strict=True))
        return list(pool.map(result, mutants))


def _copy(root: Path, copy: Path) -> Path:
    copy.mkdir()
    for name in _COPIED:
        if (root / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(root / name, copy / name, ignore=ignored)
        elif (root / name).exists():
            shutil.copy(root / name, copy)
    return copy


def _run_tests(folder: Path, tests: tuple[str, ...], timeout: float) -> tuple[int | None, float]:
    """pytest's exit code, None where it took longer than ``timeout``, and the seconds it took."""
    start = time.perf_counter()
    process = _PROCESSES.Process(target=_in_a_process, args=(str(folder), tests))
    process.start()
    process.join(timeout)
    if process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            process.kill() if os.name == "nt" else os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None, time.perf_counter() - start
    return process.exitcode, time.perf_counter() - start


def _in_a_process(folder: str, tests: tuple[str, ...]) -> None:
    """Leave with pytest's exit code."""
    import pytest
    from hypothesis import Phase, settings

    if os.name != "nt":
        os.setsid()  # so that what the tests start can be ended with them
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir(folder)
    # A module written twice within a second would else be taken from its cached bytecode.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:] = [folder, *(path for path in sys.path if not (Path(path) / "helpers").is_dir())]
    # That a fault is seen is all we ask: no smaller example, and none kept for the next mutant.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, database=None, phases=phases)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-c", f"{folder}/pyproject.toml"]
    options += ["--hypothesis-profile=mutants", "--hypothesis-seed=0", f"--rootdir={folder}"]
    sys.exit(int(pytest.main([*options, *tests])))
