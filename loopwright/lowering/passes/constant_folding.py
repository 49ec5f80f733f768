"""ConstantFolding: computes operations on literals, exactly as they would be computed at run time.

It is the example of how a pass is written: a mutator that folds, bottom-up, nodes whose operands
have become literals. The pipeline does not list it, since `Simplify` does this and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.ir.expr import (
    BITWISE,
    COMPARE,
    FOLD,
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    cast,
    const,
)
from loopwright.ir.node import Node
from loopwright.ir.stmt import Func
from loopwright.ir.visitor import Mutator
from loopwright.lowering.context import func_pass

#: Functions that are rounded correctly everywhere, so that folding gives the same bits.
_EXACT_CALLS = {
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "abs": np.abs,
}  # fmt: skip
_FLOATS = ("float32", "float64")
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "min": lambda a, b: a if a != a or a < b else b,
    "max": lambda a, b: a if a != a or a > b else b,
}  # fmt: skip


def fold(e: Expr) -> Expr:
    """The literal that a node with literal operands stands for, else the node itself.

    Functions whose last bit depends on the library (``exp``) are left alone, and integer division
    by zero, which programs define as zero, folds to zero.
    """
    match e:
        case Binary(op=op, a=Const() as a, b=Const() as b):
            x, y = a.value, b.value
            if op in ("and", "or"):
                return const(x and y if op == "and" else x or y, "bool")
            if op in COMPARE:
                return const(bool(FOLD[op](x, y)), "bool")
            if dtypes.is_float(a.dtype):
                return _float(e, op, a, b)
            if a.dtype == "bool" and op not in ("min", "max"):
                return e
            if op in ("//", "%", "tdiv", "tmod"):
                return const(_divided(op, x, y), a.dtype)
            if op in SHIFTS:
                y &= dtypes.bits(a.dtype) - 1
            return const(FOLD[op](x, y), a.dtype) if op in FOLD or op in BITWISE else e
        case Unary(op="-", a=Const(value=v, dtype=d)):
            return const(-v, d)
        case Unary(op="not", a=Const(value=v)):
            return const(not v, "bool")
        case Unary(op="~", a=Const(value=v, dtype=d)):
            return const(~v, d)
        case Cast(value=Const() as v, dtype=d):
            return cast(v, d)
        case Select(cond=Const(value=c), a=a, b=b) | IfThenElse(cond=Const(value=c), a=a, b=b):
            return a if c else b
        case Call(fn=fn, args=(Const(value=v),), dtype=d) if fn in _EXACT_CALLS and d in _FLOATS:
            with np.errstate(all="ignore"):
                return _rounded(_EXACT_CALLS[fn](_scalar(v, d)), d)
    return e


def _divided(op: str, x: int, y: int) -> int:
    if y == 0:
        return 0
    if op in ("//", "%"):
        return x // y if op == "//" else x % y
    q = abs(x) // abs(y)
    q = q if (x < 0) == (y < 0) else -q
    return q if op == "tdiv" else x - q * y


def _scalar(v: float, dtype: str) -> np.generic:
    scalar: np.generic = np.dtype(dtype).type(v)
    return scalar


def _rounded(v: np.generic, dtype: str) -> Const:
    return Const(float(v), dtype) if dtypes.is_float(dtype) else const(int(v), dtype)


def _float(e: Binary, op: str, a: Const, b: Const) -> Expr:
    if op not in _FLOAT or a.dtype not in _FLOATS:
        return e
    with np.errstate(all="ignore"):
        return _rounded(_FLOAT[op](_scalar(a.value, a.dtype), _scalar(b.value, b.dtype)), a.dtype)


class ConstantFolder(Mutator):
    def generic_visit(self, n: Node) -> Any:
        rebuilt = super().generic_visit(n)
        return fold(rebuilt) if isinstance(rebuilt, Expr) else rebuilt


@func_pass(opt_level=2, name="ConstantFolding")
def constant_folding(f: Func) -> Func:
    """Compute what depends on literals only, in the dtype and with the rounding of run time.

    Before ``B[i] = A[i] * (2.0 + 3.0)``, after ``B[i] = A[i] * 5.0``.

    Example:
        >>> A = te.placeholder((8,), "int32", name="A")
        >>> B = te.compute((8,), lambda i: A[i] + te.max(te.const(2), 3), name="B")
        >>> s = te.create_schedule(B.op)
        >>> with lw.PassContext(opt_level=0):
        ...     f = lw.lower(s, [A, B])
        ...
        >>> print(f)
        def main(A: int32[8], B: out int32[8]):
          for i in range(8):
            B[i] = A[i] + 3
        >>> print(lw.transform.ConstantFolding(f))
        def main(A: int32[8], B: out int32[8]):
          for i in range(8):
            B[i] = A[i] + 3
    """
    return f.with_body(ConstantFolder().visit(f.body))
