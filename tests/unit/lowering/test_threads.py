"""Kernels: their nests as golden texts, and what they compute, with every race looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import LowerError, RunError
from loopwright.ir.expr import const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule, create_schedule
from tests.unit.lowering import gpu_programs
from tests.unit.lowering.programs import Array, Case

CASES: dict[str, Callable[[], Case]] = {
    "matmul": gpu_programs.tiled_matmul,
    "shared_stage": lambda: gpu_programs.shared_stage(64, 32),
    "row_sum": gpu_programs.row_sum,
    "softmax": gpu_programs.softmax,
    "argmax": gpu_programs.argmax,
}
#: Shapes that no tile divides.
UNEVEN: dict[str, Callable[[], Case]] = {
    "matmul": lambda: gpu_programs.tiled_matmul(30, 45, 21),
    "one_vthread": lambda: gpu_programs.tiled_matmul(17, 16, 9, vthreads=1),
    "four_vthreads": lambda: gpu_programs.tiled_matmul(19, 23, 5, vthreads=4),
    "shared_stage": lambda: gpu_programs.shared_stage(29, 21),
    "row_sum": lambda: gpu_programs.row_sum(3, 10, 16),
    "row_sum_7": lambda: gpu_programs.row_sum(2, 50, 7),
    "softmax": lambda: gpu_programs.softmax(3, 13, 5),
}


def inputs_of(case: Case) -> list[Array]:
    rng = np.random.default_rng(1)
    placeholders = [t for t in case.args if not t.op.input_tensors]
    return [rng.standard_normal(t.shape).astype(t.dtype) for t in placeholders]


def run(f: Func, ins: list[Array], **options: Any) -> list[Array]:
    outs = [np.full(p.shape, 77, p.dtype) for p in f.params[len(ins) :]]
    interpret(f, [*ins, *outs], **options)
    return outs


def check(s: Schedule, args: list[te.Tensor], ins: list[Array], want: Array) -> Func:
    f = lower(s, args)
    for seed in (None, 1, 2):
        got = run(f, ins, thread_order=seed, races=True)[0]
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    return f


@pytest.mark.parametrize(
    "name",
    [
        "matmul",
        "row_sum",
        "argmax",
        # `UNEVEN` has both with tails.
        pytest.param("shared_stage", marks=pytest.mark.slow),
        pytest.param("softmax", marks=pytest.mark.slow),
    ],
)
def test_kernels(name: str, golden: Any) -> None:
    case = CASES[name]()
    ins = inputs_of(case)
    golden(str(check(case.s, case.args, ins, case.reference(*ins))))


@pytest.mark.parametrize("name", UNEVEN)
def test_sizes_that_no_tile_divides(name: str) -> None:
    case = UNEVEN[name]()
    ins = inputs_of(case)
    check(case.s, case.args, ins, case.reference(*ins))


@pytest.mark.parametrize("name", ["matmul", "row_sum", "softmax", "shared_stage"])
def test_without_barriers_races_are_found(name: str) -> None:
    case = CASES[name]()
    with PassContext(disabled_pass=["ThreadSync"]):
        f = lower(case.s, case.args)
    assert "barrier" not in str(f)
    with pytest.raises(RunError, match=r"race on .*: threads \[.*\] and \[.*\] touch it"):
        run(f, inputs_of(case), races=True)


def test_a_missing_barrier_shows_in_a_random_order() -> None:
    case = CASES["row_sum"]()
    with PassContext(disabled_pass=["ThreadSync"]):
        f = lower(case.s, case.args)
    ins = inputs_of(case)
    wrong = [run(f, ins, thread_order=seed)[0] for seed in range(3)]
    assert any(not np.allclose(w, case.reference(*ins), rtol=1e-4) for w in wrong)


# ------------------------------------------------------------------ where buffers live


def vector(n: int = 64) -> tuple[te.Tensor, te.Tensor, Schedule]:
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + b[n - 1 - i], name="C")
    return a, c, create_schedule(c)


def test_scopes_decide_what_a_region_covers() -> None:
    """Attached inside a thread loop: what the block needs in shared, one element in local."""
    for scope, shape in (("shared", "float32[64]"), ("local", "float32[32]"), ("", "float32[32]")):
        a = te.placeholder((64, 32), name="A")
        b = te.compute((64, 32), lambda i, j, a=a: a[i, j] * 2.0, name="B")
        k = te.reduce_axis((0, 32), "k")
        c = te.compute((64,), lambda i, b=b, k=k: te.sum(b[i, k], axis=k), name="C")
        s = create_schedule(c)
        bx, tx = s[c].split(c.op.axis[0], factor=2)
        s[c].bind(bx, "blockIdx.x")
        s[c].bind(tx, "threadIdx.x")
        s[b].compute_at(s[c], tx)
        if scope:
            s[b].set_scope(scope)
        x = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
        text = str(check(s, [a, c], [x], (x * 2).sum(axis=1)))
        size = shape.replace("[64]", "[2, 32]").replace("[32]", "[1, 32]")
        assert f"B = alloc({size}, {scope or 'local'})" in text


def test_inside_blocks_only_the_default_is_shared() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((64,), lambda i: b[i] + 1.0, name="C")
    s = create_schedule(c)
    bx, tx = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(tx, "threadIdx.x")
    s[b].compute_at(s[c], bx)
    x = np.arange(64, dtype="float32")
    text = str(check(s, [a, c], [x], x * 2 + 1))
    assert "B = alloc(float32[16], shared)" in text
    assert "if threadIdx.x < 1:" in text, "one thread fills it when no loop of it is bound"


def test_a_shorter_loop_runs_under_a_guard() -> None:
    a = te.placeholder((60,), name="A")
    w = te.compute((60,), lambda i: a[i] * 2.0, name="W")
    c = te.compute((60,), lambda i: w[i // 4] + a[i], name="C")
    s = create_schedule(c)
    bx, tx = s[c].split(c.op.axis[0], factor=20)
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(tx, "threadIdx.x")
    s[w].compute_at(s[c], bx)
    s[w].set_scope("shared")
    _, wi = s[w].split(w.op.axis[0], factor=7)
    s[w].bind(wi, "threadIdx.x")
    x = np.arange(60, dtype="float32")
    want = (x * 2)[np.arange(60) // 4] + x
    assert "if threadIdx.x < 7" in str(check(s, [a, c], [x], want))


def test_env_threads_without_loops_of_the_root() -> None:
    a = te.placeholder((8, 32), name="A")
    k = te.reduce_axis((0, 32), "k")
    b = te.compute((8, 32), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = create_schedule(c)
    s[c].bind(c.op.axis[0], "blockIdx.x")
    s[c].env_threads([te.thread_axis((0, 16), "threadIdx.x")])
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].set_scope("shared")
    _, tx = s[b].split(b.op.axis[1], factor=16)
    s[b].bind(tx, te.thread_axis((0, 16), "threadIdx.x"))
    x = np.random.default_rng(0).standard_normal((8, 32)).astype("float32")
    text = str(check(s, [a, c], [x], (x * 2).sum(axis=1)))
    assert "# bound = B.j.1\n    for threadIdx.x in thread(16):" in text
    assert "if threadIdx.x < 1:" in text


def test_a_reduction_across_threads_starts_from_init_once() -> None:
    a = te.placeholder((4, 30), name="A")
    k = te.reduce_axis((0, 30), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=100.0), name="C")
    s = create_schedule(c)
    _, ki = s[c].split(k, factor=8)
    s[c].bind(ki, "threadIdx.x")
    x = np.random.default_rng(0).standard_normal((4, 30)).astype("float32")
    check(s, [a, c], [x], x.sum(axis=1) + 100)


def test_a_reduction_over_two_axes_of_threads_with_loops_inside() -> None:
    a = te.placeholder((6, 10, 12), name="A")
    k, r = te.reduce_axis((0, 10), "k"), te.reduce_axis((0, 12), "r")
    c = te.compute((6,), lambda i: te.sum(a[i, k, r], axis=[k, r]), name="C")
    s = create_schedule(c)
    i = c.op.axis[0]
    io, ii = s[c].split(i, factor=4)
    ko, ki = s[c].split(k, factor=4)
    ro, ri = s[c].split(r, factor=3)
    s[c].reorder(io, ko, ki, ro, ii, ri)
    s[c].bind(io, "blockIdx.x")
    s[c].bind(ki, "threadIdx.y")
    s[c].bind(ri, "threadIdx.x")
    x = np.random.default_rng(0).standard_normal((6, 10, 12)).astype("float32")
    text = str(check(s, [a, c], [x], x.sum(axis=(1, 2))))
    assert "C.acc = alloc(float32[4], local)" in text
    assert "C.acc.row = alloc(float32[1, 12], shared)" in text


# ------------------------------------------------------------------ virtual threads


def test_virtual_threads_on_their_own_are_loops() -> None:
    """Without launch axes they run anywhere, also on a CPU."""
    a, c, s = vector(24)
    b = c.op.input_tensors[0]
    v, i = s[c].split(c.op.axis[0], nparts=3)
    s[c].bind(v, "vthread")
    s[b].compute_at(s[c], i)
    x = np.arange(24, dtype="float32")
    text = str(check(s, [a, c], [x], 2 * x + 2 * x[::-1]))
    assert "for i.0 in unrolled(3):" in text
    assert "vthread" not in text


def test_virtual_threads_share_what_does_not_differ() -> None:
    case = gpu_programs.tiled_matmul()
    text = str(lower(case.s, case.args))
    assert "C.local = alloc(float32[2, 2, 2, 2], local)" in text
    assert text.count("A.shared[") == 2, "filled once, read once"
    assert text.index("A.shared[") < text.index("i.1.0_1"), "filled outside of virtual threads"


def test_virtual_threads_that_differ_about_a_condition_are_a_loop() -> None:
    """A stage in shared memory whose loop of virtual threads visits more than there is."""
    a = te.placeholder((9,), name="A")
    b = te.compute((9,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((9,), lambda i: b[8 - i] + 1.0, name="C")
    s = create_schedule(c)
    bx = s[c].split(c.op.axis[0], nparts=1)[0]
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(s[c].leaf_iter_vars[1], "threadIdx.x")
    s[b].compute_at(s[c], bx)
    v, t = s[b].split(b.op.axis[0], factor=2)
    v, _ = s[b].split(v, factor=2)
    s[b].bind(v, "vthread")
    s[b].bind(t, "threadIdx.x")
    x = np.arange(9, dtype="float32")
    text = str(check(s, [a, c], [x], (x * 2)[::-1] + 1))
    assert "for i.0.0 in unrolled(3):" in text
    assert "if i.0.0 * 2 + i.0.1 < 5:" in text


# ------------------------------------------------------------------ what random kernels found


def test_one_thread_fills_the_padding_of_a_shared_buffer() -> None:
    """With a barrier before the elements come over it."""
    a = te.placeholder((6, 8), name="A")
    c = te.compute((6, 8), lambda i, j: a[i, 7 - j] * 2.0, name="C")
    s = create_schedule(c)
    copy = s.cache_read(a, "shared", [c])
    i, j = c.op.axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[copy].compute_at(s[c], i)
    s[copy].bind(s[copy].op.axis[1], "threadIdx.x")
    s[copy].transform_layout(lambda i, j: [i, j // 3, j % 3], pad_value=0)
    x = np.arange(48, dtype="float32").reshape(6, 8)
    text = str(check(s, [a, c], [x], x[:, ::-1] * 2))
    fill = text.index("if threadIdx.x < 1:")
    assert text.index("barrier", fill) < text.index("= A[", fill)


def test_padding_of_local_buffers_is_filled_by_their_threads() -> None:
    a = te.placeholder((6, 7), name="A")
    c = te.compute((6, 7), lambda i, j: a[i, 6 - j] * 2.0, name="C")
    s = create_schedule(c)
    copy = s.cache_read(a, "local", [c])
    i, _ = c.op.axis
    s[c].bind(i, "threadIdx.x")
    s[copy].compute_at(s[c], i)
    s[copy].transform_layout(lambda i, j: [i, j // 4, j % 4], pad_value=0)
    x = np.arange(42, dtype="float32").reshape(6, 7)
    text = str(check(s, [a, c], [x], x[:, ::-1] * 2))
    assert "if threadIdx" not in text
    assert "A.local = alloc(float32[1, 2, 4], local)" in text


def test_no_barrier_where_an_index_tells_threads_apart() -> None:
    """Each thread adds up elements of its own in shared memory; none waits in the loops."""
    a = te.placeholder((16, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((16,), lambda i: b[15 - i] * 2.0, name="C")
    s = create_schedule(c)
    bx, _ = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(bx, "blockIdx.x")
    s[c].env_threads([("threadIdx.x", 4)])
    s[b].compute_at(s[c], bx)
    s[b].set_scope("shared")
    t, v = s[b].split(b.op.axis[0], factor=4)
    s[b].reorder(k, t, v)
    s[b].bind(t, "threadIdx.x")
    s[b].vectorize(v)
    x = np.random.default_rng(0).standard_normal((16, 5)).astype("float32")
    text = str(check(s, [a, c], [x], x.sum(axis=1)[::-1] * 2))
    assert text.count("barrier") == 1


def test_threads_that_over_run_a_vector_cannot_meet_in_it() -> None:
    """Threads 4 i + v with v up to 5 touch elements of each other."""
    from loopwright.ir.buffer import Buffer, Load
    from loopwright.ir.expr import Var, binary
    from loopwright.ir.stmt import For, Store
    from loopwright.lowering.passes.thread_sync import thread_sync

    t, v, shared = Var("threadIdx.x"), Var("v"), Buffer("S", (64,), "float32", "shared")

    def program(reach: int) -> Func:
        at = binary("+", binary("*", t, 4), v)
        value = binary("+", Load(shared, (at,), "float32"), 1.0)
        loop = For(v, reach, "vectorized", Store(shared, (at,), value))
        return Func("f", (shared,), (True,), For(t, 8, "thread", loop, (), "threadIdx.x"))

    assert "barrier" not in str(thread_sync(program(4)))
    with pytest.raises(LowerError, match="must meet in the vectorized loop 'v'; vectorize another"):
        thread_sync(program(5))


def test_only_some_threads_come_where_all_must_meet() -> None:
    from loopwright.ir.buffer import Buffer, Load
    from loopwright.ir.expr import Var, binary
    from loopwright.ir.stmt import For, If, Seq, Store
    from loopwright.lowering.passes.thread_sync import thread_sync

    t, shared = Var("threadIdx.x"), Buffer("S", (8,), "float32", "shared")
    other = Load(shared, (binary("-", 7, t),), "float32")
    body = Seq((Store(shared, (t,), const(1.0, "float32")), Store(shared, (t,), other)))
    f = Func(
        "f",
        (shared,),
        (True,),
        For(t, 8, "thread", If(binary("<", t, 5), body), (), "threadIdx.x"),
    )
    with pytest.raises(LowerError) as e:
        thread_sync(f)
    assert str(e.value) == (
        "lower: the threads of a block must meet while they use S, but only some of them come "
        "there (if threadIdx.x < 5); compute the stage in shared memory outside of that condition, "
        "or make the extents of the thread axes equal"
    )


def test_large_local_buffers_of_a_thread_share_local_memory() -> None:
    a = te.placeholder((2, 1100), name="A")
    b = te.compute((2, 1100), lambda i, j: a[i, 1099 - j] + 1.0, name="B")
    c = te.compute((2, 1100), lambda i, j: b[i, 1099 - j] * 2.0, name="C")
    d = te.compute((2, 1100), lambda i, j: c[i, 1099 - j] + 1.0, name="D")
    e = te.compute((2, 1100), lambda i, j: d[i, 1099 - j] * 2.0, name="E")
    s = create_schedule(e)
    s[e].bind(e.op.axis[0], "threadIdx.x")
    for t in (d, c, b):
        s[t].compute_at(s[e], e.op.axis[0])
    x = np.arange(2200, dtype="float32").reshape(2, 1100)
    text = str(check(s, [a, e], [x], ((x + 1) * 2 + 1) * 2))
    assert "pool = alloc(uint8[8832], local)" in text


def test_the_same_text_every_time() -> None:
    """Tests of several short axes around a stage stand in one order."""
    texts = set()
    for _ in range(8):
        a = te.placeholder((6, 6), name="A")
        b = te.compute((6, 6), lambda i, j, a=a: a[i, j] * 2.0, name="B")
        c = te.compute((6, 6), lambda i, j, b=b: b[i, j] + 1.0, name="C")
        s = create_schedule(c)
        s[c].env_threads([("threadIdx.x", 8), ("threadIdx.y", 8), ("threadIdx.z", 8)])
        i, j = c.op.axis
        jo, ji = s[c].split(j, factor=2)
        for loop, tag in ((i, "threadIdx.x"), (jo, "threadIdx.y"), (ji, "threadIdx.z")):
            s[c].bind(loop, tag)
        s[b].compute_at(s[c], ji)
        texts.add(str(lower(s, [a, c])))
    assert len(texts) == 1
    assert "if threadIdx.x < 6 and threadIdx.y < 3 and threadIdx.z < 2:" in texts.pop()
