"""SplitHostDevice: which kernels a function becomes, what they take, and what is refused."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.codegen.gpu.split import SplitKernel, SplitProgram, split_host_device
from loopwright.codegen.manifests import device_code
from loopwright.errors import CodegenError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Expr, Var, as_expr
from loopwright.ir.kinds import Scope
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Stmt, Store, View, seq
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import create_schedule
from tests.unit.lowering import gpu_programs

A, B, C = (Buffer(n, (8,), "float32") for n in "ABC")


def add(x: Buffer, y: Buffer, i: Expr, by: float = 1.0) -> Stmt:
    return Store(y, (i,), Binary("+", Load(x, (i,), "float32"), as_expr(by), "float32"))


def loop(x: Buffer, y: Buffer) -> Stmt:
    i = Var("i")
    return For(i, 8, "serial", add(x, y, i))


def kernel(x: Buffer, y: Buffer, tag: str = "threadIdx.x") -> For:
    i = Var("t")
    return For(i, 8, "thread", add(x, y, i), tag=tag)


def split(body: Stmt, *params: Buffer) -> SplitProgram:
    return split_host_device(Func("f", params, (False,) * len(params), body), "test")


def names(k: SplitKernel) -> list[str]:
    return [b.name for b in k.parameters]


def test_neighbours_without_threads_are_one_kernel_of_one_thread() -> None:
    p = split(seq(loop(A, B), loop(B, C), kernel(C, A), loop(A, C)), A, B, C)
    assert [k.name for k in p.kernels] == ["f_kernel0", "f_kernel1", "f_kernel2"]
    assert [k.thread_count for k in p.kernels] == [1, 8, 1]
    assert [names(k) for k in p.kernels] == [["A", "B", "C"], ["A", "C"], ["A", "C"]]
    assert p.kernels[1].written == {A}


def test_extents_are_by_axis() -> None:
    p = split(kernel(A, B, "blockIdx.y"), A, B)
    assert p.kernels[0].extents("blockIdx") == (1, 8, 1)
    assert p.kernels[0].extents("threadIdx") == (1, 1, 1)


def test_buffers_between_kernels_lie_in_global_memory() -> None:
    t = Buffer("T", (8,), "float32")
    p = split(Allocate(t, seq(kernel(A, t), kernel(t, B))), A, B)
    assert p.buffers == (t,)
    assert [names(k) for k in p.kernels] == [["A", "T"], ["B", "T"]]
    code = device_code(p, b"")
    assert code.buffers == (64,)
    assert [x.arguments for x in code.launches] == [
        (("parameter", 0), ("buffer", 0)),
        (("parameter", 1), ("buffer", 0)),
    ]


def test_buffers_of_a_single_thread_are_global_where_they_are_large() -> None:
    small, large = Buffer("small", (8,), "float32"), Buffer("large", (2048,), "float32")
    i = Var("i")
    inner = seq(loop(A, small), loop(small, large), loop(large, B))
    p = split(For(i, 3, "serial", Allocate(small, Allocate(large, inner))), A, B)
    assert p.buffers == (large,)
    assert names(p.kernels[0]) == ["A", "B", "large"]


@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
def test_shared_buffers_of_a_block_belong_to_its_kernel(scope: Scope) -> None:
    s = Buffer("S", (8,), "float32", scope)
    p = split(Allocate(s, kernel(A, s)), A)
    assert (p.buffers, p.kernels[0].shared, names(p.kernels[0])) == ((), (s,), ["A"])


def test_a_shared_buffer_that_two_kernels_use_is_global() -> None:
    s = Buffer("S", (8,), "float32", "shared")
    p = split(Allocate(s, seq(kernel(A, s), kernel(s, B))), A, B)
    assert (p.buffers, p.kernels[0].shared) == ((s,), ())


def test_definitions_and_views_around_kernels_go_into_those_that_use_them() -> None:
    v, pool = Var("v"), Buffer("pool", (64,), "uint8")
    t = Buffer("T", (8,), "float32")
    i = Var("t")
    uses = For(i, 8, "thread", Store(t, (i,), Load(A, (v,), "float32")), tag="threadIdx.x")
    body = Let(v, as_expr(3), Allocate(pool, View(t, pool, 32, seq(uses, kernel(A, B)))))
    p = split(body, A, B)
    first, second = p.kernels
    assert isinstance(first.body, Let)
    assert isinstance(first.body.body, View)
    assert (names(first), names(second)) == (["A", "pool"], ["A", "B"])
    assert isinstance(second.body, Store)
    assert first.written == {t, pool}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (For(Var("i"), 2, "serial", kernel(A, B)), "loop 'i' that no thread axis is bound to"),
        (If(as_expr(True), kernel(A, B)), "inside of a If that no thread axis"),
    ],
)
def test_kernels_inside_of_other_statements_are_refused(body: Stmt, text: str) -> None:
    with pytest.raises(CodegenError, match=text):
        split(body, A, B)


def test_checks_of_bounds_are_refused() -> None:
    case = gpu_programs.row_sum()
    with PassContext(config={"instrument_bound_checkers": True}):
        f = lower(case.s, case.args)
    with pytest.raises(CodegenError, match=r"cannot leave a kernel; .*Target\('interp'\)"):
        split_host_device(f, "opencl")


def test_sizes_are_formulas_of_the_launch() -> None:
    n = te.var("n")
    a = te.placeholder((n, 3), name="A")
    t = te.compute((n, 3), lambda i, j: a[i, j] * 2.0, name="T")
    b = te.compute((n, 3), lambda i, j: t[i, j] + 1.0, name="B")
    s = create_schedule(b)
    for stage in (t, b):
        io, ii = s[stage].split(s[stage].op.axis[0], factor=32)
        s[stage].bind(io, te.thread_axis("blockIdx.x"))
        s[stage].bind(ii, te.thread_axis("threadIdx.x"))
    program = split_host_device(lower(s, [a, b]), "opencl")
    code = device_code(program, b"")
    assert code.launches[0].grid == (["//", ["+", "n", 31], 32], 1, 1)
    assert code.launches[0].block == (32, 1, 1)
    assert code.launches[0].arguments == (("parameter", 0), ("buffer", 0), ("size", 0))
    assert "n" in str(code.buffers[0])
    again = type(code).from_bytes(code.to_bytes(), 2, ("n",))
    assert [x.grid for x in again.launches] == [x.grid for x in code.launches]
