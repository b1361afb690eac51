import functools
import math

import numpy
import pytest
import torch

from helpers.answers import complaint, is_stub, same_values

nan = float("nan")


def wrapped(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)

    return inner


def only_a_docstring(x):
    """The mean."""


def passes(x):
    pass


def hands_back_dots(x):
    """The mean."""
    return ...


class Callable:
    def __call__(self, x):
        return None


@pytest.mark.parametrize(
    "stub",
    [
        only_a_docstring,
        passes,
        hands_back_dots,
        lambda x: None,
        wrapped(passes),
        functools.partial(passes, 1),
        eval(compile("lambda x: ...", "<console>", "eval")),
    ],
)
def test_a_function_with_nothing_in_it_is_a_stub(stub):
    assert is_stub(stub)


def forgets_to_return(x):
    x / 2


def keeps_it(x):
    half = 0.5  # noqa: F841


@pytest.mark.parametrize(
    "written",
    [
        forgets_to_return,
        keeps_it,
        lambda x: 0,
        lambda x: x,
        Callable(),
        abs,
        int,
        lambda x: (None,),
    ],
)
def test_a_function_with_anything_in_it_is_none(written):
    assert not is_stub(written)


EQUAL = [
    ((1.0, 2.0), [1.0, 2.0]),
    (range(3), [0, 1, 2]),
    (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
    ([torch.tensor(1.0), numpy.float32(2.0)], (1.0, 2.0)),
    (torch.tensor([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
    (numpy.array([1.0, nan]), [1.0, nan]),
    (torch.tensor(0.1), 0.1),  # in float32
    (torch.tensor([0.1, nan]), [0.1, nan]),
    (torch.ones(2, 3), torch.ones(2, 3)),
    (torch.tensor([[1.5]], requires_grad=True), 1.5),
    (1.5, torch.tensor([1.5])),
    ([torch.tensor([1.5])], [1.5]),
    (nan, math.nan),
    ({"a": torch.ones(2), "b": (1, nan)}, {"b": [1, nan], "a": [1.0, 1.0]}),
    ({1, 2}, {2, 1}),
    ("right", "right"),
    ([], torch.ones(0)),
    (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), [1, 2]),
]


@pytest.mark.parametrize(("got", "expected"), EQUAL, ids=str)
def test_equal_values_are_equal_in_any_container(got, expected):
    assert same_values(got, expected) is True
    assert same_values(expected, got) is True


DIFFERENT = [
    ((1.0, 2.0), [1.0, 2.5]),
    ([1.0], [1.0, 2.0]),
    ([1.5], 1.5),
    (1.5, [1.5, 1.5]),
    (torch.ones(2), 1.0),
    (torch.ones(2, 3), torch.ones(3, 2)),
    (torch.tensor(1), 1.5),
    (nan, 1.0),
    ([nan], [1.0]),
    ("12", [1, 2]),
    ("2", 2),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ([[1, 2], [3]], [[1, 2], [4]]),
]


@pytest.mark.parametrize(("got", "expected"), DIFFERENT, ids=str)
def test_different_values_are_different_in_any_container(got, expected):
    assert same_values(got, expected) is False
    assert same_values(expected, got) is False


def close(got, expected):
    return all(abs(a - b) < 1e-9 for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("got", "expected", "same", "said"),
    [
        (1.5, 1.5, None, ""),
        (3.0, 1.5, None, "gave 3.0, should be 1.5 (2 times that)"),
        (torch.tensor(3.0), 1.5, None, "gave tensor(3.), should be 1.5 (2 times that)"),
        (1.5, 0, None, "gave 1.5, should be 0"),
        (nan, 1.5, None, "gave nan, should be 1.5"),
        (1.0 + 1e-9, 1.0, None, "gave 1.000000001, should be 1.0 (off by 1e-09)"),
        ("2", 2, None, "gave 2 (str), should be 2 (int)"),
        ((1,), [1, 2], None, "gave (1,), should be [1, 2] (1 long, should be 2)"),
        (
            [[1], [2, 3]],
            [[1], [2]],
            None,
            "gave [[1], [2, 3]], should be [[1], [2]] (at [1] 2 long, should be 1)",
        ),
        (
            torch.ones(3),
            torch.ones(2),
            torch.equal,
            "gave tensor([1., 1., 1.]), should be tensor([1., 1.]) (3 long, should be 2)",
        ),
        ([1.0], [1.0, 2.0], close, "gave [1.0], should be [1.0, 2.0] (1 long, should be 2)"),
        (
            1.0,
            [1.0, 2.0],
            close,
            "gave 1.0, should be [1.0, 2.0]; "
            "comparing them raised TypeError: 'float' object is not iterable",
        ),
        (
            torch.ones(2),
            1.0,
            lambda got, expected: got == expected,
            "gave tensor([1., 1.]), should be 1.0; comparing them raised RuntimeError: "
            "Boolean value of Tensor with more than one value is ambiguous",
        ),
    ],
)
def test_a_wrong_answer_is_told_with_what_came(got, expected, same, said):
    assert complaint(got, expected, same) == said
