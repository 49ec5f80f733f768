"""Folding gives what the interpreter computes, to the bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from loopwright import dtypes
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import (
    COMPARE,
    OPERATIONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    const,
)
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, Store
from loopwright.lowering.passes.simplify import fold

FLOATS = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e-45, 3e38]


def run(e: Expr) -> Any:
    """What the interpreter computes."""
    out = Buffer("out", (1,), e.dtype)
    array = np.zeros(1, e.dtype)
    interpret(Func("f", (out,), (True,), Store(out, (const(0, "int32"),), e)), [array])
    return array[0]


def same(e: Expr) -> None:
    made = fold(e)
    assert isinstance(made, Const), e
    assert made.dtype == e.dtype
    want, got = run(e), np.dtype(e.dtype).type(made.value)
    assert want.tobytes() == got.tobytes() or (want != want and got != got), (e, made)


def operations(dtype: str) -> list[str]:
    if dtypes.is_float(dtype):
        return [*COMPARE, "+", "-", "*", "/", "min", "max"]
    return [op for op in OPERATIONS if op not in ("/", "and", "or")]


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "float32", "float64"])
def test_operations(dtype: str) -> None:
    lo, hi = dtypes.limits(dtype)
    values: list[Any] = FLOATS
    if dtypes.is_int(dtype):
        values = sorted({0, 1, 2, 7, int(hi), int(lo), max(-3, int(lo))})
    for op, (x, y) in itertools.product(operations(dtype), itertools.product(values, values)):
        if op in ("//", "tdiv") and (x, y) == (lo, -1):
            continue
        result = "bool" if op in COMPARE else dtype
        same(Binary(op, const(x, dtype), const(y, dtype), result))


def test_logic_unary_and_casts() -> None:
    for x, y in itertools.product((True, False), repeat=2):
        for op in ("and", "or"):
            same(Binary(op, const(x, "bool"), const(y, "bool"), "bool"))
    same(Unary("not", const(True, "bool"), "bool"))
    same(Unary("-", const(-128, "int8"), "int8"))
    same(Unary("~", const(5, "int32"), "int32"))
    for x in FLOATS:
        same(Unary("-", const(x, "float32"), "float32"))
        same(Cast(const(x, "float32"), "int8"))


@pytest.mark.parametrize("fn", ["sqrt", "floor", "ceil", "trunc", "round", "abs"])
def test_functions_that_are_rounded_correctly(fn: str) -> None:
    for x in [*FLOATS, 2.5, 3.5, -0.5]:
        same(Call(fn, (const(x, "float32"),), "float32"))


def test_choices() -> None:
    x, y = Var("x"), Var("y")
    for kind in (Select, IfThenElse):
        assert fold(kind(const(True, "bool"), x, y, "int32")) is x
        assert fold(kind(const(False, "bool"), x, y, "int32")) is y


def test_what_is_left_alone() -> None:
    x = Var("x")
    for e in (
        Binary("+", x, const(0, "int32"), "int32"),
        Call("exp", (const(1.0, "float32"),), "float32"),
        Cast(x, "float32"),
        x,
    ):
        assert fold(e) is e
