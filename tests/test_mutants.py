"""Planting faults: each has tests to face, and a tested line tells from an untested one."""

from pathlib import Path

import pytest

from tests.mutants import mutating
from tests.mutants.__main__ import report
from tests.mutants.mutating import equivalents, sample
from tests.mutants.rooms import modules, room_of
from tests.mutants.running import run

ROOT = Path(__file__).parents[1]
LEFT_OUT = '''"""1 + 1"""

from dataclasses import dataclass

__all__ = ["é" * 1]
Either = Position | None


@dataclass(frozen=True)
class Record:
    number: int | None
    said: "str" = "é"


LINE = {"lw": 1, "ms": 2}
dict(ls=(0, (4, 2)), strict=True)


def nothing(a: int | None, *, b: str | None) -> int | None:
    """2 + 2"""
'''


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A tree with one module of two lines, of which its test sees one."""
    (tmp_path / "helpers").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"), "utf-8")
    (tmp_path / "helpers/__init__.py").write_text("WRONG = 1\n")
    (tmp_path / "helpers/planted.py").write_text("TESTED = 3\nUNTESTED = 5\n")
    (tmp_path / "tests/test_planted.py").write_text(
        "from helpers import planted\n\n\ndef test_it():\n    assert planted.TESTED == 3\n"
    )
    return tmp_path


@pytest.mark.parametrize("module", modules(ROOT))
def test_each_module_has_a_room_of_tests(module):
    assert room_of(module, ROOT)


def test_a_module_without_tests_is_an_error(planted):
    (planted / "helpers/alone.py").write_text("ONE = 1\n")
    with pytest.raises(LookupError, match=r"helpers/alone\.py has no tests"):
        list(run(planted, sample(planted, "helpers/alone.py", 1, seed=0)))


def test_a_room_that_is_not_there_is_an_error():
    with pytest.raises(LookupError, match="nowhere"):
        sample(ROOT, "helpers/nowhere", 1, seed=0)


def test_a_sample_is_the_same_for_one_seed_and_another_for_another():
    first, again, other = (sample(ROOT, "helpers/memory", 5, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert len(first) == 5


def test_no_place_is_drawn_twice_and_none_outside_the_room():
    drawn = sample(ROOT, "helpers/samples.py", 10_000, seed=0)
    assert {mutant.module for mutant in drawn} == {"helpers/samples.py"}
    assert len({mutant.mutated for mutant in drawn}) == len(drawn) > 10


def test_annotations_aliases_dataclass_decorators_docstrings_looks_and_all_are_left_out(planted):
    (planted / "helpers/planted.py").write_text(LEFT_OUT, "utf-8")
    assert sample(planted, "helpers", 10, seed=0) == []


def test_of_a_tested_and_an_untested_line_one_is_killed_and_one_survives(planted):
    results = list(run(planted, sample(planted, "helpers", 10, seed=0)))
    assert sorted((result.mutant.line, result.killed) for result in results) == [
        (1, True),
        (2, False),
    ]
    table = report(results)
    assert "helpers                    1    2    50%" in table
    assert "helpers/planted.py:2 survives\n-UNTESTED = 5\n+UNTESTED =" in table
    assert "-TESTED" not in table


def test_a_listed_equivalent_is_not_planted_and_counted_apart(planted, monkeypatch):
    monkeypatch.setattr(mutating, "EQUIVALENT", planted / "equivalent.toml")
    drawn = sample(planted, "helpers", 10, seed=0)
    line, becomes = (line[1:] for line in drawn[0].diff())
    mutating.EQUIVALENT.write_text(
        f'[[equivalent]]\nmodule = "helpers/planted.py"\nline = "{line}"\nbecomes = "{becomes}"\n'
    )
    assert [mutant.is_equivalent() for mutant in drawn] == [True, False]
    assert report([], drawn[:1]).endswith("not planted: 1 that tests/mutants/equivalent.toml lists")


def test_each_listed_equivalent_still_stands_in_its_module_and_says_why():
    for listed in equivalents():
        lines = [line.strip() for line in (ROOT / listed["module"]).read_text("utf-8").split("\n")]
        assert set(listed["line"].split("\n")) <= set(lines)
        assert len(listed["why"]) > 10


def test_a_fault_that_breaks_pytest_itself_is_killed(planted):
    (planted / "conftest.py").write_text(
        "def pytest_runtest_protocol(item):\n    from helpers import planted\n\n"
        "    assert (planted.TESTED, planted.UNTESTED) == (3, 5)\n"
    )
    results = list(run(planted, sample(planted, "helpers", 10, seed=0)))
    assert [result.killed for result in results] == [True, True]


def test_tests_that_fail_without_a_fault_are_an_error(planted):
    mutants = sample(planted, "helpers", 1, seed=0)
    (planted / "helpers/planted.py").write_text("TESTED = 4\nUNTESTED = 5\n")
    with pytest.raises(RuntimeError, match="must pass without a fault"):
        list(run(planted, mutants))


def test_a_fault_that_never_ends_is_killed_with_what_it_started(planted, monkeypatch):
    monkeypatch.setattr("tests.mutants.running._ALLOWED", (0, 2))
    mutants = sample(planted, "helpers", 1, seed=0)
    (planted / "tests/test_planted.py").write_text(
        "from helpers import planted\n\n\ndef test_it():\n"
        "    while (planted.TESTED, planted.UNTESTED) != (3, 5):\n        pass\n"
    )
    (result,) = run(planted, mutants)
    assert result.killed
    assert result.seconds >= 2
