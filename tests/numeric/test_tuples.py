"""Computes with several outputs and reductions of tuples, under every primitive.

All ways to run agree to the bit with NumPy: argmax and argmin have one answer whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.errors import LowerError
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.testing.numpy_eval import evaluate
from tests.covering import covering
from tests.numeric.programs import TARGETS, small

Array = np.ndarray[Any, Any]
DTYPES = ["float32", "float64", "int8", "uint8", "int32", "int64"]


class ArgMax:
    """Row-wise argmax of A, read by a last stage; small integers make many ties."""

    def __init__(self, n: int = 13, m: int = 23, dtype: str = "float32") -> None:
        self.A = te.placeholder((n, m), dtype, name="A")
        self.k = te.reduce_axis((0, m), name="k")
        self.at, self.top = te.compute(
            (n,), lambda i: te.argmax((self.k, self.A[i, self.k]), axis=self.k), name="T"
        )
        self.C = te.compute((n,), lambda i: self.top[i] + self.at[i].astype(dtype), name="C")
        self.a = small(n, m, dtype=dtype)
        self.s = create_schedule(self.C)

    def check(self, checker: Checker) -> str:
        """Check against NumPy; returns the text of the nest."""
        f = check_schedule(self.s, [self.A, self.C], [self.a], targets=TARGETS, checker=checker)
        return str(f)


def outputs(s: Schedule, args: list[Any], inputs: list[Array]) -> list[Array]:
    """What compiled code makes of the outputs among ``args``."""
    from loopwright.driver import build

    outs = [np.empty(t.shape, t.dtype) for t in args[len(inputs) :]]
    build(s, args, "llvm")(*inputs, *outs)
    return outs


@pytest.mark.parametrize(("dtype", "which"), covering(DTYPES, ["argmax", "argmin"], strength=1))
def test_argmax_is_numpys(checker: Checker, dtype: str, which: str) -> None:
    a = small(9, 40, dtype=dtype)
    A = te.placeholder(a.shape, dtype, name="A")
    k = te.reduce_axis((0, 40), name="k")
    reducer: Any = getattr(te, which)
    at, top = te.compute((9,), lambda i: reducer((k, A[i, k]), axis=k), name="T")
    s = create_schedule(at)
    check_schedule(s, [A, at, top], [a], checker=checker)
    got = outputs(s, [A, at, top], [a])
    np.testing.assert_array_equal(got[0], getattr(np, which)(a, axis=1))
    np.testing.assert_array_equal(got[1], getattr(np, which[3:])(a, axis=1))


@pytest.mark.parametrize("which", ["argmax", "argmin"])
def test_special_values(checker: Checker, which: str) -> None:
    """The first NaN wins, as in NumPy; infinities that equal the identity still win with 0."""
    inf, nan = np.inf, np.nan
    rows = [
        [1, nan, 5, nan], [nan, 9, 9, -inf], [-inf] * 4, [inf] * 4, [nan] * 4, [0.0, -0.0, 0, 0],
        [3, 7, 7, -7],
    ]  # fmt: skip
    a = np.array(rows, "float32")
    A = te.placeholder(a.shape, name="A")
    k = te.reduce_axis((0, 4), name="k")
    reducer: Any = getattr(te, which)
    at, top = te.compute((len(a),), lambda i: reducer((k, A[i, k]), axis=k), name="T")
    for order in ("rows", "columns"):
        s = create_schedule(at)
        (i,) = s[at].op.axis
        if order == "columns":
            s[at].reorder(k, i)
            s[at].vectorize(i)
        check_schedule(s, [A, at, top], [a], checker=checker)
        got = outputs(s, [A, at, top], [a])
        np.testing.assert_array_equal(got[0], getattr(np, which)(a, axis=1))
        np.testing.assert_array_equal(got[1], getattr(np, which[3:])(a, axis=1))


def test_where_init_and_two_axes(checker: Checker) -> None:
    a = small(5, 6, 7)
    A = te.placeholder(a.shape, name="A")
    k, r = te.reduce_axis((0, 6), name="k"), te.reduce_axis((0, 7), name="r")
    at, top = te.compute(
        (5,),
        lambda i: te.argmax(
            (k * 7 + r, A[i, k, r]), axis=[k, r], where=A[i, k, r] < 3, init=(i - 50, 1.5)
        ),
        name="T",
    )
    s = create_schedule([at, top])
    check_schedule(s, [A, at, top], [a], checker=checker)
    got = outputs(s, [A, at, top], [a])
    flat = np.where(a < 3, a, -np.inf).reshape(5, -1)
    best = flat.max(1)
    np.testing.assert_array_equal(got[1], np.maximum(best, 1.5))
    np.testing.assert_array_equal(got[0], np.where(best > 1.5, flat.argmax(1), np.arange(5) - 50))


def test_where_nothing_is_left(checker: Checker) -> None:
    A = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    at, top = te.compute((3,), lambda i: te.argmax((k, A[i, k]), axis=k, where=A[i, k] > 99.0))
    s = create_schedule(top)
    got = outputs(s, [A, at, top], [small(3, 4)])
    assert got[0].tolist() == [2**31 - 1] * 3
    assert np.isneginf(got[1]).all()


# ---------------------------------------------------------------- primitives


def _plain(p: ArgMax) -> None:
    pass


def _split_and_fuse(p: ArgMax) -> None:
    (i,) = p.at.op.axis
    stage = p.s[p.top]
    io, ii = stage.split(i, factor=4)
    ko, ki = stage.split(p.k, factor=5)
    stage.reorder(io, ko, ii, ki)
    stage.unroll(ki)
    stage.parallel(stage.fuse(io))


def _vectorized(p: ArgMax) -> None:
    stage = p.s[p.at]
    (i,) = stage.op.axis
    io, ii = stage.split(i, factor=8)
    stage.reorder(io, p.k, ii)
    stage.vectorize(ii)


def _reduction_in_lanes(p: ArgMax) -> None:
    stage = p.s[p.at]
    _, ki = stage.split(p.k, factor=8)
    stage.vectorize(ki)


def _reduction_in_lanes_of_a_tile(p: ArgMax) -> None:
    stage = p.s[p.at]
    (i,) = stage.op.axis
    io, ii = stage.split(i, factor=4)
    _, ki = stage.split(p.k, factor=4)
    stage.reorder(io, ki, ii)
    stage.vectorize(ki)
    stage.unroll(ii)


def _attached(p: ArgMax) -> None:
    (i,) = p.C.op.axis
    io, ii = p.s[p.C].split(i, factor=4)
    p.s[p.C].vectorize(ii)
    p.s[p.at].compute_at(p.s[p.C], io)
    (j,) = p.s[p.at].op.axis
    p.s[p.at].reorder(p.k, j)
    p.s[p.at].vectorize(j)
    p.s[p.C].parallel(io)


def _cached(p: ArgMax) -> None:
    at_local, top_local = p.s.cache_write([p.at, p.top], "local")
    assert [t.name for t in (at_local, top_local)] == ["T.local.v0", "T.local.v1"]
    (i,) = p.at.op.axis
    io, _ = p.s[p.at].split(i, factor=4)
    p.s[top_local].compute_at(p.s[p.at], io)
    (j,) = p.s[at_local].op.axis
    p.s[at_local].reorder(p.k, j)
    p.s[at_local].vectorize(j)
    p.s[at_local].transform_layout(lambda x: (x % 2, x // 2))


def _cache_read_of_an_output(p: ArgMax) -> None:
    copy = p.s.cache_read(p.top, "local", [p.C])
    p.s[copy].compute_at(p.s[p.C], p.C.op.axis[0])
    index = p.s.cache_read(p.at, "shared", p.C)
    p.s[index].vectorize(p.s[index].split(p.s[index].op.axis[0], factor=4)[1])


def _rfactored(p: ArgMax) -> None:
    _, ki = p.s[p.at].split(p.k, factor=5)
    parts = p.s.rfactor(p.at, ki)
    part = parts[0] if isinstance(parts, list | tuple) else parts
    p.s[part].parallel(p.s[part].op.axis[0])


def _double_buffered(p: ArgMax) -> None:
    both = p.s.cache_write([p.at, p.top], "local")
    io, _ = p.s[p.at].split(p.at.op.axis[0], factor=4)
    p.s[both[0]].compute_at(p.s[p.at], io)
    p.s[both[1]].storage_align(p.s[both[1]].op.axis[0], 8, 1)
    p.s[both[1]].double_buffer()


def _stored_outside(p: ArgMax) -> None:
    io, ii = p.s[p.C].split(p.C.op.axis[0], factor=4)
    p.s[p.top].compute_at(p.s[p.C], ii)
    p.s[p.at].store_at(p.s[p.C], io)
    p.s[p.at].set_scope("shared")


SCHEDULES: list[Callable[[ArgMax], None]] = [
    _plain, _split_and_fuse, _vectorized, _reduction_in_lanes, _reduction_in_lanes_of_a_tile,
    _attached, _cached, _cache_read_of_an_output, _rfactored, _double_buffered, _stored_outside,
]  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "dtype"), covering(SCHEDULES, ["float32", "int8"], strength=1)
)
def test_a_tuple_reduction_under_every_primitive(
    checker: Checker, schedule: Callable[[ArgMax], None], dtype: str
) -> None:
    p = ArgMax(dtype=dtype)
    schedule(p)
    p.check(checker)
    dag, result = p.s.dag, p.a.max(1) + p.a.argmax(1).astype(dtype)
    (place,) = dag.outputs
    np.testing.assert_array_equal(evaluate(dag, {0: p.a})[place], result)


def pair(n: int = 11, m: int = 9) -> tuple[Any, ...]:
    """S, D = A + B, A > B; then E of both, and F that reads S alone."""
    A, B = (te.placeholder((n, m), name=x) for x in "AB")
    S, D = te.compute((n, m), lambda i, j: (A[i, j] + B[i, j], A[i, j] > B[i, j]), name="S")
    E = te.compute((n, m), lambda i, j: te.select(D[i, j], S[i, j], -S[i, j]), name="E")
    F = te.compute((n, m), lambda i, j: S[i, m - 1 - j] * 2, name="F")
    return create_schedule([E, F]), A, B, S, D, E, F


@pytest.mark.parametrize("how", ["root", "inline", "at", "cached", "several readers", "layout"])
def test_two_values_under_every_primitive(checker: Checker, how: str) -> None:
    s, A, B, S, D, E, F = pair()
    i, j = E.op.axis
    if how == "inline":
        s[D].compute_inline()
    if how in ("at", "layout"):
        copy = s.cache_read(S, "local", [F])  # so that E alone reads the attached stage
        s[copy].compute_inline()
        s[copy].compute_root()
    if how == "cached":
        both = s.cache_write([S, D], "global")
        s[both[1]].vectorize(s[both[0]].op.axis[1])
        x, y = S.op.axis
        s[both[0]].compute_at(s[S], x)
        s[S].vectorize(y)
    if how == "several readers":
        copy = s.cache_read(S, "shared", [E, F])
        s[copy].transform_layout(lambda x, y: (y, x))
        s[E].vectorize(s[E].split(j, factor=4)[1])
    if how == "layout":
        s[S].transform_layout(lambda x, y: (y // 4, x, y % 4))
        s[E].parallel(i)
    check_schedule(s, [A, B, E, F], [small(11, 9), small(11, 9, seed=1)], checker=checker)


def test_attached_pair(checker: Checker) -> None:
    A, B = (te.placeholder((11, 9), name=x) for x in "AB")
    S, D = te.compute((11, 9), lambda i, j: (A[i, j] + B[i, j], A[i, j] > B[i, j]), name="S")
    E = te.compute((10, 9), lambda i, j: te.select(D[i, j], S[i + 1, j], -S[i, 8 - j]), name="E")
    for split in (2, 3, 4):
        s = create_schedule(E)
        io, _ = s[E].split(E.op.axis[0], factor=split)
        s[S].compute_at(s[E], io)
        s[S].vectorize(s[S].fuse(*s[S].op.axis))
        check_schedule(s, [A, B, E], [small(11, 9), small(11, 9, seed=1)], checker=checker)


@pytest.mark.parametrize("order", [(0,), (1,), (1, 0), (0, 1)])
def test_any_of_the_outputs_may_be_arguments(checker: Checker, order: tuple[int, ...]) -> None:
    """Outputs that are not passed live inside the function."""
    p = ArgMax()
    both = (p.at, p.top)
    s = create_schedule(both[order[0]])
    args = [p.A, *(both[k] for k in order)]
    f = check_schedule(s, args, [p.a], checker=checker)
    assert [b.name for b in f.params] == ["A", *(f"T.v{k}" for k in order)]
    want = [p.a.argmax(1), p.a.max(1)]
    for k, got in zip(order, outputs(s, args, [p.a]), strict=True):
        np.testing.assert_array_equal(got, want[k])


def test_no_output_is_refused() -> None:
    p = ArgMax()
    s = create_schedule([p.at, p.top])
    with pytest.raises(LowerError, match="the output 'T' is not in the arguments"):
        lower(s, [p.A])
    with pytest.raises(LowerError, match="a tensor is given twice"):
        lower(s, [p.A, p.top, p.top])


def test_the_nest_of_a_tuple_reduction(golden: Any) -> None:
    p = ArgMax()
    golden(str(lower(create_schedule(p.at), [p.A, p.at, p.top])))
