"""Lesson 11's exercises take every right answer and catch every plausible wrong one."""

import pytest

from helpers.exercises.lesson_11 import ALL_FOUND, RIGHT, SUSPECTS, given_away_by, kinds_of
from helpers.subjects.museum import EXHIBITS
from helpers.subjects.museum_data import right_loop
from tests.exercises.as_asked import says

LESSON = "11_audit_your_own_loop"
