"""Real ranks under torchrun: what they answer, how they fail, and that nothing of them is left."""

import ast
import importlib.util
import os
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
import psutil
import pytest
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from helpers.models import micro_batch_model, one_neuron
from helpers.samples import eight_samples
from helpers.subjects import launching
from helpers.subjects.launching import LaunchError, on_ranks, run_script, script, torchrun
from helpers.subjects.ranks import bucket_sizes, counted, my_samples, sharded

LESSON = Path(__file__).parents[2] / "notebooks" / "09_many_devices.ipynb"
MIB = 2**20


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """A module of the functions that the lesson's cells define, as they stand there."""
    cells = [c.source for c in nbformat.read(LESSON, as_version=4).cells if c.cell_type == "code"]
    functions = [
        ast.get_source_segment(source, node)
        for source in cells
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name not in ("accumulate", "sent", "told")
    ]
    path = tmp_path_factory.mktemp("lesson") / "of_lesson_09.py"
    path.write_text("\n\n\n".join(functions), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def everything(rank, device):
    """All that two ranks are asked: one start for many questions."""
    print("here I am")
    probes = (one_backward, count_ways, drift, short_window, token_rules, uneven_joined)  # noqa: F821
    probes += (bucket_sizes, sharded, sharded_eight, joined_by_those_left, wrapped)
    return {probe.__name__: probe(rank, device) for probe in probes}


def sharded_eight(rank, device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    x, y = (part.cpu() for part in my_samples(rank, device))
    model = fully_shard(one_neuron(), mesh=init_device_mesh("cpu", (2,)))
    for i in range(4):
        model.set_requires_gradient_sync(i == 3)
        (mse_loss(model(x[i]), y[i]) / 4).backward()
    return [p.grad.full_tensor().item() for p in model.parameters()]


def joined_by_those_left(rank, device):
    model, last = DistributedDataParallel(micro_batch_model().to(device)), None
    with model.join(divide_by_initial_world_size=False):
        for inputs in my_samples(rank, device)[0][: 2 - rank]:
            model.zero_grad()
            model(inputs[None]).sum().backward()
            last = model.module.weight.grad.item()
    return last


def wrapped(rank, device):
    """DDP hands rank 0's weights round when it wraps a model, and not again."""
    model = micro_batch_model().to(device)
    nn.init.constant_(model.weight, rank + 1.0)
    model = DistributedDataParallel(model)
    first = model.module.weight.item()
    nn.init.constant_(model.module.weight, rank + 1.0)
    model(eight_samples(device)[0]).mean().backward()
    return [first, model.module.weight.item()]


@pytest.fixture(scope="module")
def ranks(lesson, tmp_path_factory):
    """What each of two ranks found."""
    names = ("one_backward", "count_ways", "without_no_sync", "around_both", "around_backward")
    names += ("drift", "short_window", "token_rules", "uneven", "uneven_joined")
    own = (my_samples, counted, bucket_sizes, sharded, sharded_eight, joined_by_those_left, wrapped)
    with pytest.MonkeyPatch.context() as patch, nothing_left(tmp_path_factory, patch):
        return torchrun(everything, *own, *(getattr(lesson, name) for name in names), cpu=True)


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path_factory, monkeypatch):
    with nothing_left(tmp_path_factory, monkeypatch):
        yield


@contextmanager
def nothing_left(tmp_path_factory, patch):
    """Assert that what runs inside leaves no file and no process."""
    folder = tmp_path_factory.mktemp("temporary")
    patch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []
    assert running() == []


def running():
    """The processes of launches that are still there."""
    return [
        p for p in psutil.Process().children(recursive=True) if "script.py" in " ".join(p.cmdline())
    ]


def both(ranks, probe):
    return [found[probe] for found in ranks]


def test_ddp_gives_both_ranks_the_full_batch_to_the_bit_from_halves_that_differ(ranks):
    alone = [[2.5, -5.0], [-0.5, -2.0]]
    assert both(ranks, "one_backward") == [{"alone": own, "DDP": [1.0, -3.5]} for own in alone]


def test_all_reduces_are_k_without_no_sync_one_around_both_and_k_around_backward(ranks):
    sent = {"without_no_sync": [8] * 4, "around_both": [8], "around_backward": [8] * 4}
    wanted = {way: {"sent": sizes, "gradient": [1.0, -3.5]} for way, sizes in sent.items()}
    assert both(ranks, "count_ways") == [wanted, wanted]


def test_only_with_the_last_micro_batch_sent_the_ranks_agree(ranks):
    assert both(ranks, "drift") == [
        {"last": 7.0, "first": 5.0, "none": 3.0},
        {"last": 7.0, "first": 9.0, "none": 11.0},
    ]


def test_a_flushed_window_that_is_not_sent_lets_the_ranks_drift(ranks):
    first, second = both(ranks, "short_window")
    assert first == {"last of each window": [11.0, 200.0], "every second only": [11.0, 100.0]}
    assert second == {"last of each window": [11.0, 200.0], "every second only": [11.0, 300.0]}


def test_token_means_need_the_global_count_and_the_world_size(ranks):
    assert both(ranks, "token_rules") == [[3.0, 1.25, 2.5]] * 2


def test_join_divides_by_all_ranks_or_by_those_left(ranks):
    assert both(ranks, "uneven_joined") == [-(4.5 + 9 + 4 / 2)] * 2
    # rank 0 has the inputs -2 and -1, rank 1 only 3: the second update is of rank 0 alone
    assert both(ranks, "joined_by_those_left") == [-1.0, (-2 + 3) / 2]


def test_a_bucket_holds_as_many_layers_as_its_size_allows(ranks):
    wanted = [[cap, [cap * MIB] * (16 // cap)] for cap in (1, 2, 4, 8, 16)]
    assert both(ranks, "bucket_sizes") == [wanted, wanted]


def test_sharded_the_last_alone_saves_reduce_scatters_and_holds_full_gradients(ranks):
    for found in both(ranks, "sharded"):
        (each, gathered, held), (last, as_many, more) = found["each"], found["last"]
        assert (each, last) == (4 * 4, 4)
        assert gathered == as_many == 4 * 4 * 2  # forward and backward
        assert more - held == MIB // 2


def test_sharded_the_gradient_is_the_full_batchs_to_the_bit(ranks):
    assert both(ranks, "sharded_eight") == [[1.0, -3.5]] * 2


def test_weights_are_handed_round_once(ranks):
    assert both(ranks, "wrapped") == [[1.0, 1.0], [1.0, 2.0]]


def test_ranks_that_differ_are_an_error(monkeypatch):
    monkeypatch.setattr(launching, "run_script", lambda text, ranks: [5.0, 9.0])
    with pytest.raises(ValueError, match=r"the ranks differ: \[5.0, 9.0\]"):
        on_ranks(nothing, everything)(2)


# how ranks fail: scripts without torch start at once

FIRST = "import json, os, pathlib, signal, sys, time\nrank = int(os.environ['RANK'])\n"
WAITS = "time.sleep(30)\n"
FAILURES = {
    "raise ValueError('a file is missing')": "rank 1 died: ValueError: a file is missing.",
    "os.kill(os.getpid(), signal.SIGKILL)": "rank 1 was killed (SIGKILL).",
    "sys.exit(3)": "rank 1 died: exit code 3.",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_dying_rank_ends_the_launch_with_its_own_words(failure):
    with pytest.raises(LaunchError) as raised:
        run_script(f"{FIRST}if rank == 1:\n    {failure}\n{WAITS}", limit=60)
    assert str(raised.value) == f"{FAILURES[failure]} The other ranks were stopped."


def test_what_ranks_print_is_printed_in_order_and_a_rank_may_return_nothing(capsys):
    text = f"{FIRST}print('hello')\nif rank:\n    pathlib.Path('rank1.json').write_text('[7]')\n"
    assert run_script(text) == [None, [7]]
    assert capsys.readouterr().out == "[rank 0] hello\n[rank 1] hello\n"


def aborts_python_as_it_ends(rank, device):
    import atexit

    atexit.register(os.abort)
    print("told")
    return rank


def test_a_launch_is_over_before_python_s_own_end_which_gloo_s_threads_may_abort(capsys):
    assert torchrun(aborts_python_as_it_ends) == [0, 1]
    assert capsys.readouterr().out == "[rank 0] told\n[rank 1] told\n"


@pytest.mark.parametrize(
    ("interruption", "raised"),
    [(subprocess.TimeoutExpired("", 9), LaunchError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["time", "keyboard"],
)
def test_ranks_that_wait_for_ever_are_stopped(interruption, raised, monkeypatch, tmp_path):
    seen, wait = [], subprocess.Popen.wait

    def wait_for_ranks(agent, timeout=None):
        if not seen:
            while len(list(tmp_path.iterdir())) < 2 and agent.poll() is None:
                time.sleep(0.05)
            seen.extend(running())
            raise interruption
        return wait(agent, timeout)

    monkeypatch.setattr(launching.subprocess.Popen, "wait", wait_for_ranks)
    text = f"{FIRST}pathlib.Path({str(tmp_path)!r}, str(rank)).touch()\n{WAITS}"
    with pytest.raises(raised):
        run_script(text, limit=9)
    assert len(seen) >= 3  # torchrun and two ranks
    assert not any(process.is_running() for process in seen)


def test_the_message_of_a_launch_that_took_too_long(monkeypatch):
    monkeypatch.setattr(launching, "cores", lambda: 2)
    told = "ranks had not ended after 9 s and were stopped"
    assert launching._too_slow(2, 9) == f"the 2 {told}; does one wait for another that never calls?"
    shared = "they share 2 cores: take fewer ranks, or a longer limit"
    assert launching._too_slow(4, 9) == f"the 4 {told}; {shared}"


def test_a_rank_that_lost_its_peer_is_not_the_cause(tmp_path):
    errors = "".join(f"  rank      : {rank} (local)\n  exitcode  : 1 (pid: 7)\n" for rank in (0, 1))
    lines = ("RuntimeError: [pair.cc:553] Connection closed by peer", "[rank1]: KeyError: 'x'")
    for rank, line in enumerate(lines):
        log = tmp_path / "run" / "attempt_0" / str(rank) / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"Traceback\n  in a file\n{line}\nlater words\n")
    told = "rank 1 died: KeyError: 'x'. The other ranks were stopped."
    assert launching._cause(errors, tmp_path) == told
    stopped = errors.replace(": 1 (pid", ": -15 (pid")
    told = "rank 0 was killed (SIGTERM, after: RuntimeError"
    assert launching._cause(stopped, tmp_path).startswith(told)
    assert launching._cause("a\nOSError: no\nb", tmp_path) == "torchrun failed: OSError: no"


def nothing(rank, device):
    return None


def test_a_port_in_use_is_told_at_once():
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"port {port} is in use, so the ranks can't meet"):
            torchrun(nothing, port=port)


def test_more_ranks_than_cores_are_refused_but_four_are_not(monkeypatch):
    monkeypatch.setattr(launching, "cores", lambda: 2)
    refused = "ranks must be from 1 to 4, got 5: more ranks than cores only wait for one another"
    with pytest.raises(ValueError, match=refused):
        torchrun(nothing, ranks=5)
    launching._check(ranks=4, limit=1, port=None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ranks": 0}, ValueError, "ranks must be a whole number of at least 1, got 0"),
        ({"ranks": 2.0}, TypeError, "ranks must be a whole number of at least 1, got 2.0"),
        ({"limit": 0}, ValueError, "limit must be a number of seconds above 0, got 0"),
        ({"limit": float("nan")}, ValueError, "limit must be .* above 0, got nan"),
        ({"limit": "9"}, TypeError, "limit must be a number of seconds, got '9'"),
        ({"port": 0}, ValueError, "port must be from 1 to 65535, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        torchrun(nothing, **arguments)


def test_a_script_is_imports_functions_and_the_call():
    text = script(nothing, my_samples)
    assert text.startswith("import json\n")
    assert text.index("def my_samples(") < text.index("def nothing(") < text.index("__main__")
    assert "    result = nothing(rank, device)\n" in text
    ast.parse(text)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (3, TypeError, "a script takes functions, got 3"),
        (lambda rank, device: 1, ValueError, "functions written with def, got <lambda>"),
        (eval("lambda: 1"), ValueError, "functions written with def, got <lambda>"),
    ],
)
def test_what_has_no_source_is_named(function, error, message):
    with pytest.raises(error, match=message):
        script(function)


def test_without_a_gpu_or_on_request_ranks_see_none(monkeypatch, tmp_path):
    monkeypatch.setenv("GA_DEVICE", "cpu")
    for cpu in (True, False):
        seen = launching._environment(tmp_path, cpu)
        assert (seen["CUDA_VISIBLE_DEVICES"], seen["GA_DEVICE"]) == ("", "cpu")
        assert seen["TMPDIR"] == str(tmp_path)
        assert seen["PYTHONPATH"].split(os.pathsep)[0] == str(Path(__file__).parents[2])
