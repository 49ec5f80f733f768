"""Expressions: promotion, folding, refusals, substitution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.expr import (
    Binary,
    Cast,
    Const,
    IterVar,
    Unary,
    Var,
    as_expr,
    binary,
    cast,
    const,
)
from loopwright.ir.node import same


def var(dtype: str) -> Var:
    return Var(dtype[0], dtype)


# ------------------------------------------------------------------ literals


@pytest.mark.parametrize(
    ("x", "dtype", "value"),
    [
        (3, "int32", 3),
        (2**31 - 1, "int32", 2**31 - 1),
        (2**31, "int64", 2**31),
        (-(2**31) - 1, "int64", -(2**31) - 1),
        (1.5, "float32", 1.5),
        (True, "bool", True),
        (np.int64(7), "int32", 7),
        (np.float32(0.5), "float32", 0.5),
        (np.float64(0.5), "float32", 0.5),
        (np.bool_(False), "bool", False),
    ],
)
def test_python_numbers_become_literals(x: Any, dtype: str, value: Any) -> None:
    e = as_expr(x)
    assert isinstance(e, Const)
    assert (e.dtype, e.value) == (dtype, value)
    assert type(e.value) is type(value)


def test_an_axis_becomes_its_variable() -> None:
    axis = IterVar(Var("i"), 4, "spatial")
    assert as_expr(axis) is axis.var
    assert (axis + 1).a is axis.var  # type: ignore[attr-defined]
    assert (axis.dom.min, axis.dom.extent) == (0, 4)


@pytest.mark.parametrize("x", ["a", None, [1], np.zeros(2), 1j])
def test_what_is_no_expression(x: Any) -> None:
    with pytest.raises(TensorError, match=r"cannot use .* in a tensor expression; use a number"):
        as_expr(x)


@given(st.integers(-(2**40), 2**40), st.sampled_from(["int8", "int16", "int32", "uint8", "int64"]))
def test_integer_literals_wrap_as_memory_does(v: int, dtype: str) -> None:
    assert const(v, dtype).value == np.int64(v).astype(dtype)


@given(st.floats(allow_nan=False), st.sampled_from(["float32", "float64"]))
def test_float_literals_are_rounded_to_their_type(v: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        assert const(v, dtype).value == float(np.dtype(dtype).type(v))


# ------------------------------------------------------------------ promotion

#: What TE says of two variables; the operation happens in this type.
MEETS = [
    ("int32", "float32", "float32"),
    ("int64", "float32", "float32"),
    ("uint8", "float32", "float32"),
    ("bool", "float32", "float32"),
    ("float32", "float64", "float64"),
    ("int32", "int64", "int64"),
    ("int8", "int32", "int32"),
    ("int8", "uint8", "uint8"),
    ("int16", "uint8", "int16"),
    ("int8", "int16", "int16"),
    ("bool", "int8", "int8"),
    ("float64", "int64", "float64"),
]


@pytest.mark.parametrize(("a", "b", "want"), MEETS)
def test_promotion(a: str, b: str, want: str) -> None:
    for x, y in ((var(a), var(b)), (var(b), var(a))):
        e = binary("+", x, y)
        assert isinstance(e, Binary)
        assert e.dtype == e.a.dtype == e.b.dtype == want


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_promote_and_give_bool(op: str) -> None:
    e = binary(op, var("int32"), var("float32"))
    assert isinstance(e, Binary)
    assert (e.dtype, e.a.dtype, e.b.dtype) == ("bool", "float32", "float32")


@pytest.mark.parametrize(
    ("dtype", "number", "want"),
    [
        ("float32", 1, "float32"),
        ("float64", 0.1, "float64"),
        ("float64", 1, "float64"),
        ("int8", 3, "int8"),
        ("int64", 3, "int64"),
        ("uint8", 255, "uint8"),
        ("int8", 200, "int32"),
        ("uint8", -1, "int32"),
        ("int32", 1.5, "float32"),
        ("int8", 1.5, "float32"),
        ("bool", 1, "int32"),
        ("float32", True, "float32"),
    ],
)
def test_a_python_number_does_not_widen_its_neighbour(dtype: str, number: Any, want: str) -> None:
    assert (var(dtype) + number).dtype == want
    assert (number + var(dtype)).dtype == want
    assert (number * var(dtype)).dtype == want


def test_reflected_operators_keep_their_order() -> None:
    x = var("float32")
    two = const(2.0, "float32")
    assert 2 - x == Binary("-", two, x, "float32")
    assert x - 2 == Binary("-", x, two, "float32")
    assert 2 / x == Binary("/", two, x, "float32")
    i = var("int32")
    assert 7 // i == Binary("//", const(7, "int32"), i, "int32")
    assert 7 % i == Binary("%", const(7, "int32"), i, "int32")


# ------------------------------------------------------------------ folding

ints = st.integers(-50, 50)


@given(ints, ints, st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "<", "==", ">="]))
def test_integer_constants_fold_exactly(a: int, b: int, op: str) -> None:
    if op in ("//", "%") and b == 0:
        return
    e = binary(op, const(a, "int32"), const(b, "int32"))
    want = {
        "+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1), "%": a % (b or 1),
        "min": min(a, b), "max": max(a, b), "<": a < b, "==": a == b, ">=": a >= b,
    }[op]  # fmt: skip
    assert isinstance(e, Const)
    assert e.value == want


def test_folding_wraps_in_the_type() -> None:
    assert const(100, "int8") + const(100, "int8") == const(-56, "int8")


def test_neutral_elements_vanish() -> None:
    i = var("int32")
    assert i + 0 is i
    assert 0 + i is i
    assert i - 0 is i
    assert i * 1 is i
    assert 1 * i is i
    assert i // 1 is i
    assert i * 0 == const(0, "int32")
    assert i % 1 == const(0, "int32")


def test_floats_are_not_folded() -> None:
    """``x + 0.0`` is not ``x`` for minus zero, and ``x * 0.0`` not 0 for NaN."""
    x = var("float32")
    assert isinstance(x + 0.0, Binary)
    assert isinstance(x * 0.0, Binary)
    assert isinstance(const(1.0, "float32") + const(2.0, "float32"), Binary)


def test_negation() -> None:
    assert -const(3, "int32") == const(-3, "int32")
    assert -const(-128, "int8") == const(-128, "int8")
    x = var("float32")
    assert -x == Unary("-", x, "float32")


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda i, x, b: i / 2, r"'/' on integers \(int32\) is ambiguous: use // \(floor\)"),
        (lambda i, x, b: i // 0, "'//' by the constant zero"),
        (lambda i, x, b: i % 0, "'%' by the constant zero"),
        (lambda i, x, b: binary("tdiv", i, 0), "'tdiv' by the constant zero"),
        (lambda i, x, b: x // 2, r"'//' on float32: it is for integers; use / and te\.floor"),
        (lambda i, x, b: x % 2, r"'%' on float32: it is for integers; use te\.fmod"),
        (lambda i, x, b: binary("tmod", x, x), "'tmod' on float32: it is for integers"),
        (lambda i, x, b: b + b, r"'\+' on bool operands: cast them to an integer type first"),
        (lambda i, x, b: b * True, r"'\*' on bool operands"),
        (lambda i, x, b: -b, "'-' on a bool operand: cast it to an integer type first"),
        (
            lambda i, x, b: bool(i < 3),
            r"^i < 3 has no truth value .* te\.if_then_else or te\.select for if, .* te\.all",
        ),
        (lambda i, x, b: 0 < i < 3, "no truth value"),
        (lambda i, x, b: cast(i, "float23"), r"unknown dtype 'float23' \(did you mean 'float32'"),
        (lambda i, x, b: i.astype("uint4"), "unknown dtype 'uint4'"),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make(var("int32"), var("float32"), var("bool"))


def test_equality_is_an_expression() -> None:
    i, j = var("int32"), var("int32")
    for op, e in (("==", i == j), ("==", i.equal(j)), ("!=", i != j)):
        assert same(e, Binary(op, i, j, "bool"))
    assert same(i == 3, i == 3)


# ------------------------------------------------------------------ conversion


def test_cast() -> None:
    x = var("float32")
    assert cast(x, "float32") is x
    assert cast(x, "int8") == Cast(x, "int8")
    assert cast(x, np.float64) == Cast(x, "float64")  # type: ignore[arg-type]
    assert cast(3.7, "int32") == const(3, "int32")
    assert cast(const(300, "int32"), "uint8") == const(44, "uint8")


@pytest.mark.parametrize(
    ("value", "want"), [(math.inf, 127), (-math.inf, -128), (math.nan, 0), (1e9, 127), (-1.9, -1)]
)
def test_a_constant_float_is_cut_to_the_limits_of_an_integer(value: float, want: int) -> None:
    assert cast(const(value, "float64"), "int8") == const(want, "int8")


def test_every_supported_type_has_a_width_and_limits() -> None:
    for d in dtypes.SUPPORTED:
        lo, hi = dtypes.limits(d)
        assert const(lo, d).value == lo
        assert const(hi, d).value == hi


def test_a_bool_beside_an_integer_is_converted() -> None:
    for e in (binary("+", True, Var("x")), binary("+", Var("x"), True)):
        assert isinstance(e, Binary)
        assert e.a.dtype == e.b.dtype == e.dtype == "int32"
