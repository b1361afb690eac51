"""Runs the tests of a room on a mutant, in a copy of the tree."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.mutating import Mutant
from tests.mutants.rooms import asked, room_of

_PASSED, _USAGE, _NO_TESTS = 0, 4, 5  # pytest's exit codes
_ALLOWED = (4, 20)  # times the seconds without a fault, and seconds on top; later is killed
_COPIED = ("helpers", "tests", "notebooks", "docs")
_COPIED += ("conftest.py", "pyproject.toml", "requirements.txt")

# A server that has imported what takes long and nothing of helpers/ forks for each mutant.
_PROCESSES = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
_SLOW_TO_IMPORT = ["torch", "matplotlib.pyplot", "ipywidgets", "IPython", "pytest", "hypothesis"]


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float


def run(root: Path, mutants: Sequence[Mutant], workers: int = 2) -> Iterator[Result]:
    """A result for each mutant, in order, each as it comes."""
    rooms = {mutant.module: room_of(mutant.module, root) for mutant in mutants}
    os.environ["OMP_NUM_THREADS"] = "1"
    if os.name != "nt":
        _PROCESSES.set_forkserver_preload(_SLOW_TO_IMPORT)

    def unharmed(path: str) -> float:
        code, seconds = _run_tests(root, (path,), 1200)
        if code != _PASSED:
            raise RuntimeError(f"{path} must pass without a fault: exit code {code}")
        return seconds

    def result(mutant: Mutant) -> Result:
        tests, (factor, on_top) = rooms[mutant.module], _ALLOWED
        timeout = factor * sum(usual[path] for path in tests) + on_top
        code, seconds = _run_tests(root, asked(mutant.module, tests), timeout, mutant)
        if code in (_USAGE, _NO_TESTS):
            raise RuntimeError(f"pytest could not run {' '.join(tests)}: exit code {code}")
        return Result(mutant, code != _PASSED, seconds)

    with ThreadPoolExecutor(workers) as pool:
        paths = sorted({path for tests in rooms.values() for path in tests})
        usual = dict(zip(paths, pool.map(unharmed, paths), strict=True))
        yield from pool.map(result, mutants)


def _run_tests(
    root: Path, tests: tuple[str, ...], timeout: float, mutant: Mutant | None = None
) -> tuple[int | None, float]:
    """pytest's exit code, None where it took longer than ``timeout``, and the seconds it took."""
    with TemporaryDirectory() as folder:
        for name in _COPIED:
            if (root / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", ".*")
                shutil.copytree(root / name, Path(folder, name), ignore=ignored)
            elif (root / name).exists():
                shutil.copy(root / name, folder)
        if mutant is not None:
            Path(folder, mutant.module).write_text(mutant.mutated, "utf-8")
        start = time.perf_counter()
        process = _PROCESSES.Process(target=_in_a_process, args=(folder, tests))
        process.start()
        process.join(timeout)
        late = process.is_alive()
        if late:
            with contextlib.suppress(ProcessLookupError):
                process.kill() if os.name == "nt" else os.killpg(process.pid, signal.SIGKILL)
            process.join()
        return None if late else process.exitcode, time.perf_counter() - start


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
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:] = [folder, *(path for path in sys.path if not (Path(path) / "helpers").is_dir())]
    # That a fault is seen is all we ask: no smaller example of it.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, database=None, phases=phases)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-c", f"{folder}/pyproject.toml"]
    options += ["--hypothesis-profile=mutants", "--hypothesis-seed=0", f"--rootdir={folder}"]
    sys.exit(int(pytest.main([*options, *tests])))
