"""The LLVM target: what schedules turn into. Compiled for CPUs that are named, never run here."""

from __future__ import annotations

import platform
import re
from typing import Any

import pytest

from loopwright import te
from loopwright.codegen import Code
from loopwright.codegen.backends import compile_func
from loopwright.codegen.llvm.emitter import ModuleWriter
from loopwright.errors import CodegenError, InternalError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, const
from loopwright.ir.stmt import Allocate, For, Func, Store, seq
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from loopwright.target import Target
from tests.unit.lowering.programs import CASES, packed_matmul
from tests.unit.schedule.programs import chain, matmul

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 assembly")
AVX512 = "llvm -mcpu=skylake-avx512"
AVX2 = "llvm -mcpu=x86-64-v3"
#: The kind of source that is the text as it was written, before LLVM optimised it.
WRITTEN = "ll-unoptimised"


def compiled(case: Any, target: str) -> Code:
    return compile_func(lower(case.s, case.args, "f"), Target(target))


def loops(asm: str) -> list[str]:
    """Bodies of the innermost loops: from a label to the first jump back to it."""
    found = []
    for m in re.finditer(r"^(\.?L\w+):", asm, re.MULTILINE):
        back = re.compile(rf"^\s+j\w+\s+{re.escape(m[1])}$", re.MULTILINE)
        end = back.search(asm, m.end())
        body = asm[m.end() : end.start()] if end else ""
        if body and not re.search(r"^\.?L\w+:", body, re.MULTILINE):
            found.append(body)
    return found


def fmas(text: str) -> list[str]:
    """Registers that multiply-adds of vectors write."""
    return re.findall(r"vfn?madd\w+ps\s.*, (%[xyz]mm\d+)$", text, re.MULTILINE)


def vector_stores(text: str) -> list[str]:
    """Moves of vector registers to memory."""
    return re.findall(r"^\s+vmov\w+\s+%[xyz]mm\d+, [^%\n]*\(.*$", text, re.MULTILINE)


# ------------------------------------------------------------------ register tiles


@x86
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("target", "tile", "register", "count"),
    [
        (AVX512, (8, 32), "zmm", 16),
        (AVX512, (6, 64), "zmm", 24),
        (AVX2, (6, 16), "ymm", 12),
        (AVX2, (4, 24), "ymm", 12),
    ],
)
def test_a_register_tile_stays_in_registers(
    threads: int, target: str, tile: tuple[int, int], register: str, count: int
) -> None:
    """One multiply-add an accumulator and step of K, each in its own register, none stored.

    With two threads the nest is the body of a parallel loop, whose pointers come out of a closure:
    without ``noalias`` LLVM would store every accumulator in every step.
    """
    case = packed_matmul(48, 192, 64, *tile)
    code = compiled(case, f"{target} -num-threads={threads}")
    assert code.uses_pool == (threads != 1)
    hot = max(loops(code.source("asm")), key=lambda body: len(fmas(body)))
    written = fmas(hot)
    assert len(written) == len(set(written)) == count
    assert all(register in r for r in written)
    assert vector_stores(hot) == []


@x86
def test_a_tile_that_does_not_divide_keeps_its_hot_loop() -> None:
    case = packed_matmul(50, 200, 66, 8, 32)
    code = compiled(case, f"{AVX512} -num-threads=2")
    hot = [body for body in loops(code.source("asm")) if len(fmas(body)) >= 16]
    assert hot
    assert min(len(vector_stores(body)) for body in hot) == 0


@x86
@pytest.mark.parametrize(("target", "height", "width"), [(AVX512, 8, 48), (AVX2, 4, 24)])
def test_elements_that_columns_share_are_read_where_they_are_used(
    target: str, height: int, width: int
) -> None:
    """All steps of a short reduction need more elements than there are registers: LLVM would copy
    them to the stack before the loop over columns."""
    p = matmul(8, 2 * width, 16)
    acc = p.s.cache_write(p.c, "local")
    i, j = p.s[p.c].op.axis
    (i0, i1), (j0, j1) = p.s[p.c].split(i, height), p.s[p.c].split(j, width)
    p.s[p.c].reorder(i0, j0, i1, j1)
    p.s[acc].compute_at(p.s[p.c], j0)
    p.s[acc].reorder(*p.s[acc].op.reduce_axis, *p.s[acc].op.axis)
    for t, unrolled in ((p.c, [i1]), (acc, [*p.s[acc].op.reduce_axis, p.s[acc].op.axis[0]])):
        for x in unrolled:
            p.s[t].unroll(x)
    p.s[p.c].vectorize(j1)
    p.s[acc].vectorize(p.s[acc].op.axis[1])
    asm = compile_func(lower(p.s, [p.a, p.b, p.c], "f"), Target(target)).source("asm")
    assert len(fmas(asm)) >= height * 3 * 16
    assert not [line for line in vector_stores(asm) if "(%rsp)" in line]


@x86
def test_sums_stay_in_registers_however_much_a_loop_reads_again() -> None:
    """The loop adds to the same elements again and again, and also reads a matrix that stays."""
    a, b = te.placeholder((512, 40), name="A"), te.placeholder((40, 16), name="B")
    i, k = te.reduce_axis((0, 512), "i"), te.reduce_axis((0, 40), "k")
    c = te.compute((16,), lambda j: te.sum(a[i, k] * b[k, j], axis=[i, k]), name="C")
    s = create_schedule(c)
    s[c].reorder(i, k, c.op.axis[0])
    s[c].unroll(k)
    s[c].vectorize(c.op.axis[0])
    code = compile_func(lower(s, [a, b, c], "f"), Target(AVX512))
    assert "llvm.licm.disable" not in code.source(WRITTEN)
    assert vector_stores(max(loops(code.source("asm")), key=lambda body: len(fmas(body)))) == []


@pytest.mark.parametrize(
    ("value", "again"),
    [
        (lambda x: x, True),
        (te.exp, False),
        (lambda x: x / 3, False),
        (lambda x: x.astype("float64"), False),
    ],
    ids=["read", "function", "quotient", "conversion"],
)
def test_what_takes_longer_than_a_load_is_computed_once(value: Any, again: bool) -> None:
    a, b = te.placeholder((8, 40), name="A"), te.placeholder((40,), name="B")
    c = te.compute((8, 40), lambda i, j: a[i, j].astype(value(b[j]).dtype) * value(b[j]), name="C")
    s = create_schedule(c)
    s[c].unroll(c.op.axis[1])
    text = compile_func(lower(s, [a, b, c], "f"), Target("llvm -num-threads=1")).source(WRITTEN)
    assert ("llvm.licm.disable" in text) is again


@x86
@pytest.mark.parametrize(("target", "register"), [(AVX512, "zmm"), (AVX2, "ymm")])
def test_a_bound_is_an_instruction_and_one_more_for_the_sign_of_zero(
    target: str, register: str
) -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: te.min(te.max(a[i], 0.0), 6.0), name="B")
    s = create_schedule(b)
    s[b].vectorize(s[b].split(b.op.axis[0], 16)[1])
    asm = compile_func(lower(s, [a, b], "f"), Target(target)).source("asm")
    counts = {
        name: len(re.findall(rf"^\s+v{name}ps\s.*{register}", asm, re.MULTILINE))
        for name in ("max", "min", "add")
    }
    assert len(set(counts.values())) == 1, counts
    assert not re.search(r"^\s+v(cmp|blend)", asm, re.MULTILINE)


@x86
def test_vectors_are_of_the_width_wanted() -> None:
    p = chain(4, 64)
    for t in (p.b, p.c, p.d):
        p.s[t].vectorize(t.op.axis[1])
    f = lower(p.s, [p.a, p.d])
    for target, own, others in (
        (AVX512, "<16 x float>", "<32 x float>"),
        (f"{AVX512} -prefer-vector-width=256", "<8 x float>", "<16 x float>"),
        (AVX2, "<8 x float>", "<16 x float>"),
        ("llvm -mcpu=x86-64", "<4 x float>", "<8 x float>"),
    ):
        text = compile_func(f, Target(target)).source(WRITTEN)
        assert f"fmul contract {own}" in text
        assert others not in text


@x86
def test_a_vector_that_does_not_divide_ends_in_shorter_ones() -> None:
    p = chain(2, 23)
    p.s[p.b].compute_inline()
    p.s[p.c].compute_inline()
    p.s[p.d].vectorize(p.d.op.axis[1])
    text = compile_func(lower(p.s, [p.a, p.d]), Target(AVX512)).source(WRITTEN)
    found = re.findall(r"store (<\d+ x float>|float) %", text)
    assert found == ["<16 x float>", "<4 x float>", "<2 x float>", "float"]


@x86
def test_an_unannotated_nest_stays_what_it_says() -> None:
    """LLVM's own vectoriser is off, or records and features would lie; an option turns it on."""
    p = chain(64, 64)
    f = lower(p.s, [p.a, p.d])
    assert "<16 x float>" not in compile_func(f, Target(AVX512)).source("ll")
    assert "x float>" in compile_func(f, Target(f"{AVX512} -loop-vectorize=true")).source("ll")


@x86
def test_contraction_is_the_default_and_reassociation_an_option() -> None:
    p = matmul()
    f = lower(p.s, [p.a, p.b, p.c])
    text = compile_func(f, Target(AVX512)).source(WRITTEN)
    assert "fadd contract" in text
    assert "fast" not in text
    assert "fadd fast" in compile_func(f, Target(f"{AVX512} -fastmath=true")).source(
        "ll-unoptimised"
    )


# ------------------------------------------------------------------ functions


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_llvm_accepts_every_case(name: str, threads: int) -> None:
    code = compiled(CASES[name](), f"llvm -num-threads={threads}")
    assert code.objects[:4] == b"\x7fELF" or platform.system() != "Linux"
    assert re.search(r"^define .*i32 @f\(ptr", code.source("ll"), re.MULTILINE)
    assert len(code.source("asm")) > 100


def test_arguments_do_not_alias() -> None:
    p = chain()
    text = compile_func(lower(p.s, [p.a, p.d], "f"), Target("llvm -num-threads=1")).source(
        "ll-unoptimised"
    )
    assert re.search(
        r"define internal i32 @f\.body\(ptr noalias %p0, ptr noalias %p1, ptr noalias %ws\) "
        "alwaysinline",
        text,
    )


def test_a_parallel_body_has_its_own_noalias_parameters() -> None:
    p = chain()
    p.s[p.d].parallel(p.d.op.axis[0])
    code = compile_func(lower(p.s, [p.a, p.d], "f"), Target("llvm -num-threads=2"))
    assert re.search(
        r"define internal i32 @f\.par1\.body\(i64 %i, ptr noalias %p0",
        code.source(WRITTEN),
    )
    assert "@lw_parallel_launch" in code.source(WRITTEN)
    assert code.uses_pool


@pytest.mark.parametrize("spec", ["llvm -num-threads=1"])
def test_one_thread_needs_no_pool(spec: str) -> None:
    p = chain()
    p.s[p.d].parallel(p.d.op.axis[0])
    code = compile_func(lower(p.s, [p.a, p.d], "f"), Target(spec))
    assert not code.uses_pool
    assert "lw_parallel_launch" not in code.source(WRITTEN)


def test_a_parallel_loop_inside_another_runs_inline() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].parallel(i)
    p.s[p.d].parallel(j)
    text = compile_func(lower(p.s, [p.a, p.d], "f"), Target("llvm -num-threads=2")).source(
        "ll-unoptimised"
    )
    assert text.count("call i32 @lw_parallel_launch") == 1


def test_a_vector_of_padding_is_read_where_memory_is() -> None:
    """A load whose lanes are all switched off has the buffer's own address: one from a page that is
    not there takes hundreds of cycles, though it gives zeros."""
    a = te.placeholder((8, 16), name="A")
    i = te.compute(
        (10, 16),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 9), a[i - 1, j], te.const(0.0, "float32")),
        name="P",
    )
    s = te.create_schedule(i.op)
    s[i].vectorize(s[i].split(i.op.axis[1], factor=8)[1])
    text = compile_func(lower(s, [a, i], "f"), Target("llvm")).source("ll-unoptimised")
    (load,) = re.findall(r"@llvm\.masked\.load\.v8f32\.p0\(ptr (%\w+)", text)
    assert re.search(rf"{load} = select i1 %\w+, ptr %\w+, ptr %p0\b", text)


# ------------------------------------------------------------------ memory


def scratch(nbytes: int, kind: str) -> Func:
    """``for i: t = alloc; t[0] = 1; c[i] = t[0]`` with a buffer of a given size."""
    c, t = Buffer("c", (4,), "float32"), Buffer("t", (nbytes // 4,), "float32")
    i, zero = Var("i"), const(0, "int32")
    body = seq(
        Store(t, (zero,), const(1.0, "float32")), Store(c, (i,), Load(t, (zero,), "float32"))
    )
    return Func("f", (c,), (True,), For(i, 4, kind, Allocate(t, body)))


@pytest.mark.parametrize(
    ("nbytes", "own", "workers"), [(4096, 0, 0), (4100, 4160, 4160), (1 << 20, 1 << 20, 1 << 20)]
)
def test_small_buffers_are_on_the_stack_large_ones_in_the_workspace(
    nbytes: int, own: int, workers: int
) -> None:
    code = compile_func(scratch(nbytes, "serial"), Target("llvm -num-threads=2"))
    assert (code.workspace_bytes, code.parallel_workspace_bytes) == (own, 0)
    code = compile_func(scratch(nbytes, "parallel"), Target("llvm -num-threads=2"))
    assert (code.workspace_bytes, code.parallel_workspace_bytes) == (own, workers)
    code = compile_func(scratch(nbytes, "parallel"), Target("llvm -num-threads=1"))
    assert (code.workspace_bytes, code.parallel_workspace_bytes) == (own, 0)


def test_buffers_that_live_one_after_the_other_share_the_workspace() -> None:
    c, i, zero = Buffer("c", (4,), "float32"), Var("i"), const(0, "int32")

    def block(nbytes: int) -> Any:
        t = Buffer("t", (nbytes // 4,), "float32")
        fill = Store(t, (zero,), const(1.0, "float32"))
        return Allocate(t, seq(fill, Store(c, (i,), Load(t, (zero,), "float32"))))

    f = Func("f", (c,), (True,), For(i, 4, "serial", seq(block(8192), block(16384))))
    assert compile_func(f, Target("llvm")).workspace_bytes == 16384


def test_nested_buffers_add_up() -> None:
    p = chain(4, 2048)
    for t in (p.b, p.c):
        p.s[t].compute_at(p.s[p.d], p.d.op.axis[0])
    code = compile_func(lower(p.s, [p.a, p.d], "f"), Target("llvm -num-threads=1"))
    assert code.workspace_bytes == 2 * 2048 * 4


def test_the_workspace_of_an_inline_launch_lies_behind_the_callers() -> None:
    """When the pool is busy the body runs with a piece of the caller's workspace."""
    p = chain(64, 4096)
    i, _ = p.d.op.axis
    p.s[p.c].compute_at(p.s[p.d], i)
    p.s[p.d].parallel(i)
    code = compile_func(lower(p.s, [p.a, p.d], "f"), Target("llvm -num-threads=2"))
    row, whole = 4096 * 4, 64 * 4096 * 4
    assert code.parallel_workspace_bytes == row
    assert code.workspace_bytes == whole + row
    assert f"getelementptr i8, ptr %ws, i64 {whole}" in code.source(WRITTEN)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("tag", ["threadIdx.x", "blockIdx.y"])
def test_thread_axes_are_refused(tag: str) -> None:
    p = chain()
    p.s[p.d].bind(p.d.op.axis[0], te.thread_axis(tag))
    with pytest.raises(
        CodegenError,
        match=rf"llvm: loop 'D\.i' is bound to {re.escape(tag)}; thread axes are for GPU targets, "
        "on a CPU use parallel, vectorize or unroll",
    ):
        compile_func(lower(p.s, [p.a, p.d]), Target("llvm"))


def test_what_llvm_refuses_is_our_fault_and_shows_the_text(monkeypatch: Any) -> None:
    monkeypatch.setattr(ModuleWriter, "text", lambda self: "define i32 @f() { oops }")
    p = chain()
    contents = compile_func(lower(p.s, [p.a, p.d]), Target("llvm")).contents
    assert callable(contents)
    with pytest.raises(InternalError, match=r"LLVM refused generated code: (?s:.*)oops \}"):
        contents()


def test_every_type_has_its_code() -> None:
    for dtype in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"):
        a = te.placeholder((37,), dtype, name="A")
        b = te.compute(
            (37,), lambda i, a=a, d=dtype: te.cast(te.cast(a[i], "int32") + 1, d), name="B"
        )
        s = create_schedule(b)
        s[b].vectorize(b.op.axis[0])
        assert compile_func(lower(s, [a, b], "f"), Target("llvm")).objects


@x86
@pytest.mark.parametrize("count", [8, 16])
def test_one_vector_of_products_of_bytes_is_summed_as_a_whole(count: int) -> None:
    """LLVM 22 takes the first partial sum of the instruction that it finds for itself."""
    a, b = te.placeholder((count,), "uint8", name="a"), te.placeholder((count,), "int8", name="b")
    k = te.reduce_axis((0, count), name="k")
    c = te.compute((1,), lambda i: te.sum(a[k].astype("int32") * b[k].astype("int32"), axis=k))
    s = create_schedule(c.op)
    s[c].vectorize(c.op.reduce_axis[0])
    code = compile_func(lower(s, [a, b, c], "f"), Target("llvm -mcpu=cascadelake"))
    assert "vpdpbusd" not in code.source("asm")
