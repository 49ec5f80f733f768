"""Functions of expressions: types they give, names they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import TensorError
from loopwright.ir.expr import INTRINSICS, Binary, Call, Cast, Const, IfThenElse, Select, Unary

X = te.Var("x", "float32")
D = te.Var("d", "float64")
N = te.Var("n", "int32")
U = te.Var("u", "uint8")
B = te.Var("b", "bool")


@pytest.mark.parametrize("fn", [f for f in INTRINSICS if f not in ("pow", "fmod")])
def test_unary_intrinsics_have_a_name_in_te(fn: str) -> None:
    f = getattr(te, fn)
    assert f(X) == Call(fn, (X,), "float32")
    assert f(D).dtype == "float64"
    assert f.__doc__
    assert f.__name__ == fn


WHOLE = ("abs", "floor", "ceil", "round", "trunc")


@pytest.mark.parametrize("fn", [f for f in INTRINSICS if f not in (*WHOLE, "pow", "fmod")])
def test_integers_become_float32(fn: str) -> None:
    assert getattr(te, fn)(N) == Call(fn, (Cast(N, "float32"),), "float32")


def test_absolute_values_keep_their_type() -> None:
    assert te.abs(N) == Call("abs", (N,), "int32")
    assert te.abs(U) is U


def test_power() -> None:
    assert te.power(X, 2) == Call("pow", (X, te.const(2.0)), "float32")
    assert te.pow is te.power
    assert te.power(X, D).dtype == "float64"
    assert te.power(N, N) == Call("pow", (N, N), "int32")
    assert te.fmod(X, 3) == Call("fmod", (X, te.const(3.0)), "float32")


def test_choices_promote_their_sides() -> None:
    assert te.select(B, X, N) == Select(B, X, Cast(N, "float32"), "float32")
    assert te.if_then_else(N < 3, X, 0) == IfThenElse(N < 3, X, te.const(0.0), "float32")
    assert te.if_then_else(B, U, 1).dtype == "uint8"


def test_logic() -> None:
    assert te.all(B, N < 3) == Binary("and", B, N < 3, "bool")
    assert te.any(B, N < 3, X > 1).op == "or"  # type: ignore[attr-defined]
    assert te.all(B) is B
    assert te.logical_not(B) == Unary("not", B, "bool")


def test_comparison_and_integer_division() -> None:
    assert te.equal(N, 3) == Binary("==", N, te.const(3), "bool")
    assert te.not_equal(N, X).a.dtype == "float32"  # type: ignore[attr-defined]
    assert te.floordiv(N, 4) == N // 4
    assert te.floormod(N, 4) == N % 4
    assert te.truncdiv(N, 4) == Binary("tdiv", N, te.const(4), "int32")
    assert te.truncmod(N, 4) == Binary("tmod", N, te.const(4), "int32")


def test_constants() -> None:
    assert te.const(1) == Const(1, "int32")
    assert te.const(1.5) == Const(1.5, "float32")
    assert te.const(True) == Const(True, "bool")
    assert te.const(1, "float64") == Const(1.0, "float64")
    assert te.const(1, np.int8) == Const(1, "int8")


def test_min_and_max_of_two_expressions() -> None:
    assert te.max(X, 0) == Binary("max", X, te.const(0.0), "float32")
    assert te.min(N, X).dtype == "float32"


def test_limits() -> None:
    assert te.min_value("int8") == Const(-128, "int8")
    assert te.max_value("uint8") == Const(255, "uint8")
    assert te.min_value("float32") == Const(float("-inf"), "float32")
    assert te.max_value("float64") == Const(float("inf"), "float64")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: te.exp(B), "te.exp of bool: cast the operand first"),
        (
            lambda: te.call("expp", X),
            r"unknown intrinsic 'expp' \(did you mean 'exp'\?\); known: exp",
        ),
        (lambda: te.exp("x"), "cannot use 'x'"),
        (lambda: te.select(N, X, X), "te.select: the condition has dtype int32; compare it"),
        (lambda: te.if_then_else(True, X, X), "te.if_then_else: the condition is the Python value"),
        (lambda: te.all(), "te.all: expected at least one condition"),
        (lambda: te.any(N in {3}), "te.any: the condition is the Python value False .*i == a"),
        (lambda: te.logical_not(X), "te.logical_not: the condition has dtype float32"),
        (lambda: te.const("a"), "cannot use 'a'"),
        (lambda: te.const(1, "int3"), "unknown dtype 'int3'"),
        (lambda: te.cast(X, "uint4"), "unknown dtype 'uint4'"),
        (lambda: te.floordiv(X, 2), "'//' on float32"),
        (lambda: te.truncmod(N, 0), "'tmod' by the constant zero"),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make()


def test_other_names_of_the_field() -> None:
    assert te.div(X, 2) == X / 2
    assert te.div(N, X) == Binary("/", te.cast(N, "float32"), X, "float32")
    assert te.div(N, 4) == te.truncdiv(N, 4)
    assert te.indexdiv(N, 4) == te.floordiv(N, 4)
    assert te.indexmod(N, 4) == te.floormod(N, 4)
    assert te.nearbyint is te.round


@pytest.mark.parametrize("fn", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kinds_of_floats(fn: str, dtype: str) -> None:
    values = np.array([0.0, -1.5, np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype)
    a = te.placeholder(values.shape, dtype)
    b = te.compute(a.shape, lambda i: te.cast(getattr(te, fn)(a[i]), "int32"))
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    found = np.full(values.shape, 7, np.int32)
    build(s, [a, b])(values, found)
    np.testing.assert_array_equal(found, getattr(np, fn)(values))


def test_integers_are_finite() -> None:
    assert te.isnan(N) == te.isinf(U) == te.const(False)
    assert te.isfinite(N) == te.const(True)
    with pytest.raises(TensorError, match=r"te\.isfinite of bool: cast"):
        te.isfinite(B)


def test_bits() -> None:
    assert te.bitwise_and(N, 3) == N & 3 == Binary("&", N, te.const(3), "int32")
    assert te.bitwise_or(N, U) == Binary("|", N, Cast(U, "int32"), "int32")
    assert te.bitwise_xor(1, N) == 1 ^ N
    assert te.bitwise_not(N) == ~N == Unary("~", N, "int32")
    assert te.shift_left(N, 2) == N << 2
    assert te.shift_right(N, 34) == N >> 2
    assert N >> 0 is N
    assert te.const(5) & 6 == te.const(4)
    assert ~te.const(5) == te.const(-6)
    assert te.const(1, "uint8") << 8 == te.const(1, "uint8")


def test_bits_of_bools_are_logic() -> None:
    assert B & (N < 3) == Binary("and", B, N < 3, "bool")
    assert B | (N < 3) == Binary("or", B, N < 3, "bool")
    assert B ^ (N < 3) == Binary("!=", B, N < 3, "bool")
    assert te.logical_not(B) == ~B


def test_fma_and_reinterpret() -> None:
    assert te.fma(X, 2, N) == Call("fma", (X, te.const(2.0), Cast(N, "float32")), "float32")
    assert te.fma(X, X, D).dtype == "float64"
    assert te.reinterpret("int32", X) == Call("reinterpret", (X,), "int32")
    assert te.reinterpret("float32", X) is X


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: X & 1, "'&' on float32: it is for integers; te.reinterpret gives the bits"),
        (lambda: ~X, "'~' on float32: it is for integers; te.reinterpret gives the bits"),
        (lambda: B << B, "'<<' on bool operands: cast them to an integer type first"),
        (lambda: te.fma(B, B, B), "te.fma of bool: cast the operands first"),
        (lambda: te.reinterpret("int64", X), "float32 has 32 bits and int64 has 64; it needs two"),
        (lambda: te.reinterpret("bool", X), "te.reinterpret: float32 has 32 bits and bool"),
    ],
)
def test_refusals_of_bit_operations(make: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make()


def test_bits_travel() -> None:
    A = te.placeholder((4,), "int32", name="A")
    C = te.compute((4,), lambda i: te.fma(te.reinterpret("float32", ~A[i] << 3), 2.0, 1.0))
    dag, _ = te.Dag.from_ops([C.op])
    again = te.Dag.from_json(json.loads(json.dumps(dag.to_json())))
    assert again.hash == dag.hash
    assert str(again.to_json()) == str(dag.to_json())


@pytest.mark.parametrize("fn", [te.floor, te.ceil, te.round, te.trunc, te.nearbyint])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "int64"])
def test_rounding_leaves_integers_as_they_are(fn: Callable[[Any], Any], dtype: str) -> None:
    x = te.var("x").astype(dtype)
    assert fn(x) is x
    assert fn(3) == te.const(3)
    assert fn(X).dtype == "float32"
