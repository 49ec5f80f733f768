"""Copies that swap two loops are turned in registers, and still are copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.schedule import Schedule, create_schedule
from tests.covering import covering

TARGET = "llvm -num-threads=1"


def swapped(
    rows: int, columns: int, dtype: str, *tiles: tuple[int, int]
) -> tuple[Schedule, list[Any]]:
    """A transposed copy for each tile."""
    A = te.placeholder((columns, rows), dtype, name="A")
    copies = [te.compute((rows, columns), lambda i, j: A[j, i], name="B") for _ in tiles]
    s = create_schedule([B.op for B in copies])
    for B, tile in zip(copies, tiles, strict=True):
        _, _, ii, ji = s[B].tile(*B.op.axis, *tile)
        s[B].unroll(ii)
        s[B].vectorize(ji)
    return s, [A, *copies]


def lanes(dtype: str) -> int:
    return min(lw.Target(TARGET).vector_bytes // np.dtype(dtype).itemsize, 16)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    covering(
        ["float32", "float64", "float16", "int16", "uint8"],
        [(64, 64), (32, 96), (70, 50), (3, 200)],
        strength=1,
    ),
)
def test_against_numpy(dtype: str, shape: tuple[int, int]) -> None:
    rows, columns = shape
    n = lanes(dtype)
    tiles = ((n, n), (2 * n, n), (n, 2 * n), (n // 2, n))
    s, tensors = swapped(rows, columns, dtype, *tiles)
    a = np.arange(rows * columns).reshape(columns, rows).astype(dtype)
    results = [np.zeros((rows, columns), dtype) for _ in tiles]
    lw.build(s, tensors, TARGET)(a, *results)
    wrong = [tile for tile, b in zip(tiles, results, strict=True) if not np.array_equal(b, a.T)]
    assert not wrong


def test_memory_that_is_written_across() -> None:
    """The other way round: read along the vector, written along the unrolled loop."""
    n = lanes("float32")
    A = te.placeholder((n, 2 * n), name="A")
    B = te.compute((n, 2 * n), lambda i, j: A[i, j], name="B")
    C = te.compute((n, 2 * n), lambda i, j: B[i, j] + 1, name="C")
    s = create_schedule(C)
    s[B].transform_layout(lambda i, j: (j, i))
    s[B].unroll(s[B].op.axis[0])
    s[B].vectorize(s[B].op.axis[1])
    f = lw.build(s, [A, C], TARGET)
    a, c = np.random.rand(n, 2 * n).astype("float32"), np.zeros((n, 2 * n), "float32")
    f(a, c)
    np.testing.assert_array_equal(c, a + 1)
    assert "shufflevector" in f.get_source("ll-unoptimised")


def test_a_whole_square_needs_no_element_loads() -> None:
    n = lanes("float32")
    s, tensors = swapped(n, n, "float32", (n, n))
    text = lw.build(s, tensors, TARGET).get_source("ll-unoptimised")
    assert text.count(f"shufflevector <{n} x float>") == n  # of one round; a loop runs log2(n)
    assert f"icmp ult i32 %next, {n.bit_length() - 1}" in text
    assert text.count(f"load <{n} x float>") == n
    assert "insertelement" not in text


def test_a_tail_is_copied_by_elements() -> None:
    n = lanes("float32")
    s, tensors = swapped(n + 1, n + 1, "float32", (n, n))
    a = np.random.rand(n + 1, n + 1).astype("float32")
    b = np.zeros_like(a)
    lw.build(s, tensors, TARGET)(a, b)
    np.testing.assert_array_equal(b, a.T)


def test_rows_that_are_left_over_are_a_loop() -> None:
    n = lanes("float32")
    s, tensors = swapped(n + 3, 2 * n, "float32", (n, n))
    f = lw.build(s, tensors, TARGET)
    a = np.random.rand(2 * n, n + 3).astype("float32")
    b = np.zeros((n + 3, 2 * n), "float32")
    f(a, b)
    np.testing.assert_array_equal(b, a.T)
    text = f.get_source("ll-unoptimised")
    assert text.count("load float,") == 1
    assert "insertelement" not in text


def test_rows_that_are_left_over_and_lie_side_by_side_keep_vectors() -> None:
    n = lanes("float32")
    A = te.placeholder((n + 3, 2 * n), name="A")
    B = te.compute((n + 3, 2 * n), lambda i, j: A[i, j], name="B")
    s = create_schedule(B)
    _, _, ii, ji = s[B].tile(*B.op.axis, n, n)
    s[B].unroll(ii)
    s[B].vectorize(ji)
    f = lw.build(s, [A, B], TARGET)
    a = np.random.rand(n + 3, 2 * n).astype("float32")
    b = np.zeros_like(a)
    f(a, b)
    np.testing.assert_array_equal(b, a)
    assert "load float," not in f.get_source("ll-unoptimised")


def test_what_is_no_plain_copy_is_left_alone() -> None:
    n = lanes("float32")
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[j, i] * 2, name="B")
    s = create_schedule(B)
    s[B].unroll(B.op.axis[0])
    s[B].vectorize(B.op.axis[1])
    f = lw.build(s, [A, B], TARGET)
    a, b = np.random.rand(n, n).astype("float32"), np.zeros((n, n), "float32")
    f(a, b)
    np.testing.assert_array_equal(b, a.T * 2)
    assert "insertelement" in f.get_source("ll-unoptimised")


# ---------------------------------------------------------------- rows that are interleaved


def interleaved(k: int, n: int, dtype: str, group: int) -> tuple[Schedule, list[Any], te.Tensor]:
    """Rows are copied by groups, the elements of a group together, and read again."""
    A = te.placeholder((k, n), dtype, name="A")
    B = te.compute((k, n), lambda i, j: A[i, j], name="B")
    C = te.compute((k, n), lambda i, j: B[i, j], name="C")
    s = create_schedule(C)
    s[B].transform_layout(lambda i, j: (i // group, j, i % group), pad_value=0)
    i, j = s[B].op.axis
    outer, inner = s[B].split(i, factor=group)
    s[B].reorder(outer, inner, j)
    s[B].unroll(inner)
    s[B].vectorize(j)
    return s, [A, C], B


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64"])
@pytest.mark.parametrize(("group", "k", "n"), [(4, 8, 64), (4, 7, 37), (2, 6, 16), (2, 5, 3)])
def test_interleaved_rows_against_numpy(dtype: str, group: int, k: int, n: int) -> None:
    s, tensors, _ = interleaved(k, n, dtype, group)
    a, c = np.arange(k * n).reshape(k, n).astype(dtype), np.zeros((k, n), dtype)
    lw.build(s, tensors, TARGET)(a, c)
    np.testing.assert_array_equal(c, a)


def test_interleaved_rows_take_a_store_for_a_vector_of_each() -> None:
    s, tensors, _ = interleaved(4, 32, "uint8", 4)
    s[tensors[1]].vectorize(s[tensors[1]].op.axis[1])
    text = lw.build(s, tensors, "llvm -num-threads=1 -mcpu=x86-64-v3").get_source("ll-unoptimised")
    # Pieces of 8 columns: 4 of them, two rounds of shuffles each.
    assert text.count("store <32 x i8>") == 4 + 1
    assert text.count("shufflevector <8 x i8>") == 8
    assert text.count("shufflevector <16 x i8>") == 4
