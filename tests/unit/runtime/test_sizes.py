"""Sizes of a call: values from shapes and arguments, and every way in which they disagree."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.artifacts.manifest import ArgSpec, SizesSpec, evaluate, linear, text
from loopwright.runtime.kernels.symbolic import MAX_EXTENT, CallSizes


def sizes(*shapes: list[Any], extents: Any = (), nonnegative: bool = False) -> CallSizes:
    variables = (("n", "int32", nonnegative), ("m", "int32", False))
    args = [ArgSpec("ABC"[k], tuple(s), "float32", False) for k, s in enumerate(shapes)]
    return CallSizes(SizesSpec(variables, tuple(extents)), args)


@pytest.mark.parametrize(
    ("e", "value", "shown"),
    [
        (7, 7, "7"),
        ("n", 5, "n"),
        (["+", "n", 1], 6, "n + 1"),
        (["//", ["+", "n", 7], 8], 1, "(n + 7) // 8"),
        (["%", ["*", "n", "m"], 4], 3, "(n * m) % 4"),
        (["max", ["-", "n", 9], 0], 0, "max(n - 9, 0)"),
    ],
)
def test_expressions(e: Any, value: int, shown: str) -> None:
    assert evaluate(e, {"n": 5, "m": 3}) == value
    assert text(e) == shown


@pytest.mark.parametrize("e", ["k", ["**", "n", 2], ["+", "n"], None, ["//", "n", 0], 1.5])
def test_what_is_no_expression(e: Any) -> None:
    with pytest.raises(UsageError, match="build the program again"):
        evaluate(e, {"n": 5})


@pytest.mark.parametrize(
    ("e", "want"),
    [
        ("n", ("n", 1, 0)),
        (["+", ["*", "n", 2], 3], ("n", 2, 3)),
        (["*", ["-", "n", 1], 4], ("n", 4, -4)),
        (["+", 2, "n"], ("n", 1, 2)),
        (["*", "n", "m"], None),
        (["//", "n", 2], None),
        (3, None),
    ],
)
def test_linear_expressions(e: Any, want: Any) -> None:
    assert linear(e) == want


def test_values_come_from_dimensions_and_arguments() -> None:
    s = sizes(["n", 4], [["+", ["*", "m", 2], 1]])
    assert s.bind("f", [(5, 4), (7,)], {}) == {"n": 5, "m": 3}
    assert sizes(["n"]).bind("f", [(5,)], {"m": 3}) == {"n": 5, "m": 3}


@pytest.mark.parametrize(
    ("s", "shapes", "given", "message"),
    [
        (
            sizes(["n", "m"], ["m", "n"]),
            [(3, 4), (5, 3)],
            {},
            "f: dimension 0 of argument 1 ('B') is 5, so m is 5, but dimension 1 of argument 0 "
            "('A') says that m is 4",
        ),
        (
            sizes(["n"]),
            [(3,)],
            {"n": 4, "m": 1},
            "f: dimension 0 of argument 0 ('A') is 3, so n is 3, but the argument says that n is 4",
        ),
        (
            sizes(["n", "m"], [["*", "n", "m"]]),
            [(3, 4), (11,)],
            {},
            "f: dimension 0 of argument 1 ('B') is 11, expected n * m = 12 with n = 3, m = 4",
        ),
        (
            sizes(["n", 4, "m"]),
            [(3, 5, 1)],
            {},
            "f: dimension 1 of argument 0 ('A') is 5, expected 4 with n = 3, m = 1",
        ),
        (
            sizes([["*", "n", 2], "m"]),
            [(7, 1)],
            {},
            "f: dimension 0 of argument 0 ('A') is 7, which n * 2 never is",
        ),
        (
            sizes(["n", ["+", "m", 1]]),
            [(3,)],
            {},
            "f: argument 0 ('A'): expected 2 dimensions [n, m + 1], got shape (3,)",
        ),
        (
            sizes(["n", "m"], extents=[[["-", "n", 2], "n - 2"]]),
            [(2, 1)],
            {},
            "f: the extent n - 2 is 0 with n = 2, m = 1; extents are 1 to 1073741824 (0 is served "
            "where no output has elements)",
        ),
        (
            sizes(["n", "m"], extents=[["n", "n"]]),
            [(MAX_EXTENT + 1, 1)],
            {},
            "f: the extent n is 1073741825 with n = 1073741825, m = 1; extents are 1 to 1073741824",
        ),
        (
            sizes(["m"], nonnegative=True),
            [(1,)],
            {"n": -1},
            "f: n = -1 is not a size that is not negative",
        ),
        (sizes(["m"]), [(1,)], {"n": 1 << 31}, "f: n = 2147483648 is not int32"),
        (sizes(["m"]), [(1,)], {"n": 1.0}, "f: the size 'n' is an int, got 1.0"),
        (sizes(["m"]), [(1,)], {"n": True}, "f: the size 'n' is an int, got True"),
    ],
)
def test_refusals(s: CallSizes, shapes: Any, given: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as e:
        s.bind("f", shapes, given)
    assert str(e.value) == message
