"""Tensor expressions: what is computed."""

from __future__ import annotations

from typing import Any

from loopwright.ir.expr import Expr, IterVar, Var, cast
from loopwright.te.dag import Dag, OpNode
from loopwright.te.intrin import (
    abs,
    all,
    any,
    atan,
    call,
    ceil,
    const,
    cos,
    cosh,
    div,
    equal,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    nearbyint,
    not_equal,
    pow,
    power,
    round,
    rsqrt,
    select,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from loopwright.te.reducer import comm_reducer, max, max_value, min, min_value, prod, sum
from loopwright.te.tensor import (
    ComputeOp,
    Operation,
    PlaceholderOp,
    Tensor,
    compute,
    placeholder,
    reduce_axis,
    thread_axis,
)


def create_schedule(ops: Any) -> Any:
    """A schedule of what ``ops`` compute: `loopwright.create_schedule`, at TE's place."""
    from loopwright.schedule import create_schedule as create

    return create(ops)


__all__ = [
    "ComputeOp", "Dag", "Expr", "IterVar", "OpNode", "Operation", "PlaceholderOp", "Tensor", "Var",
    "abs", "all", "any", "atan", "call", "cast", "ceil", "comm_reducer", "compute", "const", "cos",
    "cosh", "create_schedule", "div", "equal", "erf", "exp", "exp2", "expm1", "floor", "floordiv",
    "floormod", "fmod", "if_then_else", "indexdiv", "indexmod", "isfinite", "isinf", "isnan", "log",
    "log1p", "log2", "log10", "logical_not", "max", "max_value", "min", "min_value", "nearbyint",
    "not_equal", "placeholder", "pow", "power", "prod", "reduce_axis", "round", "rsqrt", "select",
    "sigmoid", "sin", "sinh", "sqrt", "sum", "tan", "tanh", "thread_axis", "trunc", "truncdiv",
    "truncmod",
]  # fmt: skip
