from pathlib import Path

import pytest

from tests.notebook_rules import RULES, Rule, read

LESSONS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_lessons():
    assert LESSONS


@pytest.mark.parametrize("keep", RULES, ids=lambda keep: keep.__name__)
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson(lesson: Path, keep: Rule):
    assert keep(read(lesson)) == []
