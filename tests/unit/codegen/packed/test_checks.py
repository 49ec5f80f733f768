"""Passes, the verifier and manifests know calls; what may not hold one refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te, tir
from loopwright.codegen.c.expressions import Prelude
from loopwright.codegen.gpu.opencl import OPENCL_C, OpenClWriter
from loopwright.codegen.gpu.split import SplitKernel
from loopwright.errors import CodegenError, LowerError, TensorError, UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var
from loopwright.ir.stmt import Allocate, CallPacked, For, Func, Seq, Stmt, seq
from loopwright.ir.verify import verify
from loopwright.lowering.passes.storage_rewrite import redirected
from loopwright.runtime import NDArray, register_func
from loopwright.te.serial import stmt_from_json, stmt_to_json
from tests.unit.codegen.packed.programs import buffers, calling


@pytest.mark.parametrize("level", [0, 2, 3])
def test_passes_keep_what_a_function_may_have_written(level: int) -> None:
    """Put into a nest by a pass of a user; the passes behind it may not look through the call."""
    A = te.placeholder((2048,), name="A")
    B = te.compute((2048,), lambda i: te.exp(A[0]) + i, name="B")
    C = te.compute((2048,), lambda i: te.exp(B[0]) + B[i], name="C")
    s = te.create_schedule(C.op)

    def insert(f: Func, *_: object) -> Func:
        """Into the body of the last loop: ``tests.f(B)`` before C is stored."""

        def go(stmt: Stmt) -> Stmt:
            match stmt:
                case Allocate(buffer=b, body=body):
                    return Allocate(b, put(body, b))
            return stmt.map_children(lambda c: go(c) if isinstance(c, Stmt) else c)

        def put(body: Stmt, b: Buffer) -> Stmt:
            assert isinstance(body, Seq)
            loop = body.stmts[-1]
            assert isinstance(loop, For)
            call = CallPacked("tests.f", (b, loop.var))
            return seq(*body.stmts[:-1], loop.with_body(seq(call, loop.body)))

        return f.with_body(go(f.body))

    @register_func("tests.f")
    def bump(b: NDArray, i: int) -> None:
        b[0] = float(i % 3)
        b[i] = 2.0 * i

    with lw.PassContext(opt_level=level, config={"tir.add_lower_pass": [(0, insert)]}):
        f = lw.lower(s, [A, C])
    assert "call_packed('tests.f'" in str(f)
    a, out = np.zeros(2048, "float32"), np.zeros(2048, "float32")
    lw.build(f, target="llvm")(a, out)
    expected = np.exp(np.arange(2048) % 3) + 2.0 * np.arange(2048)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_no_op_removal_keeps_the_call_and_its_buffer() -> None:
    t = Buffer("t", (4,), "float32", "local")
    f = Func("f", (), (), Allocate(t, CallPacked("tests.f", (t,))))
    assert lw.transform.RemoveNoOp(f) is f


def test_storage_of_buffers_that_calls_use_is_not_shared() -> None:
    one, two = (Buffer(n, (4096,), "float32") for n in ("one", "two"))
    both = CallPacked("tests.f", (one, two))
    body = seq(CallPacked("tests.g", (one,)), CallPacked("tests.g", (two,)), both)
    f = Func("f", (), (), Allocate(one, Allocate(two, body)))
    assert lw.transform.StorageRewrite(f) is f


def test_buffers_with_a_copy_for_each_lane_cannot_be_passed() -> None:
    t, wide = Buffer("t", (1,), "float32", "local"), Buffer("t", (1, 4), "float32", "local")
    with pytest.raises(
        LowerError, match=r"call_packed 'tests.f' is given 't'.*allocate it outside"
    ):
        redirected(CallPacked("tests.f", (t,)), {t: wide}, lambda idx: idx)


def test_malformed_calls_do_not_pass_the_verifier() -> None:
    t = Buffer("t", (4,), "float32", "local")
    with pytest.raises(LowerError, match="'t' is touched where it does not exist"):
        verify(Func("f", (), (), CallPacked("tests.f", (t,))))
    with pytest.raises(LowerError, match="'n' is used where it is not defined"):
        verify(Func("f", (), (), CallPacked("tests.f", (Var("n"),))))
    gaps = Buffer("g", (2, 2), "float32", "local", (4, 1))
    with pytest.raises(LowerError, match="'g' has gaps"):
        verify(Func("f", (), (), Allocate(gaps, CallPacked("tests.f", (gaps,)))))


def test_code_of_devices_refuses_it() -> None:
    call = CallPacked("tests.f", ())
    kernel = SplitKernel("k", (), (), (), call, (), (), frozenset())
    writer = OpenClWriter(Prelude(True, OPENCL_C), kernel, frozenset())
    with pytest.raises(
        CodegenError, match=r"opencl: call_packed 'tests.f' stands in code of a device"
    ):
        writer.stmt(call)


def test_no_trace_can_hold_a_call() -> None:
    """Whoever sends a log chooses no function that runs here: there is no form for it."""
    with pytest.raises(TensorError, match="cannot hold a CallPacked: a trace is data"):
        stmt_to_json(CallPacked("tests.f", ()), [])
    for made_up in (["call_packed", "os.system", ["ls"]], ["intrin", "call_packed", []]):
        with pytest.raises(TensorError, match="unknown"):
            stmt_from_json(made_up, [])


def test_a_target_that_keeps_the_schedule_refuses_it() -> None:
    """It would lose the call, which a pass has put in."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")

    def insert(f: Func, *_: object) -> Func:
        return f.with_body(seq(f.body, CallPacked("tests.f", (f.params[1],))))

    s = te.create_schedule(B.op)
    with (
        lw.PassContext(config={"tir.add_lower_pass": [(3, insert)]}),
        pytest.raises(lw.LoopwrightError, match="interp keeps the schedule, which holds no call_p"),
    ):
        lw.build(s, [A, B], "interp")


def test_intrinsics_cannot_call() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2, name="y")
    with pytest.raises(TensorError, match="a trace is data"):
        te.decl_tensor_intrin(y.op, lambda ins, outs: tir.call_packed("tests.f", ins[0]), name="c")


def test_the_manifest_names_what_is_called(tmp_path: Path) -> None:
    module = lw.build(calling(), target="llvm")
    assert module.artifact.contents.functions[0].packed == ("tests.f",)
    loaded = lw.load_module(module.save(tmp_path / "f.o"))
    register_func("tests.f", lambda x, y: y.copyfrom(x))
    y = np.zeros(4, "float32")
    loaded(np.ones(4, "float32"), y)
    assert (y == 1).all()


def test_an_object_whose_manifest_hides_a_call_is_refused() -> None:
    from dataclasses import replace

    from loopwright.runtime import Artifact

    a = lw.build(calling(), target="llvm").artifact
    honest = replace(a.contents, functions=(replace(a.contents.functions[0], packed=()),))
    module = lw.runtime.Module(Artifact(honest.to_json(), a.objects))
    with pytest.raises(UsageError, match="calls packed functions, its manifest none"):
        module(np.zeros(4, "float32"), np.zeros(4, "float32"))


@pytest.mark.parametrize(
    ("arg", "text"),
    [
        ([1], r"argument 1 is \[1\] \(a list\)"),
        ("a\0b", "argument 1 is a text with a zero byte"),
        (tir.decl_buffer((4,)), "argument 1 is the description of a buffer"),
    ],
)
def test_arguments_that_are_none(arg: Any, text: str) -> None:
    with pytest.raises(TensorError, match=f"call_packed 'tests.f': {text}"):
        tir.call_packed("tests.f", 0, arg)
    with pytest.raises(UsageError, match="no name"):
        tir.call_packed("no name", 0)


def test_functions_by_hand_are_checked() -> None:
    x, y = buffers("x", "y")
    write = lambda ins, outs: ins[0].store(0, 1.0)  # noqa: E731
    with pytest.raises(TensorError, match="writes the input 'x'"):
        tir.prim_func(write, [x], [y])
    with pytest.raises(TensorError, match="no statement"):
        tir.prim_func(lambda ins, outs: 3, [x], [y])  # type: ignore[arg-type, return-value]
    for name in ("a b", "lw_x", "memcpy"):
        with pytest.raises(TensorError, match=f"'{name}' cannot be used"):
            tir.prim_func(write, [], [x], name)
    gaps = tir.decl_buffer((2, 2), name="g", strides=[4, 1])
    with pytest.raises(TensorError, match="'g' has gaps"):
        tir.prim_func(write, [gaps], [y])
    stray = Buffer("z", (1,), "float32")
    with pytest.raises(LowerError, match=r"of prim_func.*where it does not exist"):
        tir.prim_func(lambda i, o: CallPacked("a", (stray,)), [x], [y])
