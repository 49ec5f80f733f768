"""Reducers: the built-in ones and those of the user."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Binary, Const
from loopwright.ir.reduction import Reduce

A = te.placeholder((4, 4), name="A")
I8 = te.placeholder((4,), "int8", name="I8")
K = te.reduce_axis((0, 4), "k")
R = te.reduce_axis((0, 4), "r")
P = te.compute((4,), lambda i: A[i, 0] > 0)


@pytest.mark.parametrize(
    ("reducer", "op", "identity", "identity_i8"),
    [
        (te.sum, "+", 0.0, 0),
        (te.prod, "*", 1.0, 1),
        (te.min, "min", float("inf"), 127),
        (te.max, "max", float("-inf"), -128),
    ],
)
def test_built_in_reducers(reducer: Any, op: str, identity: float, identity_i8: int) -> None:
    e = reducer(A[K, 0], axis=K)
    assert isinstance(e, Reduce)
    c = e.combiner
    assert c.result == (Binary(op, c.lhs[0], c.rhs[0], "float32"),)
    assert c.identity == (Const(identity, "float32"),)
    assert reducer(I8[K], axis=K).combiner.identity == (Const(identity_i8, "int8"),)


def test_axes_where_and_init() -> None:
    e = te.sum(A[K, R], axis=[K, R], where=K < 2, init=1)
    assert e.axes == (K, R)  # type: ignore[attr-defined]
    assert e.where == (K < 2)  # type: ignore[attr-defined]
    assert e.init == (Const(1.0, "float32"),)  # type: ignore[attr-defined]
    assert te.max(A[K, 0], (K,)).axes == (K,)  # type: ignore[attr-defined]


def test_a_reducer_of_the_user() -> None:
    first_positive = te.comm_reducer(
        lambda x, y: te.select(x > 0, x, y), lambda t: te.const(0, t), name="first"
    )
    e = first_positive(A[K, 0], axis=K)
    assert isinstance(e, Reduce)
    assert e.combiner.name == "first"
    c = e.combiner
    (x,), (y,) = c.lhs, c.rhs
    assert c.result == (te.select(x > 0, x, y),)


def test_a_reducer_of_tuples() -> None:
    """As TVM's tutorial writes argmax; one dtype an output goes to the identity."""
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    both = argmax((K, I8[K]), axis=K, where=K < 3, init=(7, 9))
    assert [e.dtype for e in both] == ["int32", "int8"]
    e = both[0].reduce
    assert e is both[1].reduce
    assert e.source == (K.var, I8[K])
    assert e.combiner.identity == (Const(-1, "int32"), Const(-128, "int8"))
    assert e.init == (Const(7, "int32"), Const(9, "int8"))
    (x0, x1), (y0, y1) = e.combiner.lhs, e.combiner.rhs
    assert e.combiner.result == (te.select(x1 >= y1, x0, y0), te.select(x1 >= y1, x1, y1))


def test_one_reducer_serves_values_and_tuples() -> None:
    """A combiner that works on either is traced as it is called."""
    total = te.comm_reducer(
        lambda x, y: (x[0] + y[0],) if isinstance(x, tuple) else x + y,
        lambda t: te.const(0, t),
    )
    assert isinstance(total(A[K, 0], axis=K), Reduce)
    with pytest.raises(TensorError, match="the identity of a tuple of 1 gives one value"):
        total((A[K, 0],), axis=K)


def test_a_reducer_is_traced_for_each_type() -> None:
    seen = []
    r = te.comm_reducer(lambda x, y: x + y, lambda t: (seen.append(t), te.const(0, t))[1])
    r(A[K, 0], axis=K)
    r(I8[K], axis=K)
    assert seen == ["float32", "int8"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: te.sum(A[0, 0], axis=A),
            "te.sum: axis must be made by te.reduce_axis, got Tensor",
        ),
        (lambda: te.sum(A[0, 0], axis=P.op.axis[0]), "te.sum: axis must be made by te.reduce_axis"),
        (lambda: te.prod(A[0, 0], axis=3), "te.prod: axis must be made by te.reduce_axis, got 3"),
        (lambda: te.sum(A[K, 0], axis=[]), "te.sum: expected distinct reduction axes"),
        (lambda: te.sum(A[K, 0], axis=[K, K]), "te.sum: expected distinct reduction axes"),
        (lambda: te.sum(P[K], axis=K), "te.sum of bool: cast the operand to an integer type"),
        (lambda: te.max(P[K], axis=K), "te.max of bool"),
        (lambda: te.sum("x", axis=K), "cannot use 'x'"),
        (lambda: te.sum(A[K, 0], axis=K, where=True), "te.sum where: the condition is the Python"),
        (
            lambda: te.comm_reducer(lambda x, y: (x, y), lambda t: (0, 0), "argmax")(
                A[K, 0], axis=K
            ),
            "argmax: combining float32 gives 2 values",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: x[0], lambda t, u: (0, 0), "bad")(
                (K, A[K, 0]), axis=K
            ),
            "bad: combining a tuple of 2 gives one value",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: (x[0], x[0]), lambda t, u: (0, 0), "bad")(
                (K, A[K, 0]), axis=K
            ),
            "bad: combining two float32 gives int32",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: x, lambda t, u: 0, "bad")((K, A[K, 0]), axis=K),
            "bad: the identity of a tuple of 2 gives one value",
        ),
        (lambda: te.argmax(A[K, 0], axis=K), r"te.argmax: expected \(integer index, value\)"),
        (lambda: te.argmin((A[K, 0], K), axis=K), r"te.argmin: expected \(integer index, value\)"),
        (lambda: te.sum((), axis=K), "te.sum of no expression"),
        (lambda: te.argmax((K, P[K]), axis=K), "te.argmax of bool: cast the operand"),
        (
            lambda: te.argmax((K, A[K, 0]), axis=K, init=3),
            "te.argmax: init must be a tuple of 2 values, got 3",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: x < y, lambda t: te.const(0, t), "less")(
                A[K, 0], axis=K
            ),
            "less: combining two float32 gives bool",
        ),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make()
