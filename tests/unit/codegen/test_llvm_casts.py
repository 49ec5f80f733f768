"""Vectors of floats to whole numbers: cut to their limits, towards 0, and 0 of NaN."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from tests.covering import examples

NARROW = ("int8", "uint8", "int16", "uint16")
WHOLE = (*NARROW, "int32", "uint32", "int64")


#: A conversion: to a dtype, by vectors of some lanes.
Case = tuple[str, int]


@cache
def casts(dtype: str, cases: tuple[Case, ...]) -> lw.Module:
    """A function that converts 64 numbers, with a result for each case."""
    A = te.placeholder((64,), dtype, name="A")
    outs = [te.compute((64,), lambda i, to=to: A[i].astype(to)) for to, _ in cases]
    s = te.create_schedule([out.op for out in outs])
    for out, (_, lanes) in zip(outs, cases, strict=True):
        s[out].vectorize(s[out].split(out.op.axis[0], factor=lanes)[1])
    return lw.build(s, [A, *outs], "llvm", name="f")


def wrong(values: np.ndarray, cases: tuple[Case, ...]) -> list[Case]:
    """The cases whose results differ from those of Python."""
    outs = [np.zeros(64, to) for to, _ in cases]
    casts(values.dtype.name, cases)(values, *outs)
    return [
        (to, lanes)
        for (to, lanes), out in zip(cases, outs, strict=True)
        if out.tolist() != [expected(float(x), to) for x in values]
    ]


def expected(x: float, to: str) -> int:
    """By Python's own numbers, which have no limits."""
    limits = np.iinfo(to)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return int(limits.max if x > 0 else limits.min)
    return min(max(int(x), int(limits.min)), int(limits.max))


def around_limits(dtype: str) -> np.ndarray:
    """Limits of all types and the floats beside them, NaN, infinities and numbers between."""
    one = np.dtype(dtype).type
    limits = [one(v) for t in WHOLE for v in (np.iinfo(t).min, np.iinfo(t).max)]
    near = [np.nextafter(v, one(s * np.inf)) for v in limits for s in (-1, 1)]
    halves = [one(x) for x in (0.0, -0.0, 0.5, -0.5, -0.99, 127.5, -128.5, 254.99, 255.5, 1e30)]
    odd = [one(x) for x in (np.nan, -np.nan, np.inf, -np.inf)]
    found = np.array([*limits, *near, *halves, *odd], dtype)
    return np.resize(found, 64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits_of_all_types(dtype: str) -> None:
    assert not wrong(around_limits(dtype), tuple(product(WHOLE, (4, 8, 32))))


@settings(max_examples=examples(20))
@given(numbers=st.lists(st.floats(width=32), min_size=64, max_size=64))
def test_any_number(numbers: list[float]) -> None:
    cases = tuple((to, 16) for to in (*NARROW, "int32"))
    assert not wrong(np.array(numbers, np.float32), cases)


@pytest.mark.parametrize("to", [*NARROW, "int32"])
def test_vectors_are_not_taken_apart(to: str) -> None:
    text = casts("float32", ((to, 16),)).get_source("asm")
    assert "cvttps2dq" in text
    assert "cvttss2si" not in text
