"""Control flow and private buffers inside vectorized loops: vector code, and the same results."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.codegen.backends import compile_func
from loopwright.codegen.llvm.compiler import write_module
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Var, binary, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.printer import print_stmt
from loopwright.ir.stmt import Allocate, For, Func, If, Seq, Stmt, Store
from loopwright.ir.verify import verify
from loopwright.lowering import lower
from loopwright.lowering.passes.vectorize import PRIVATE_LIMIT, vectorize_loop
from loopwright.runtime import linker
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target

WIDE = "llvm -num-threads=1 -mcpu=x86-64-v3"
i, j, k = Var("i"), Var("j"), Var("k")
A, B = Buffer("A", (32,), "float32"), Buffer("B", (32,), "float32")
T = Buffer("T", (4,), "float32", "local")


def attached() -> tuple[Schedule, list[te.Tensor], te.Tensor]:
    """A producer computed inside the vectorized loop of its consumer, three elements a lane."""
    a = te.placeholder((34,), name="A")
    b = te.compute((34,), lambda i: a[i] * 2.0 + 1.0, name="B")
    r = te.reduce_axis(3, "r")
    c = te.compute((32,), lambda i: te.sum(b[i + r] * b[i + r], axis=r), name="C")
    s = create_schedule(c)
    io, ii = s[c].split(c.op.axis[0], factor=16)
    s[c].reorder(io, ii, s[c].op.reduce_axis[0])
    s[b].compute_at(s[c], ii)
    s[c].vectorize(ii)
    return s, [a, c], b


def vectors(f: Func) -> int:
    """Vector arithmetic in the LLVM text."""
    return len(re.findall(r"= f(?:mul|add) contract <8 x float>", write_module(f, Target(WIDE))[0]))


def expected(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    b = a * np.float32(2) + np.float32(1)
    return b[:-2] ** 2 + b[1:-1] ** 2 + b[2:] ** 2


def test_a_private_buffer_gets_a_lane_dimension(golden: Any) -> None:
    s, args, _ = attached()
    f = lower(s, args)
    golden(str(f))
    assert vectors(f) > 0
    with lw.PassContext(disabled_pass=["VectorizeLoop"]):
        assert vectors(lower(s, args)) == 0


@pytest.mark.parametrize("spec", ["llvm -num-threads=1", "llvm -num-threads=2", "interp"])
@pytest.mark.parametrize("disabled", [[], ["VectorizeLoop"]])
def test_results(spec: str, disabled: list[str]) -> None:
    s, args, _ = attached()
    with lw.PassContext(disabled_pass=disabled):
        f = lw.build(s, args, spec)
    a, out = np.linspace(-3, 4, 34, dtype="float32"), np.full(32, np.nan, "float32")
    f(a, out)
    np.testing.assert_allclose(out, expected(a), rtol=1e-6)


def run(body: Stmt, spec: str = "llvm -num-threads=1") -> np.ndarray[Any, Any]:
    """B as compiled code writes it, and the interpreter; A is 0..31."""
    f = Func("f", (A, B), (False, True), body)
    verify(f)
    a, want, got = np.arange(32, dtype="float32"), np.zeros(32, "float32"), np.zeros(32, "float32")
    interpret(f, [a, want])
    made = vectorize_loop(f)
    code = compile_func(made, Target(spec))
    linked = linker.link(code.objects, ["f"])
    pointers = (ctypes.c_void_p * 2)(a.ctypes.data, got.ctypes.data)
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    entry = signature(linked.addresses["f"])
    assert code.workspace_bytes == 0
    assert entry(ctypes.addressof(pointers), None) == 0
    np.testing.assert_array_equal(got, want)
    return got


def put(e: Any, *index: Any, to: Buffer = B) -> Store:
    return Store(to, index or (i,), e)


def load(b: Buffer, *index: Any) -> Load:
    return Load(b, index, b.dtype)


ODD = Binary("==", binary("%", i, 2), const(1, "int32"), "bool")


def test_a_condition_by_lane_is_a_mask() -> None:
    x = load(A, i)
    nested = If(binary("<", x, 9.0), put(x + 1.0), put(x * 2.0))
    got = run(For(i, 32, "vectorized", If(ODD, nested, put(-x))))
    assert got[:4].tolist() == [0, 2, -2, 4]


def test_a_serial_loop_runs_for_all_lanes() -> None:
    zero = const(0.0, "float32")
    add = put(load(B, i) + load(A, binary("+", binary("*", k, 4), binary("//", i, 8))))
    loop = For(k, 4, "serial", If(ODD, add))
    got = run(For(i, 32, "vectorized", Seq((put(zero), loop))))
    assert got[1] == 0 + 4 + 8 + 12


def test_a_private_buffer_under_a_mask() -> None:
    fill = For(k, 4, "serial", put(load(A, i) * 2.0, k, to=T))
    use = put(load(T, const(0, "int32")) + load(T, const(3, "int32")))
    got = run(For(i, 32, "vectorized", If(ODD, Allocate(T, Seq((fill, use))))))
    assert got[:4].tolist() == [0, 4, 0, 12]


def test_a_parallel_loop_inside_runs_serially() -> None:
    whole = Buffer("C", (4, 32), "float32")
    inner = For(k, 4, "parallel", Store(whole, (k, i), load(A, i)))
    f = Func("f", (A, whole), (False, True), For(i, 32, "vectorized", inner))
    assert "for k in range(4)" in print_stmt(vectorize_loop(f).body)


def test_what_stays_one_by_one() -> None:
    big = Buffer("big", (PRIVATE_LIMIT // 4 // 32 + 1,), "float32", "local")
    gaps = Buffer("gaps", (4,), "float32", "local", (2,))
    zero = const(0, "int32")
    for body in (
        Allocate(big, put(load(A, i), zero, to=big)),
        Allocate(gaps, put(load(A, i), zero, to=gaps)),
        Allocate(T, For(j, 4, "vectorized", put(load(A, j), j, to=T))),
        put(load(A, i)),
    ):
        f = Func("f", (A, B), (False, True), For(i, 32, "vectorized", body))
        assert vectorize_loop(f) is f


def test_vectors_can_be_switched_off() -> None:
    s, args, _ = attached()
    with lw.PassContext(config={"tir.disable_vectorize": True}):
        f = lower(s, args)
        assert "SkipVectorize" in lw.transform.pass_order()[2]
    assert "vectorized" not in str(f)
    assert "vectorized" in str(lower(s, args))
