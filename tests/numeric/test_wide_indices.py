"""Loops, axes and index products that 32 bits cannot hold.

The tensors of more than 2^31 elements are never touched but in a few places: the system gives them
no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuzzing.differential import Checker
from loopwright import te
from loopwright.driver import build
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from loopwright.testing.numpy_eval import Array, evaluate
from tests.numeric.programs import run

TARGETS = ["llvm", "c", "interp"]
COMPILED = ["llvm", "c"]
#: More elements than an int32 can count, in one dimension and in two.
LONG, ROWS, COLUMNS = 3_000_000_000, 60_000, 50_000
STRIDE = 130_000_000
COUNT = LONG // STRIDE


def plain(s: Any, B: Any) -> None:
    """One loop."""


def vectorized(s: Any, B: Any) -> None:
    """Vectors of 8, the last one cut off."""
    _, inner = s[B].split(B.op.axis[0], 8)
    s[B].vectorize(inner)


def unrolled(s: Any, B: Any) -> None:
    """Five copies, the last tile cut off."""
    _, inner = s[B].split(B.op.axis[0], 5)
    s[B].unroll(inner)


def parallel(s: Any, B: Any) -> None:
    """One iteration a task."""
    s[B].parallel(B.op.axis[0])


@pytest.fixture(scope="module")
def marked() -> Array:
    """Zeros with a number at every multiple of `STRIDE`."""
    out = np.zeros(LONG, "int8")
    out[np.arange(COUNT) * STRIDE] = np.arange(COUNT)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("schedule", [plain, vectorized, unrolled, parallel])
def test_an_index_beyond_32_bits_reads_its_element(
    marked: Array, schedule: Callable[[Any, Any], None], target: str
) -> None:
    A = te.placeholder((LONG,), "int8", name="A")
    M = te.placeholder((ROWS, COLUMNS), "int8", name="M")
    product = te.compute((COUNT,), lambda k: A[k * STRIDE], name="product")
    flat = te.compute(
        (COUNT,), lambda k: M[(k * STRIDE) // COLUMNS, (k * STRIDE) % COLUMNS], name="flat"
    )
    offset = te.compute((COUNT,), lambda k: M[k * (STRIDE // COLUMNS), 0], name="offset")
    for source, B, array in (
        (A, product, marked),
        (M, flat, marked.reshape(ROWS, COLUMNS)),
        (M, offset, marked.reshape(ROWS, COLUMNS)),
    ):
        s = create_schedule(B)
        schedule(s, B)
        out = np.zeros(COUNT, "int8")
        build(s, [source, B], target)(array, out)
        assert out.tolist() == list(range(COUNT)), B.op.name


@pytest.mark.parametrize("target", COMPILED)
@pytest.mark.slow
def test_a_fused_loop_of_more_than_int32_iterations_sums_right(target: str) -> None:
    n, m = 54_000, 40_000
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, m), "j")
    x = te.placeholder((1,), "int64", name="x")
    C = te.compute((1,), lambda _: te.sum(x[0] * i.astype("int64"), axis=[i, j]), name="C")
    s = create_schedule(C)
    fused = s[C].fuse(i, j)
    s[C].split(fused, 7)
    out = np.zeros(1, "int64")
    build(s, [x, C], target)(np.ones(1, "int64"), out)
    assert out[0] == m * n * (n - 1) // 2


@pytest.mark.parametrize("target", COMPILED)
@pytest.mark.slow
def test_an_axis_of_more_than_int32_iterations_sums_right(target: str) -> None:
    n = 2_160_000_000
    i = te.reduce_axis((0, n), "i")
    x = te.placeholder((1,), "int64", name="x")
    C = te.compute((1,), lambda _: te.sum(x[0] * (i // 2).astype("int64"), axis=i), name="C")
    out = np.zeros(1, "int64")
    build(create_schedule(C), [x, C], target)(np.ones(1, "int64"), out)
    half = n // 2
    assert out[0] == half * (half - 1)


def test_the_loop_variable_and_its_parts_get_their_widths() -> None:
    i, j = te.reduce_axis((0, 54_000), "i"), te.reduce_axis((0, 40_000), "j")
    x = te.placeholder((1,), "int64", name="x")
    C = te.compute((1,), lambda _: te.sum(x[0] * i.astype("int64"), axis=[i, j]), name="C")
    s = create_schedule(C)
    s[C].fuse(i, j)
    text = str(lower(s, [x, C]))
    assert "i.j.q = i.j // int64(40000)" in text
    assert "x[0] * int64(int32(i.j.q))" in text


@pytest.mark.parametrize("schedule", [plain, vectorized, unrolled])
def test_values_made_of_axes_wrap_as_data_does(
    schedule: Callable[[Any, Any], None], checker: Checker
) -> None:
    """However the loops are split or fused: only what lowering makes of loops is wider."""
    B = te.compute((13,), lambda i: (i * 1_000_000_000).astype("int64") + i // 3, name="B")
    s = create_schedule(B)
    schedule(s, B)
    run(s, [B], [], checker)
    k = np.arange(13, dtype=np.int32)
    want = (k * np.int32(1_000_000_000)).astype("int64") + k // 3
    assert evaluate(s.dag, {})[0].tolist() == want.tolist()


def test_programs_that_fit_32_bits_are_left_alone() -> None:
    A = te.placeholder((1000, 1000), name="A")
    B = te.compute((1000, 1000), lambda i, j: A[j, i] + 1.0, name="B")
    s = create_schedule(B)
    s[B].fuse(*B.op.axis)
    assert "int64" not in str(lower(s, [A, B]))
