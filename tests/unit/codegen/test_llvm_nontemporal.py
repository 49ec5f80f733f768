"""Stores past the caches: what they are made of, where they are not made, and that all arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loopwright import te
from loopwright.codegen.build import build
from loopwright.runtime.linker import architecture
from loopwright.schedule import Schedule, create_schedule

TARGETS = ["llvm -num-threads=2", "llvm -num-threads=1", "c -num-threads=2"]
on_x86 = pytest.mark.skipif(architecture() != "x86_64", reason="stores of x86")


def placed(shape: tuple[int, ...], offset: int, dtype: str = "float32") -> npt.NDArray[Any]:
    """Zeros that begin so many bytes behind a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, "uint8")
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def added(n: int, m: int, width: int = 16) -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    _, lane = s[b].split(b.op.axis[1], factor=width)
    s[b].vectorize(lane)
    s[b].parallel(b.op.axis[0])
    s[b].pragma(lane, "nontemporal")
    return s, [a, b]


@pytest.mark.parametrize("offset", [0, 4, 16, 32])
@pytest.mark.parametrize("columns", [64, 72, 77])
@pytest.mark.parametrize("target", TARGETS)
def test_results_wherever_they_lie(target: str, columns: int, offset: int) -> None:
    """Rows that begin within a vector, tails, and arrays on no multiple of a vector."""
    s, args = added(6, columns)
    x = np.random.default_rng(0).random((6, columns), "float32")
    y = placed(x.shape, offset)
    build(s, args, target)(x, y)
    np.testing.assert_array_equal(y, x + 1)


@on_x86
def test_whole_vectors_go_past_the_caches_and_a_fence_ends_them() -> None:
    s, args = added(6, 64)
    asm = build(s, args, "llvm -mcpu=x86-64-v3 -num-threads=2").get_source("asm")
    assert "vmovntps" in asm
    assert "vmovups\t%ymm" in asm
    first = asm.index("vmovntps")
    assert first < asm.index("sfence", first) < asm.index("ret", first)
    s[args[1]].pragma(s[args[1]].leaf_iter_vars[-1], "nontemporal", False)
    plain = build(s, args, "llvm -mcpu=x86-64-v3 -num-threads=2").get_source("asm")
    assert "movnt" not in plain
    assert "sfence" not in plain


@on_x86
def test_accumulators_in_registers_stay_there() -> None:
    """A local stage is on the stack, whose lines are read again at once."""
    a = te.placeholder((8, 32), name="A")
    b = te.compute((8, 32), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 32), lambda i, j: b[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].vectorize(b.op.axis[1])
    s[b].pragma(b.op.axis[1], "nontemporal")
    s[c].vectorize(c.op.axis[1])
    f = build(s, [a, c], "llvm -num-threads=1")
    assert "movnt" not in f.get_source("asm")
    x, y = np.ones((8, 32), "float32"), np.zeros((8, 32), "float32")
    f(x, y)
    np.testing.assert_array_equal(y, 3)


@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize("shape", [(64, 96), (33, 48), (64, 50)])
def test_turned_squares(shape: tuple[int, int], offset: int) -> None:
    """Columns of a square that lie on multiples of a vector, and some that do not."""
    m, n = shape
    a = te.placeholder((n, m), name="A")
    b = te.compute((m, n), lambda i, j: a[j, i], name="B")
    s = create_schedule(b)
    i0, i1 = s[b].split(b.op.axis[0], factor=16)
    j0, j1 = s[b].split(b.op.axis[1], factor=16)
    s[b].reorder(i0, j0, i1, j1)
    s[b].unroll(i1)
    s[b].vectorize(j1)
    s[b].pragma(j1, "nontemporal")
    s[b].parallel(i0)
    f = build(s, [a, b], "llvm -num-threads=2")
    if architecture() == "x86_64" and n % 16 == 0:
        assert "movnt" in f.get_source("asm")
    x = np.random.default_rng(0).random((n, m), "float32")
    y = placed((m, n), offset)
    f(x, y)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("target", TARGETS)
def test_another_thread_reads_what_was_stored(target: str) -> None:
    """An intermediate tensor that goes past the caches, read across by the next parallel loop; a
    serial nest before a parallel one, too."""
    n = 128
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((n, n), lambda i, j: b[n - 1 - i, j] * 2.0, name="C")
    d = te.compute((n, n), lambda i, j: c[j, i] + b[i, j], name="D")
    s = create_schedule(d)
    for t, parallel in ((b, False), (c, True)):
        _, lane = s[t].split(t.op.axis[1], factor=16)
        s[t].vectorize(lane)
        s[t].pragma(lane, "nontemporal")
        if parallel:
            s[t].parallel(t.op.axis[0])
    s[d].parallel(d.op.axis[0])
    f = build(s, [a, d], target)
    for seed in range(20):
        x = np.random.default_rng(seed).random((n, n), "float32")
        y = np.zeros_like(x)
        f(x, y)
        np.testing.assert_array_equal(y, (x[::-1] + 1).T * 2 + (x + 1))
