"""What is in the key of a program and what is not; `tests/property` compares it with code."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.driver import program_key
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Var
from loopwright.ir.stmt import Allocate, For, Func, Seq, Stmt, Store
from loopwright.target import Target

LLVM = Target("llvm -num-threads=1")


def made(
    *,
    name: str = "main",
    names: str = "ijAB",
    value: Any = 1.5,
    op: str = "+",
    kind: Any = "serial",
    extent: int = 8,
    once: int = 1,
    pragmas: Any = (),
    scope: Any = "local",
    strides: Any = None,
    swapped: bool = False,
) -> Func:
    """``for i: for j (once): T[i] = A[i] op value; B[i] = T[i]``."""
    i, j = Var(names[0]), Var(names[1])
    a = Buffer(names[2], (8,), "float32")
    b = Buffer(names[3], (8,), "float32")
    t = Buffer("T", (8,), "float32", scope, strides)
    total = Binary(op, Load(a, (i,), "float32"), Const(value, "float32"), "float32")
    stores: list[Stmt] = [Store(t, (i,), total), Store(b, (i,), Load(t, (i,), "float32"))]
    inner = For(j, once, "serial", Seq(tuple(stores[::-1] if swapped else stores)), pragmas)
    return Func(name, (a, b), (False, True), Allocate(t, For(i, extent, kind, inner)))


def key(f: Func, target: Target = LLVM, passes: Any = None) -> str:
    return program_key(f, target, passes or {})


@pytest.mark.parametrize(
    "same", [{"names": "xyPQ"}, {"names": "aaaa"}, {"pragmas": (("auto_unroll_max_step", 4),)}]
)
def test_names_and_pragmas_that_nobody_reads_are_left_out(same: dict[str, Any]) -> None:
    assert key(made(**same)) == key(made())


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"value": -1.5},
        {"value": 0.0},
        {"op": "*"},
        {"kind": "parallel"},
        {"kind": "vectorized"},
        {"extent": 7},
        {"once": 2},
        {"pragmas": (("unroll", True),), "once": 2},
        {"scope": "global"},
        {"strides": (2,)},
        {"swapped": True},
    ],
)
def test_everything_else_is_in_it(other: dict[str, Any]) -> None:
    assert key(made(**other)) != key(made())


def test_zeros_of_both_signs_differ() -> None:
    assert key(made(value=0.0)) != key(made(value=-0.0))


def test_target_threads_and_passes_are_in_it() -> None:
    others = [
        key(made(), Target("llvm -num-threads=2")),
        key(made(), Target("llvm -num-threads=1 -mcpu=x86-64")),
        key(made(), Target("c -num-threads=1")),
        key(made(), passes={"opt_level": 3}),
    ]
    assert len({key(made()), *others}) == 5
