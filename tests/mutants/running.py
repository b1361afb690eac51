"""Runs the tests of a room on a mutant, in a copy of the tree."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.mutating import Mutant
from tests.mutants.rooms import room_of

WORKERS = 2
_PASSED, _FAILED, _INTERRUPTED = 0, 1, 2  # pytest's exit codes; 2 also where collecting failed
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


def run(root: Path, mutants: Sequence[Mutant], told: Callable[[Result], None]) -> list[Result]:
    """One result for each mutant, in order; ``told`` hears of each as it comes."""
    rooms = {mutant.module: room_of(mutant.module, root) for mutant in mutants}
    os.environ["OMP_NUM_THREADS"] = "1"
    if os.name != "nt":
        _PROCESSES.set_forkserver_preload(_SLOW_TO_IMPORT)
    with _copies(root) as copies, ThreadPoolExecutor(WORKERS) as pool:

        def baseline(tests: tuple[str, ...]) -> float:
            folder = copies.get()
            code, seconds = _run_tests(folder, tests, 1200)
            copies.put(folder)
            if code != _PASSED:
                raise RuntimeError(f"{' '.join(tests)} must pass without a fault: exit code {code}")
            return seconds

        def result(mutant: Mutant) -> Result:
            folder, tests = copies.get(), rooms[mutant.module]
            path = folder / mutant.module
            path.write_text(mutant.mutated, "utf-8")
            factor, on_top = _ALLOWED
            code, seconds = _run_tests(folder, tests, factor * limits[tests] + on_top)
            path.write_text(mutant.source, "utf-8")
            copies.put(folder)
            if code not in (None, _PASSED, _FAILED, _INTERRUPTED) and code > 0:
                raise RuntimeError(f"pytest could not run {' '.join(tests)}: exit code {code}")
            outcome = Result(mutant, code != _PASSED, seconds)
            told(outcome)
            return outcome

        different = sorted(set(rooms.values()))
        limits = dict(zip(different, pool.map(baseline, different), strict=True))
        return list(pool.map(result, mutants))


@contextlib.contextmanager
def _copies(root: Path) -> Iterator["SimpleQueue[Path]"]:
    with TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copy = Path(folder, str(number))
            copy.mkdir()
            for name in _COPIED:
                if (root / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", ".*")
                    shutil.copytree(root / name, copy / name, ignore=ignored)
                elif (root / name).exists():
                    shutil.copy(root / name, copy)
            copies.put(copy)
        yield copies


def _run_tests(folder: Path, tests: tuple[str, ...], timeout: float) -> tuple[int | None, float]:
    """pytest's exit code, None where it took longer than ``timeout``, and the seconds it took."""
    # What hypothesis found with one mutant is no help against the next.
    shutil.rmtree(folder / ".hypothesis", ignore_errors=True)
    start = time.perf_counter()
    process = _PROCESSES.Process(target=_in_a_process, args=(str(folder), tests))
    process.start()
    process.join(timeout)
    if process.is_alive():
        if os.name == "nt":
            process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None, time.perf_counter() - start
    return process.exitcode, time.perf_counter() - start


def _in_a_process(folder: str, tests: tuple[str, ...]) -> None:
    """Leave with pytest's exit code."""
    import pytest

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
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--rootdir={folder}"]
    sys.exit(int(pytest.main([*options, "-c", f"{folder}/pyproject.toml", *tests])))
