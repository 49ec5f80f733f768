"""Programs that call packed functions, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import loopwright as lw
from loopwright import tir
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, as_expr
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.kinds import LoopKind
from loopwright.ir.stmt import Allocate, CallPacked, For, Func, Store, seq

Array = np.ndarray[Any, Any]

#: Runs a function of the loop IR on arrays.
Path_ = Callable[[Func, Sequence[Array]], None]


def compiled(target: str) -> Path_:
    return lambda f, arrays: lw.build(f, target=target)(*arrays)


def exported(f: Func, arrays: Sequence[Array]) -> None:
    path = lw.build(f, target="llvm").export_library("packed.so")
    lw.load_module(path)(*arrays)


PATHS: dict[str, Path_] = {
    "interp": lambda f, arrays: interpret(f, arrays),
    "llvm": compiled("llvm"),
    "c": compiled("c"),
    "so": exported,
}


def buffers(*names: str, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> list[Any]:
    return [tir.decl_buffer(shape, dtype, name) for name in names]


def calling(*extra: Any, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Func:
    """``y = tests.f(x, y, *extra)``."""
    x, y = buffers("x", "y", shape=shape, dtype=dtype)
    body = lambda ins, outs: tir.call_packed("tests.f", ins[0], outs[0], *extra)  # noqa: E731
    return tir.prim_func(body, [x], [y], "f")


def in_loop(kind: LoopKind) -> Func:
    """``for i: t = x[i] * 2; tests.f(t, i, x[i]); y[i] = t[0]``."""
    x, y = Buffer("x", (8,), "float32"), Buffer("y", (8,), "float32")
    t, i = Buffer("t", (1,), "float32", "local"), Var("i")
    at = (as_expr(0),)
    element = Load(x, (i,), "float32")
    body = seq(
        Store(t, at, element * 2),
        CallPacked("tests.f", (t, i, element)),
        Store(y, (i,), Load(t, at, "float32")),
    )
    return Func("loop", (x, y), (False, True), For(i, 8, kind, Allocate(t, body)))
