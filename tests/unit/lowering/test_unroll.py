"""The pragma ``auto_unroll_max_step``: which loops it unrolls."""

from __future__ import annotations

import re

from loopwright import te
from loopwright.codegen.backends import compile_func
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var, const
from loopwright.ir.stmt import For, Func, Stmt, Store, seq
from loopwright.lowering import lower
from loopwright.lowering.passes.vectorize import unroll_loop
from loopwright.schedule import create_schedule, replay
from loopwright.target import Target

C = Buffer("C", (64,), "int32")


def loop(n: int, *body: Stmt, kind: str = "serial", limit: int | None = None) -> For:
    pragmas = () if limit is None else (("auto_unroll_max_step", limit),)
    return For(Var(f"i{n}"), n, kind, seq(*body), pragmas)


def store() -> Store:
    return Store(C, (const(0, "int32"),), const(1, "int32"))


def kinds(s: Stmt) -> dict[str, str]:
    """Kind of each loop, by its name, after the pass."""
    f = unroll_loop.run(Func("f", (C,), (True,), s))
    heads = re.findall(r"for (\w+) in (\w+)\(", str(f))
    return {name: kind.replace("range", "serial") for name, kind in heads}


def test_from_the_inside_out_as_long_as_it_fits() -> None:
    nest = loop(5, loop(4, loop(3, loop(2, store()))), limit=24)
    assert kinds(nest) == {"i5": "serial", "i4": "unrolled", "i3": "unrolled", "i2": "unrolled"}
    nest = loop(5, loop(4, loop(3, loop(2, store()))), limit=23)
    assert kinds(nest) == {"i5": "serial", "i4": "serial", "i3": "unrolled", "i2": "unrolled"}


def test_the_loop_of_the_pragma_counts() -> None:
    assert kinds(loop(4, store(), limit=4)) == {"i4": "unrolled"}
    assert kinds(loop(4, store(), limit=3)) == {"i4": "serial"}


def test_nothing_without_a_pragma_or_with_zero() -> None:
    assert kinds(loop(2, store())) == {"i2": "serial"}
    assert kinds(loop(2, store(), limit=0)) == {"i2": "serial"}


def test_loops_outside_the_pragma_are_left_alone() -> None:
    assert kinds(loop(2, loop(3, store(), limit=8))) == {"i2": "serial", "i3": "unrolled"}


def test_an_inner_pragma_wins() -> None:
    nest = loop(2, loop(3, loop(4, store()), limit=0), limit=100)
    assert kinds(nest) == {"i2": "unrolled", "i3": "serial", "i4": "serial"}


def test_every_store_counts() -> None:
    assert kinds(loop(4, store(), store(), limit=8)) == {"i4": "unrolled"}
    assert kinds(loop(4, store(), store(), limit=7)) == {"i4": "serial"}


def test_a_vector_is_one_instruction() -> None:
    nest = loop(4, loop(16, store(), kind="vectorized"), limit=4)
    assert kinds(nest) == {"i4": "unrolled", "i16": "vectorized"}


def test_parallel_loops_are_neither_unrolled_nor_copied() -> None:
    nest = loop(2, loop(4, store(), kind="parallel"), limit=1000)
    assert kinds(nest) == {"i2": "serial", "i4": "parallel"}


def test_the_starts_of_reductions_are_unrolled_too() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis(8, "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    io, ii = s[c].split(c.op.axis[0], factor=2)
    s[c].reorder(io, k, ii)
    s[c].pragma(io, "auto_unroll_max_step", 16)
    text = str(lower(s, [a, c]))
    assert text.count("unrolled(2)") == 2
    assert "unrolled(8)" in text


def test_a_hint_instead_of_copies() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    i, _j = b.op.axis
    s[b].pragma(i, "auto_unroll_max_step", 16)
    s[b].pragma(i, "unroll_explicit", False)
    f = lower(s, [a, b])
    assert "# unroll = True\n    for j in range(8)" in str(f)
    assert str(f).count("unroll = True") == 1
    code = compile_func(f, Target("llvm"))
    assert code.source("ll-unoptimised").count("!llvm.loop") == 1
    assert "distinct !{!1, !0}" in code.source("ll-unoptimised")
    assert code.source("ll").count("store float") == 8, "LLVM wrote the inner loop out"


def test_pragmas_of_the_user_stand_in_the_loops() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    s[b].pragma(b.op.axis[0], "user.tag", "hot")
    f = lower(s, [a, b])
    assert isinstance(f.body, For)
    assert f.body.pragmas == (("user.tag", "hot"),)
    assert replay(s.dag, s.trace_json()).trace == s.trace
