"""Vectorized reduction loops: every place that such a loop can have, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def integers(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Small integers: sums of them are exact in any order."""
    return RNG.integers(-4, 5, shape).astype(dtype)


def check(s: Schedule, args: list[te.Tensor], want: Any, *inputs: Array) -> Func:
    """Interpreter and compiled code give ``want``; returns the nest."""
    f = lower(s, args)
    out = np.full(args[-1].shape, 99, args[-1].dtype)
    interpret(f, [*inputs, out])
    np.testing.assert_array_equal(out, want)
    out[...] = 99
    build(s, args)(*inputs, out)
    np.testing.assert_array_equal(out, want)
    return f


def compiled(s: Schedule, args: list[te.Tensor]) -> Callable[[list[Array]], object]:
    """A call of the compiled schedule, as of the interpreter."""
    f = build(s, args)
    return lambda arrays: f(*arrays)


def rows(n: int, k: int, dtype: str = "float32", reducer: Any = te.sum) -> Any:
    """``C[i] = reduce over k of A[i, k]``: schedule, tensors, axis."""
    a = te.placeholder((n, k), dtype, name="A")
    r = te.reduce_axis(k, "k")
    c = te.compute((n,), lambda i: reducer(a[i, r], axis=r), name="C")
    return create_schedule(c), [a, c], r


@pytest.mark.parametrize("extent", [2, 3, 5, 7, 8, 12, 16, 24, 33, 100])
def test_any_number_of_lanes(extent: int) -> None:
    s, (a, c), r = rows(3, extent)
    s[c].vectorize(r)
    x = integers((3, extent))
    check(s, [a, c], x.sum(axis=1), x)


@pytest.mark.parametrize("extent", [15, 16, 17, 61])
@pytest.mark.parametrize("lanes", [4, 16, 20, 32])
def test_a_tail_adds_nothing(extent: int, lanes: int) -> None:
    s, (a, c), r = rows(4, extent)
    _, ki = s[c].split(r, factor=lanes)
    s[c].vectorize(ki)
    x = integers((4, extent))
    check(s, [a, c], x.sum(axis=1), x)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8", "uint8", "int64"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reducers_and_dtypes(name: str, dtype: str) -> None:
    s, (a, c), r = rows(2, 37, dtype, getattr(te, name))
    _, ki = s[c].split(r, factor=8)
    s[c].vectorize(ki)
    x = RNG.integers(1, 3, (2, 37)).astype(dtype)
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[name]
    check(s, [a, c], combine.reduce(x, axis=1, dtype=dtype), x)


def test_nan_is_kept_by_max() -> None:
    s, (a, c), r = rows(2, 20, "float32", te.max)
    s[c].vectorize(r)
    x = integers((2, 20))
    x[1, 13] = np.nan
    check(s, [a, c], x.max(axis=1), x)


def test_a_user_reducer_whose_identity_is_not_zero() -> None:
    shifted = te.comm_reducer(lambda x, y: x + y + 1, lambda t: te.const(-1, t), name="shifted")
    s, (a, c), r = rows(2, 13, "int32", shifted)
    _, ki = s[c].split(r, factor=4)
    s[c].vectorize(ki)
    x = integers((2, 13), "int32")
    check(s, [a, c], x.sum(axis=1) + 12, x)


def test_fused_reduction_loops_as_lanes() -> None:
    a = te.placeholder((3, 5, 6), name="A")
    rx, ry = te.reduce_axis(5, "rx"), te.reduce_axis(6, "ry")
    c = te.compute((3,), lambda i: te.sum(a[i, rx, ry], axis=[rx, ry]), name="C")
    s = create_schedule(c)
    _, fi = s[c].split(s[c].fuse(rx, ry), factor=8)
    s[c].vectorize(fi)
    x = integers((3, 5, 6))
    check(s, [a, c], x.sum(axis=(1, 2)), x)


@pytest.mark.parametrize("outer", [True, False])
def test_lanes_of_one_of_two_reductions(outer: bool) -> None:
    """The other reduction loop may lie outside or inside of the lanes."""
    a = te.placeholder((3, 5, 8), name="A")
    rx, ry = te.reduce_axis(5, "rx"), te.reduce_axis(8, "ry")
    c = te.compute((3,), lambda i: te.sum(a[i, rx, ry], axis=[rx, ry]), name="C")
    s = create_schedule(c)
    s[c].reorder(*((rx, ry) if outer else (ry, rx)))
    s[c].vectorize(ry)
    x = integers((3, 5, 8))
    f = check(s, [a, c], x.sum(axis=(1, 2)), x)
    assert "C.lanes = alloc(float32[8], local)" in str(f)


def test_spatial_loops_inside_the_lanes() -> None:
    """A tile of elements inside the vector loop: each has its lanes, the tail's are not stored."""
    s, (a, c), r = rows(7, 16)
    io, ii = s[c].split(c.op.axis[0], factor=4)
    s[c].reorder(io, r, ii)
    s[c].vectorize(r)
    s[c].unroll(ii)
    x = integers((7, 16))
    check(s, [a, c], x.sum(axis=1), x)


def test_lanes_under_parallel_loops_and_in_a_cache() -> None:
    x, w = te.placeholder((6, 20), name="X"), te.placeholder((10, 20), name="W")
    k = te.reduce_axis(20, "k")
    y = te.compute((6, 10), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="Y")
    s = create_schedule(y)
    yl = s.cache_write(y, "local")
    io, jo, _, ji = s[y].tile(*y.op.axis, 4, 4)
    s[y].parallel(io)
    s[y].vectorize(ji)
    s[yl].compute_at(s[y], jo)
    ko, ki = s[yl].split(k, factor=16)
    ci, cj = s[yl].op.axis
    s[yl].reorder(ko, ci, cj, ki)
    s[yl].unroll(ci)
    s[yl].unroll(cj)
    s[yl].vectorize(ki)
    p, q = integers((6, 20)), integers((10, 20))
    check(s, [x, w, y], p @ q.T, p, q)


@pytest.mark.parametrize("inner", [False, True])
def test_a_producer_inside_the_reduction(inner: bool) -> None:
    """Computed at a reduction loop it over-runs with it; inside the lanes they run one by one."""
    a = te.placeholder((3, 21), name="A")
    b = te.compute((3, 21), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis(21, "k")
    c = te.compute((3,), lambda i: te.sum(b[i, r], axis=r), name="C")
    s = create_schedule(c)
    ko, ki = s[c].split(r, factor=8)
    s[c].vectorize(ki)
    s[b].compute_at(s[c], ki if inner else ko)
    x = integers((3, 21))
    check(s, [a, c], x.sum(axis=1) * 2, x)


def test_a_condition_that_reads_is_asked_only_inside_the_axis() -> None:
    """The interpreter refuses accesses outside, so the over-run of ``M`` would show."""
    a, m = te.placeholder((2, 11), name="A"), te.placeholder((11,), name="M")
    r = te.reduce_axis(11, "k")
    c = te.compute((2,), lambda i: te.max(a[i, r], axis=r, where=m[r] > 0.0, init=-9.0), name="C")
    s = create_schedule(c)
    _, ki = s[c].split(r, factor=4)
    s[c].vectorize(ki)
    x, y = integers((2, 11)), integers((11,))
    check(s, [a, m, c], np.where(y > 0, x, -9).max(axis=1), x, y)


def test_one_vector_a_nest() -> None:
    x = te.placeholder((8, 8), name="A")
    r = te.reduce_axis(8, "k")
    c = te.compute((8,), lambda i: te.sum(x[i, r], axis=r), name="C")
    s = create_schedule(c)
    s[c].vectorize(r)
    s[c].vectorize(c.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"vectorize \(step 0\): loop 'C\.k' lies inside loop 'C\.i', which is vectorized "
        "already; fuse the two or vectorize one",
    ):
        lower(s, [x, c])


TILES = [(2, 4), (4, 4), (3, 2), (1, 3), (5, 3), (2, 1)]


@pytest.mark.parametrize(
    # Powers of two are folded by halves, other numbers one by one.
    "lanes",
    [16, 12, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 32))],
)
def test_elements_of_a_tile_are_folded_together(lanes: int) -> None:
    """Any number of elements and lanes, tails of the tile and of the reduction (of 40 terms, which
    2 and 4 lanes divide), and a start; the tiles are results of one function."""
    n = 5, 7, 40
    x, w = te.placeholder(n[::2], name="X"), te.placeholder(n[1:], name="W")

    def product() -> te.Tensor:
        k = te.reduce_axis(n[2], "k")
        return te.compute(
            n[:2], lambda i, j: te.sum(x[i, k] * w[j, k], axis=k, init=te.const(3.0)), name="Y"
        )

    products = [product() for _ in TILES]
    s = create_schedule([y.op for y in products])
    for y, tile in zip(products, TILES, strict=True):
        io, jo, ii, ji = s[y].tile(*y.op.axis, *tile)
        ko, ki = s[y].split(y.op.reduce_axis[0], factor=lanes)
        s[y].reorder(io, jo, ko, ii, ji, ki)
        s[y].unroll(ii)
        s[y].unroll(ji)
        s[y].vectorize(ki)
    p, q = integers((5, 40)), integers((7, 40))
    args = [x, w, *products]
    for run in (partial(interpret, lower(s, args)), compiled(s, args)):
        outs = [np.full(n[:2], 99, "float32") for _ in TILES]
        run([p, q, *outs])
        wrong = [t for t, y in zip(TILES, outs, strict=True) if not np.array_equal(y, p @ q.T + 3)]
        assert not wrong


def test_tuples_of_a_tile_are_folded_together() -> None:
    a = te.placeholder((4, 40), name="A")
    r = te.reduce_axis(40, "k")
    at, top = te.compute((4,), lambda i: te.argmax((r, a[i, r]), axis=r), name="C")
    s = create_schedule(at)
    ko, ki = s[at].split(r, factor=16)
    s[at].reorder(ko, at.op.axis[0], ki)
    s[at].unroll(at.op.axis[0])
    s[at].vectorize(ki)
    x = integers((4, 40))
    got, best = np.zeros(4, "int32"), np.zeros(4, "float32")
    build(s, [a, at, top])(x, got, best)
    np.testing.assert_array_equal(got, x.argmax(axis=1))
    np.testing.assert_array_equal(best, x.max(axis=1))


def test_accumulators_stay_in_registers() -> None:
    """LLVM promotes the lanes of a register tile: no stack is left, and no masked store."""
    x, w = te.placeholder((8, 64), name="X"), te.placeholder((8, 64), name="W")
    k = te.reduce_axis(64, "k")
    y = te.compute((8, 8), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="Y")
    s = create_schedule(y)
    io, jo, ii, ji = s[y].tile(*y.op.axis, 2, 4)
    ko, ki = s[y].split(k, factor=16)
    s[y].reorder(io, jo, ko, ii, ji, ki)
    s[y].unroll(ii)
    s[y].unroll(ji)
    s[y].vectorize(ki)
    built = build(s, [x, w, y])
    assert "alloca" in built.get_source("ll-unoptimised")
    assert "alloca" not in built.get_source("ll")
