"""Vectors of floats to whole numbers: cut to their limits, towards 0, and 0 of NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te

NARROW = ("int8", "uint8", "int16", "uint16")
WHOLE = (*NARROW, "int32", "uint32", "int64")


def cast(dtype: str, to: str, lanes: int) -> lw.Module:
    """A function that converts 64 numbers, by vectors."""
    A = te.placeholder((64,), dtype, name="A")
    B = te.compute((64,), lambda i: A[i].astype(to), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.axis[0], factor=lanes)
    s[B].vectorize(inner)
    return lw.build(s, [A, B], "llvm", name="f")


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
@pytest.mark.parametrize("to", WHOLE)
@pytest.mark.parametrize("lanes", [4, 8, 32])
def test_limits_of_all_types(dtype: str, to: str, lanes: int) -> None:
    values, out = around_limits(dtype), np.zeros(64, to)
    cast(dtype, to, lanes)(values, out)
    assert out.tolist() == [expected(float(x), to) for x in values]


@pytest.mark.parametrize("to", [*NARROW, "int32"])
@settings(max_examples=40)
@given(numbers=st.lists(st.floats(width=32), min_size=64, max_size=64))
def test_any_number(to: str, numbers: list[float]) -> None:
    values, out = np.array(numbers, np.float32), np.zeros(64, to)
    cast("float32", to, 16)(values, out)
    assert out.tolist() == [expected(float(x), to) for x in values]


@pytest.mark.parametrize("to", [*NARROW, "int32"])
def test_vectors_are_not_taken_apart(to: str) -> None:
    text = cast("float32", to, 16).get_source("asm")
    assert "cvttps2dq" in text
    assert "cvttss2si" not in text
