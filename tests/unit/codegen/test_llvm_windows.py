"""Vectors whose lanes lie near each other: reflected, clamped, repeated and reversed axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import te
from loopwright.codegen.build import build
from loopwright.runtime.linker import architecture
from loopwright.schedule import create_schedule
from tests.covering import examples

ROW = 40
TARGETS = ["llvm -num-threads=1", "llvm -num-threads=1 -mcpu=x86-64-v3"]
on_x86 = pytest.mark.skipif(architecture() != "x86_64", reason="instructions of x86")


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What is done to the loop variable, one after the other."""
    one = st.one_of(
        st.tuples(st.just("+"), st.integers(-30, 30)),
        st.tuples(st.sampled_from(["min", "max"]), st.integers(-5, ROW)),
        st.tuples(st.just("//"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["abs", "-"]), st.just(0)),
    )
    return draw(st.lists(one, min_size=1, max_size=5))


def made(j: Any, done: list[tuple[str, int]]) -> Any:
    """An index from a loop variable, within the row."""
    for op, n in done:
        match op:
            case "+":
                j = j + n
            case "min":
                j = te.min(j, n)
            case "max":
                j = te.max(j, n)
            case "//":
                j = j // n
            case "abs":
                j = te.abs(j)
            case _:
                j = 3 - j
    return te.max(te.min(j, ROW - 1), 0)


def right(count: int, done: list[tuple[str, int]]) -> npt.NDArray[np.int64]:
    """The indices."""
    j = np.arange(count)
    for op, n in done:
        match op:
            case "+":
                j = j + n
            case "min":
                j = np.minimum(j, n)
            case "max":
                j = np.maximum(j, n)
            case "//":
                j = j // n
            case "abs":
                j = np.abs(j)
            case _:
                j = 3 - j
    return np.clip(j, 0, ROW - 1)


@settings(max_examples=examples(12), deadline=None)
@given(steps(), st.integers(17, 70), st.sampled_from(["float32", "int32", "float64", "int8"]))
@pytest.mark.parametrize("target", TARGETS)
def test_any_index_of_small_steps(
    target: str, done: list[tuple[str, int]], count: int, dtype: str
) -> None:
    """Tails, whose lanes are switched off, as well; rows are chosen by data."""
    if architecture() != "x86_64" and "mcpu" in target:
        return
    a, at = te.placeholder((5, ROW), dtype, name="A"), te.placeholder((3,), "int32", name="at")
    row = lambda i: te.max(te.min(at[i], 4), 0)  # noqa: E731
    b = te.compute((3, count), lambda i, j: a[row(i), made(j, done)], name="B")
    s = create_schedule(b)
    _, lane = s[b].split(b.op.axis[1], factor=16)
    s[b].vectorize(lane)
    x = np.random.default_rng(0).integers(0, 100, (5, ROW)).astype(dtype)
    rows = np.array([4, 0, 2], "int32")
    y = np.zeros((3, count), dtype)
    build(s, [a, at, b], target)(x, rows, y)
    np.testing.assert_array_equal(y, x[rows][:, right(count, done)])


def reflected(n: int, dtype: str = "float32") -> str:
    """The assembly of a reflected row, after its answer was compared."""
    a = te.placeholder((3, n), dtype, name="A")

    def back(j: Any) -> Any:
        return te.abs((n - 1) - te.abs((n - 1) - (j - 2)))

    b = te.compute((3, n + 4), lambda i, j: a[i, back(j)], name="B")
    s = create_schedule(b)
    _, lane = s[b].split(b.op.axis[1], factor=16)
    s[b].vectorize(lane)
    f = build(s, [a, b], "llvm -mcpu=x86-64-v3")
    x = np.random.default_rng(0).integers(0, 100, (3, n)).astype(dtype)
    y = np.zeros((3, n + 4), dtype)
    f(x, y)
    np.testing.assert_array_equal(y, np.pad(x, ((0, 0), (2, 2)), "reflect"))
    return f.get_source("asm")


@on_x86
def test_a_reflected_row_is_permuted_and_not_gathered() -> None:
    asm = reflected(56)
    assert "vperm" in asm
    assert not any(x in asm for x in ("vpinsrd", "vinsertps"))


@on_x86
def test_rows_that_are_shorter_than_a_vector_are_gathered() -> None:
    """A window of a vector would reach beyond the tensor."""
    assert "vperm" not in reflected(6)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("width", [32, 40, 45])
def test_a_reversed_row_is_loaded_in_vectors(dtype: str, width: int) -> None:
    """With a tail under a mask, and what is read under a condition."""
    a = te.placeholder((3, ROW), dtype, name="A")
    zero = te.const(0, dtype)
    b = te.compute(
        (3, width), lambda i, j: te.if_then_else(j < ROW, a[i, ROW - 1 - j], zero), name="B"
    )
    s = create_schedule(b)
    _, lane = s[b].split(b.op.axis[1], factor=16)
    s[b].vectorize(lane)
    f = build(s, [a, b], "llvm -num-threads=1")
    x = np.random.default_rng(0).integers(0, 100, (3, ROW)).astype(dtype)
    y = np.zeros((3, width), dtype)
    f(x, y)
    wide = np.pad(x[:, ::-1], ((0, 0), (0, max(width - ROW, 0))))
    np.testing.assert_array_equal(y, wide[:, :width])
    if architecture() == "x86_64":
        # AVX2 has no masked loads of bytes.
        asm = build(s, [a, b], "llvm -mcpu=x86-64-v4 -num-threads=1").get_source("asm")
        assert not any(x in asm for x in ("vinsertps", "vpinsrb"))
