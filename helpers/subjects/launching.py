"""Running a function on several processes by torchrun: it ends in time and leaves nothing behind.

``script(...)`` is the whole file that torchrun gets, ``torchrun(...)`` runs it. The file and what
the ranks write lie in a temporary folder.
"""

import functools
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil

from helpers import checks
from helpers.device import DEVICE_VARIABLE, pick_device

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from helpers.gradients import flat_gradient
from helpers.models import micro_batch_model, one_neuron
from helpers.samples import eight_samples
"""

FOOTER = """\
if __name__ == "__main__":
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])  # set by torchrun
    gpus = torch.cuda.device_count() >= world_size
    device = torch.device("cuda", rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    result = {call}
    Path(f"rank{{rank}}.json").write_text(json.dumps(result))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # where DDP was used, gloo's threads go on, and now and then abort Python's own end
"""


class LaunchError(RuntimeError):
    """Ranks that did not come to their end: which, and why."""


def script(main: Callable, *functions: Callable) -> str:
    """The script that runs ``main(rank, device)`` on each rank: imports, functions, start and end.

    Args:
        main: what a rank does; it returns something that JSON can hold.
        functions: those that ``main`` calls, written beside it.

    Raises:
        TypeError: one of them is no function.
        ValueError: the source of one can't be had, or begins with another word than ``def``.
    """
    name = getattr(main, "__name__", None)
    return _script(f"{name}(rank, device)", *functions, main)


def torchrun(
    main: Callable,
    *functions: Callable,
    ranks: int = 2,
    limit: float = 300,
    port: int | None = None,
    cpu: bool = False,
) -> list:
    """What ``main(rank, device)`` returned on each rank, in order, after a run by torchrun.

    Each rank has a GPU and NCCL joins them where there are enough; else they share the CPU, by
    gloo. What they print is printed, rank by rank, at the end.

    Args:
        main, functions: as for :func:`script`.
        ranks: how many processes.
        limit: seconds until they are stopped.
        port: where they meet; a free one unless given.
        cpu: whether they compute on the CPU although there are GPUs.

    Raises:
        TypeError, ValueError: an argument is of another kind, or there are more ranks than cores.
        LaunchError: a rank died, the port is in use, or the time ran out. No process is left.
    """
    return run_script(script(main, *functions), ranks, limit, port, cpu)


def run_script(
    text: str, ranks: int = 2, limit: float = 300, port: int | None = None, cpu: bool = False
) -> list:
    """What the ranks of a script left in their files ``rank0.json``, ``rank1.json`` and so on."""
    _check(ranks, limit, port)
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        file, logs, errors = folder / "script.py", folder / "logs", folder / "errors"
        file.write_text(text, encoding="utf-8")
        meeting = ["--standalone"] if port is None else [f"--master-port={port}"]
        command = [sys.executable, "-m", "torch.distributed.run", *meeting]
        command += ["--local-addr=localhost", f"--nproc-per-node={ranks}"]
        command += ["--redirects=3", f"--log-dir={logs}", str(file)]
        with errors.open("w") as stderr:
            agent = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(folder, cpu),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            try:
                code = agent.wait(limit)
            except subprocess.TimeoutExpired:
                raise LaunchError(_too_slow(ranks, limit)) from None
            finally:
                _stop(agent, folder)
        _print_what_ranks_printed(logs, ranks)
        if code:
            raise LaunchError(_cause(errors.read_text(encoding="utf-8"), logs))
        written = [folder / f"rank{rank}.json" for rank in range(ranks)]
        return [json.loads(path.read_text()) if path.exists() else None for path in written]


def on_ranks(function: Callable, main: Callable, *functions: Callable) -> Callable[[int], object]:
    """A function of the number of ranks: what ``main(rank, device, function)`` gives them.

    It is for exercises: it has the name of ``function``, the one that the reader wrote.

    Raises:
        ValueError: when called, if not all ranks get the same.
    """

    @functools.wraps(function)
    def launch(ranks: int) -> object:
        call = f"{main.__name__}(rank, device, {function.__name__})"
        results = run_script(_script(call, *functions, function, main), ranks)
        if any(result != results[0] for result in results):
            raise ValueError(f"the ranks differ: {results}")
        return results[0]

    return launch


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(psutil.Process, "cpu_affinity"):  # not on macOS
        return len(psutil.Process().cpu_affinity())
    return os.cpu_count() or 1


def _script(call: str, *functions: Callable) -> str:
    return "\n\n".join([HEADER, *map(_source, functions), FOOTER.format(call=call)])


def _source(function: Callable) -> str:
    if not inspect.isfunction(function):
        raise TypeError(f"a script takes functions, got {function!r}")
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        source = ""
    if not source.startswith("def "):
        raise ValueError(f"a script takes functions written with def, got {function.__name__}")
    return source


def _check(ranks: int, limit: float, port: int | None) -> None:
    checks.whole_number("ranks", ranks, 1)
    most = max(4, cores())
    if ranks > most:
        raise ValueError(
            f"ranks must be from 1 to {most}, got {ranks}: "
            "more ranks than cores only wait for one another"
        )
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise TypeError(f"limit must be a number of seconds, got {limit!r}")
    if not limit > 0:
        raise ValueError(f"limit must be a number of seconds above 0, got {limit!r}")
    if port is not None:
        checks.whole_number("port", port, 1, 65535)
        if _in_use(port):
            raise LaunchError(
                f"port {port} is in use, so the ranks can't meet there: "
                "leave port out, and torchrun takes a free one"
            )


def _in_use(port: int) -> bool:
    with socket.socket() as here:
        if os.name == "posix":  # else a port that was let go of a minute ago counts as in use
            here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            here.bind(("", port))
        except OSError:
            return True
    return False


def _environment(folder: Path, cpu: bool) -> dict[str, str]:
    """The kernel's, and what keeps ranks to their cores, their folder and their device."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Ranks that share cores are quicker with one thread each; torchrun would say so on stderr.
    own = {"PYTHONPATH": path, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    if cpu or pick_device().type != "cuda":
        own |= {DEVICE_VARIABLE: "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **own}


def _stop(agent: subprocess.Popen, folder: Path) -> None:
    """End the agent first, which would start others, then all whose command names the folder."""
    if agent.poll() is None:
        agent.kill()
        agent.wait()
    while left := [process for process in psutil.process_iter() if _names(process, folder)]:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=5)


def _names(process: psutil.Process, folder: Path) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return any(str(folder) in part for part in command)


def _too_slow(ranks: int, limit: float) -> str:
    told = f"the {ranks} ranks had not ended after {limit:g} s and were stopped"
    if ranks > cores():
        return f"{told}; they share {cores()} cores: take fewer ranks, or a longer limit"
    return f"{told}; does one wait for another that never calls?"


def _print_what_ranks_printed(logs: Path, ranks: int) -> None:
    for rank in range(ranks):
        for line in _log(logs, rank, "stdout").splitlines():
            print(f"[rank {rank}] {line}")


def _log(logs: Path, rank: int, name: str) -> str:
    files = sorted(logs.glob(f"*/attempt_*/{rank}/{name}.log"))
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def _cause(errors: str, logs: Path) -> str:
    """Who died first and of what. The others then die of its silence, and their errors mislead."""
    found = re.findall(r"^ *rank +: (\d+) .*\n *exitcode +: (-?\d+)", errors, re.MULTILINE)
    codes = {int(rank): int(code) for rank, code in found}
    # torchrun ends the others by SIGTERM, and lists them too
    codes = {rank: code for rank, code in codes.items() if -code != signal.SIGTERM} or codes
    killed = [rank for rank, code in codes.items() if code < 0]
    told = {rank: _log(logs, rank, "stderr") for rank in codes}
    if killed:
        number = -codes[killed[0]]
        cause = signal.Signals(number).name
        if last := _last_error(told[killed[0]]):
            cause += f", after: {last}"
        return f"rank {killed[0]} was killed ({cause}). The other ranks were stopped."
    if not codes:
        return f"torchrun failed: {_last_error(errors)}"
    first = min(codes, key=lambda rank: (_of_a_lost_peer(told[rank]), rank))
    cause = _last_error(told[first]) or f"exit code {codes[first]}"
    return f"rank {first} died: {cause}. The other ranks were stopped."


def _of_a_lost_peer(text: str) -> bool:
    return bool(re.search(r"connection (was )?(closed|reset)|peer|timed out", text, re.IGNORECASE))


def _last_error(text: str) -> str:
    """The last line of a traceback that names an error, else the last line; at most 200 letters."""
    lines = [re.sub(r"^\[rank\d+\]: ?", "", line).rstrip() for line in text.splitlines()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    return (named or [line for line in lines if line] or [""])[-1][:200].rstrip(".")
