"""The interpreter on hand-made functions, against NumPy and against the written rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.errors import RunError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
)
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.interp.values import intrinsic
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Store, seq


def pointwise(make: Any, dtype: str, out: str | None = None, n: int = 8) -> Func:
    """``c[i] = make(a[i], b[i])``."""
    a, b = Buffer("a", (n,), dtype), Buffer("b", (n,), dtype)
    e = make(Load(a, (i := Var("i"),), dtype), Load(b, (i,), dtype))
    c = Buffer("c", (n,), out or e.dtype)
    return Func("f", (a, b, c), (False, False, True), For(i, n, "serial", Store(c, (i,), e)))


def run(make: Any, a: Any, b: Any, dtype: str, out: str | None = None) -> np.ndarray[Any, Any]:
    x, y = np.array(a, dtype), np.array(b, dtype)
    f = pointwise(make, dtype, out, len(x))
    c = np.zeros(len(x), f.params[2].dtype)
    interpret(f, [x, y, c])
    return c


INTS = np.array([-7, 7, -7, 7, 0, 5, -128, 3], np.int8)
DIVS = np.array([2, -2, -2, 2, 3, 0, -1, 1], np.int8)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_division_rounds_down_and_by_zero_gives_zero(dtype: str) -> None:
    a, b = INTS.astype(dtype), DIVS.astype(dtype)
    safe = np.where(b == 0, 1, b)
    with np.errstate(over="ignore"):
        q, r = np.where(b == 0, 0, a // safe), np.where(b == 0, 0, a % safe)
    np.testing.assert_array_equal(run(lambda x, y: binary("//", x, y), a, b, dtype), q)
    np.testing.assert_array_equal(run(lambda x, y: binary("%", x, y), a, b, dtype), r)


def test_truncated_division_rounds_to_zero() -> None:
    a, b = INTS.astype("int32"), DIVS.astype("int32")
    want = [-3, -3, 3, 3, 0, 0, 128, 3]
    np.testing.assert_array_equal(run(lambda x, y: binary("tdiv", x, y), a, b, "int32"), want)
    want = [-1, 1, -1, 1, 0, 0, 0, 0]
    np.testing.assert_array_equal(run(lambda x, y: binary("tmod", x, y), a, b, "int32"), want)


def test_integers_wrap() -> None:
    got = run(lambda x, y: x * y, [100, -128], [2, -1], "int8")
    np.testing.assert_array_equal(got, np.array([-56, -128], np.int8))
    got = run(lambda x, y: x - y, [1, 0], [2, 255], "uint8")
    np.testing.assert_array_equal(got, np.array([255, 1], np.uint8))


def test_floats_round_at_every_operation() -> None:
    """float32 arithmetic, not float64 rounded at the end."""
    a, b = np.float32(16777216.0), np.float32(1.0)
    got = run(lambda x, y: (x + y) - x, [a], [b], "float32")
    assert got[0] == 0.0


@pytest.mark.parametrize(("op", "reference"), [("max", np.maximum), ("min", np.minimum)])
def test_minimum_and_maximum_give_nan_for_nan(op: str, reference: Any) -> None:
    a = [np.nan, 1.0, np.nan, -0.0, np.inf]
    b = [1.0, np.nan, np.nan, 2.0, -np.inf]
    got = run(lambda x, y: binary(op, x, y), a, b, "float32")
    np.testing.assert_array_equal(got, reference(np.float32(a), np.float32(b)))


def test_comparisons_with_nan() -> None:
    a, b = [np.nan, 1.0], [np.nan, 1.0]
    for op, want in {"==": [0, 1], "!=": [1, 0], "<": [0, 0], ">=": [0, 1]}.items():
        got = run(lambda x, y, op=op: binary(op, x, y), a, b, "float64")
        np.testing.assert_array_equal(got, np.array(want, bool))


def test_casts() -> None:
    floats = [1.9, -1.9, 300.0, -5.0, np.nan, np.inf]
    got = run(lambda x, _: cast(x, "uint8"), floats, floats, "float32")
    np.testing.assert_array_equal(got, [1, 0, 255, 0, 0, 255])
    got = run(lambda x, _: cast(x, "float32"), [-1, 127], [0, 0], "int8")
    np.testing.assert_array_equal(got, np.float32([-1, 127]))
    got = run(lambda x, _: cast(x, "bool"), [0, 3], [0, 0], "int32")
    np.testing.assert_array_equal(got, [False, True])


@pytest.mark.parametrize(
    "fn", ["exp", "log1p", "tanh", "sqrt", "sin", "floor", "ceil", "trunc", "round", "abs", "exp2"]
)
def test_intrinsics_are_those_of_numpy(fn: str) -> None:
    a = np.float32([0.5, 1.5, 2.5, 0.0])
    names = {"round": np.rint}
    want = names.get(fn, getattr(np, fn))(a.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(intrinsic(fn)(a), want)
    got = run(lambda x, _: Call(fn, (x,), x.dtype), a, a, "float32")
    np.testing.assert_array_equal(got, want)


def test_other_intrinsics() -> None:
    a = np.float64([0.0, 0.5, -2.0])
    np.testing.assert_allclose(
        run(lambda x, _: Call("sigmoid", (x,), x.dtype), a, a, "float64"), 1 / (1 + np.exp(-a))
    )
    np.testing.assert_allclose(
        run(lambda x, _: Call("erf", (x,), x.dtype), a, a, "float64"),
        [0.0, 0.5204998778130465, -0.9953222650189527],
    )
    np.testing.assert_allclose(
        run(lambda x, y: Call("pow", (x, y), x.dtype), [2.0, 3.0], [0.5, 2.0], "float64"),
        [2**0.5, 9.0],
    )
    np.testing.assert_allclose(
        run(lambda x, _: Call("rsqrt", (x,), x.dtype), [4.0], [0.0], "float32"), [0.5]
    )


def test_only_the_side_taken_touches_memory() -> None:
    a, c = Buffer("a", (4,), "float32"), Buffer("c", (6,), "float32")
    i = Var("i")
    load = Load(a, (i - 1,), "float32")
    inside = Binary("and", i >= 1, i < 5, "bool")

    def choose(kind: type[Expr]) -> Func:
        e = kind(inside, load, const(9.0, "float32"), "float32")
        return Func("f", (a, c), (False, True), For(i, 6, "serial", Store(c, (i,), e)))

    out = np.zeros(6, "float32")
    interpret(choose(IfThenElse), [np.arange(4, dtype="float32"), out])
    np.testing.assert_array_equal(out, [9, 0, 1, 2, 3, 9])
    # A select evaluates both sides.
    with pytest.raises(RunError, match=r"access outside a: index \[-1\]"):
        interpret(choose(Select), [np.arange(4, dtype="float32"), out])


def test_logic() -> None:
    def both(x: Expr, y: Expr) -> Expr:
        large = Binary("and", x > 1, y > 1, "bool")
        return Binary("or", x < 0, Unary("not", large, "bool"), "bool")

    got = run(both, [-1, 2, 2, 0], [5, 5, 0, 0], "int32")
    np.testing.assert_array_equal(got, [True, False, True, True])


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled", "parallel", "thread"])
def test_kinds_of_loops_mean_the_same(kind: str) -> None:
    c, i = Buffer("c", (5,), "int32"), Var("i")
    f = Func("f", (c,), (True,), For(i, 5, kind, Store(c, (i,), i * 2)))
    out = np.zeros(5, "int32")
    interpret(f, [out])
    np.testing.assert_array_equal(out, [0, 2, 4, 6, 8])


def test_statements() -> None:
    """Allocate, let, if/else and sequences together: a two-step computation through a buffer."""
    c, t = Buffer("c", (4,), "int32"), Buffer("t", (2, 2), "int32")
    i, j, q, r = (Var(n) for n in "ijqr")
    fill = For(i, 2, "serial", For(j, 2, "serial", Store(t, (i, j), i * 10 + j)))
    k = Var("k")
    copy = For(
        k,
        4,
        "serial",
        Let(
            q,
            k // 2,
            Let(
                r,
                k % 2,
                If(
                    r < 1,
                    Store(c, (k,), Load(t, (q, r), "int32")),
                    Store(c, (k,), const(-1, "int32")),
                ),
            ),
        ),
    )
    f = Func("f", (c,), (True,), Allocate(t, seq(fill, copy)))
    out = np.zeros(4, "int32")
    interpret(f, [out])
    np.testing.assert_array_equal(out, [0, -1, 10, -1])


def test_fresh_buffers_hold_nothing_useful() -> None:
    for dtype in ("float32", "int32", "bool"):
        c, t = Buffer("c", (1,), dtype), Buffer("t", (1,), dtype)
        zero = const(0, "int32")
        f = Func("f", (c,), (True,), Allocate(t, Store(c, (zero,), Load(t, (zero,), dtype))))
        out = np.zeros(1, dtype)
        interpret(f, [out])
        assert out[0] != 0


def test_zero_dimensional_buffers() -> None:
    a, c = Buffer("a", (), "float32"), Buffer("c", (), "float32")
    f = Func("f", (a, c), (False, True), Store(c, (), Load(a, (), "float32") * 2))
    out = np.zeros((), "float32")
    interpret(f, [np.array(3.0, "float32"), out])
    assert out[()] == 6.0


def test_an_empty_function_does_nothing() -> None:
    c = Buffer("c", (1,), "float32")
    out = np.ones(1, "float32")
    interpret(Func("f", (c,), (True,), Seq(())), [out])
    assert out[0] == 1.0


@pytest.mark.parametrize("index", [-1, 4])
def test_accesses_outside_are_refused(index: int) -> None:
    c, a = Buffer("C", (4,), "int32"), Buffer("A", (4, 2), "int32")
    store = Func("f", (a, c), (False, True), Store(c, (const(index, "int32"),), const(1, "int32")))
    arrays = [np.zeros((4, 2), "int32"), np.zeros(4, "int32")]
    with pytest.raises(RunError, match=rf"access outside C: index \[{index}\], shape \[4\]"):
        interpret(store, arrays)
    e = Load(a, (const(0, "int32"), const(index, "int32")), "int32")
    load = Func("f", (a, c), (False, True), Store(c, (const(0, "int32"),), e))
    with pytest.raises(RunError, match=rf"access outside A: index \[0, {index}\], shape \[4, 2\]"):
        interpret(load, arrays)


def test_arguments_are_checked() -> None:
    f = pointwise(lambda x, y: x + y, "float32")
    good = [np.zeros(8, "float32") for _ in range(3)]
    with pytest.raises(RunError, match="f: takes 3 arrays, got 2"):
        interpret(f, good[:2])
    with pytest.raises(RunError, match=r"f: b is float32\[8\], got float64\[8\]"):
        interpret(f, [good[0], np.zeros(8), good[2]])
    with pytest.raises(RunError, match=r"f: c is float32\[8\], got float32\[9\]"):
        interpret(f, [*good[:2], np.zeros(9, "float32")])


def test_infinite_literals() -> None:
    got = run(lambda x, _: Const(float("-inf"), "float32") * x, [1.0], [0.0], "float32")
    assert got[0] == -np.inf
