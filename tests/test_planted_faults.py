"""The faults this course is about, planted in a copy of it: each must turn the suite red."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LESSON = "notebooks/01_eight_samples_two_steps.ipynb"
LINE_BY_LINE = "notebooks/03_the_loop_line_by_line.ipynb"
LAST_WINDOW = "notebooks/04_the_last_window.ipynb"
MANY_DEVICES = "notebooks/09_many_devices.ipynb"
LESSONS = (LESSON, LINE_BY_LINE, LAST_WINDOW, MANY_DEVICES)

# what is planted, where, the right text, the wrong text, and the test that must notice
FAULTS = {
    "division dropped": (
        "helpers/gradients.py",
        'return (1.0 if scaling == "none" else 1 / len(sizes),)',
        "return (1.0,)",
        "tests/test_gradients.py::test_divided_by_steps_equal_cuts_give_the_full_batch_to_the_bit",
    ),
    "wrong micro-batch size": (
        "helpers/samples.py",
        "return list(zip(x.split(tuple(sizes)), y.split(tuple(sizes)), strict=True))",
        "return list(zip(x.split(sizes[0]), y.split(sizes[0]), strict=False))[: len(sizes)]",
        "tests/test_gradients.py::test_weighted_by_samples_every_cut_gives_the_full_batch_to_the_bit",
    ),
    "gradient cleared between micro-batches": (
        "helpers/gradients.py",
        "        checks.scalar_loss(loss)\n",
        "        checks.scalar_loss(loss)\n        model.zero_grad()\n",
        "tests/test_gradients.py::test_unscaled_gradient_is_k_times_as_long",
    ),
    "weights by samples swapped for steps": (
        "helpers/gradients.py",
        'if scaling == "samples":',
        'if scaling == "steps":',
        "tests/test_gradients.py::test_factors_of_the_three_scalings",
    ),
    "a figure fed other numbers than the text": (
        "helpers/panels/cutting.py",
        "[part.tolist() for part in now.contributions]",
        "[part.tolist() for part in now.contributions[::-1]]",
        "tests/subjects/test_cutting.py::test_controls_at_every_end_and_in_any_order_leave_the_cutting_panel_right",
    ),
    "a curve fed other numbers than the text": (
        "helpers/panels/training.py",
        "self.picture.update(self.full, self.run,",
        "self.picture.update(self.run, self.full,",
        "tests/subjects/test_training.py::test_controls_at_every_end_and_in_any_order_leave_the_training_panel_right",
    ),
    "a short window that is not flushed": (
        "helpers/subjects/windows.py",
        "(last and policy in _FLUSHING)",
        "(last and policy not in _FLUSHING)",
        "tests/subjects/test_windows.py::test_five_micro_batches_with_k_4_over_two_epochs",
    ),
    "a bar fed other shares than the table": (
        "helpers/panels/windows.py",
        "            run.shares(),\n",
        "            run.shares()[::-1],\n",
        "tests/subjects/test_windows.py::test_controls_in_any_order_leave_the_windows_panel_right",
    ),
    "a line lit too late": (
        "helpers/panels/stepping.py",
        "            now.line,\n",
        "            now.line + 1,\n",
        "tests/subjects/test_stepping.py::test_controls_in_any_order_leave_the_stepping_panel_right",
    ),
    "labels counted before the shift": (
        "helpers/subjects/tokens.py",
        "return int((labels != IGNORED).sum())",
        "return int((labels != IGNORED).sum()) + len(labels)",
        "tests/subjects/test_tokens.py::test_two_rows_of_three_and_five_have_six_targets_not_eight",
    ),
    "tokens weighted by steps": (
        "helpers/subjects/tokens.py",
        '"tokens": count / max(total, 1),',
        '"tokens": 1 / len(sizes),',
        "tests/subjects/test_tokens.py::test_the_panels_error_is_what_autograd_measures",
    ),
    "a library's rule swapped for another's": (
        "helpers/subjects/libraries.py",
        '    "Keras": "carried on",\n',
        '    "Keras": "leaked",\n',
        "tests/subjects/test_libraries.py::test_a_rule_is_what_the_library_does",
    ),
    "a library's row fed another's run": (
        "helpers/panels/libraries.py",
        "for run in runs.values()\n        ]\n        self.picture",
        "for run in reversed(runs.values())\n        ]\n        self.picture",
        "tests/subjects/test_libraries.py::"
        "test_controls_in_any_order_leave_the_libraries_panel_right",
    ),
    "activations that do not grow": (
        "helpers/subjects/memory.py",
        "    kept = shape.layers * layer\n",
        "    kept = layer\n",
        "tests/subjects/test_memory.py",
    ),
    "a grader that takes any weight for right": (
        "helpers/loops/verdict.py",
        "off = (weights - expected).abs() > tolerance * expected.abs()",
        "off = (weights - expected).abs() > 4 * expected.abs()",
        "tests/test_loops.py::test_a_fault_is_told_by_what_the_loop_did",
    ),
    "a grader that takes any micro-batches for right": (
        "helpers/loops/verdict.py",
        "    if held != wanted:\n",
        "    if not held:\n",
        "tests/exercises/test_lesson_03.py::test_every_fault_is_told",
    ),
    "the short window dropped from the lesson's loop": (
        LAST_WINDOW,
        "while window := list(islice(batches, k)):",
        "while len(window := list(islice(batches, k))) == k:",
        "tests/test_lesson_loops.py::test_five_updates_of_four_and_one_use_fourteen_micro_batches",
    ),
    "an update's bar fed the right gradient": (
        "helpers/panels/museum.py",
        "UpdateBar(end, update.gradient.item(), update.right.item(),",
        "UpdateBar(end, update.right.item(), update.right.item(),",
        "tests/subjects/test_museum.py::test_controls_in_any_order_leave_the_museum_panel_right",
    ),
    "an exhibit of the museum that is mended": (
        "helpers/subjects/museum_loops.py",
        "total_iters=len(batches))",
        "total_iters=2)",
        "tests/subjects/test_museum.py::test_an_exhibit_gets_its_kind_and_no_other",
    ),
    "no_sync that changes nothing": (
        "helpers/subjects/devices.py",
        "if ranks > 1 and (last or not no_sync):",
        "if ranks > 1:",
        "tests/subjects/test_devices.py::"
        "test_every_setting_of_the_panel_takes_the_time_worked_out_by_hand",
    ),
    "a timeline fed other times than the table": (
        "helpers/panels/devices.py",
        "span.start, span.end) for span",
        "span.start, done.end) for span",
        "tests/subjects/test_devices.py::test_controls_in_any_order_leave_the_devices_panel_right",
    ),
    "ranks that outlive their launch": (
        "helpers/subjects/launching.py",
        "while left := [process for process in psutil.process_iter() if _names(process, folder)]:",
        "while left := []:",
        "tests/subjects/test_launching.py::test_ranks_that_wait_for_ever_are_stopped",
    ),
    "the first micro-batch of a window sent, not the last": (
        MANY_DEVICES,
        "quiet = nullcontext() if i == 3 else model.no_sync()",
        "quiet = nullcontext() if i == 0 else model.no_sync()",
        "tests/subjects/test_launching.py::"
        "test_all_reduces_are_k_without_no_sync_one_around_both_and_k_around_backward",
    ),
    "division dropped from the lesson's loop": (
        LESSON,
        "loss = loss / accumulation_steps  # scale",
        "loss = loss / 1  # scale",
        LESSON,
    ),
    "gradient cleared too early in the lesson's loop": (
        LESSON,
        "outputs = model(inputs)  # forward",
        "optimizer.zero_grad(); outputs = model(inputs)  # forward",
        LESSON,
    ),
    "boundary shifted by one in the lesson's loop": (
        LESSON,
        "if (step + 1) % accumulation_steps == 0:",
        "if step % accumulation_steps == 0:",
        LESSON,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_suite_turns_red(fault, tmp_path):
    place, right, wrong, noticing = FAULTS[fault]
    for part in ("helpers", "tests", "conftest.py", "pyproject.toml", *LESSONS):
        target = tmp_path / part
        target.parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, target)
    source = (tmp_path / place).read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{right!r} is no longer in {place}: plant the fault anew"
    (tmp_path / place).write_text(source.replace(right, wrong), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", noticing]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1, result.stdout
    assert "1 failed" in result.stdout
