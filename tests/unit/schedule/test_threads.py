"""What bind, env_threads and set_store_predicate refuse, and with which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError, TensorError
from loopwright.schedule import replay
from tests.unit.schedule.programs import chain, matmul


def refused(p: Any, call: Any, text: str) -> None:
    state, trace = p.s.state, p.s.trace
    with pytest.raises(ScheduleError) as e:
        call()
    assert text in str(e.value)
    assert (p.s.state, p.s.trace) == (state, trace)


def invalid(p: Any, text: str) -> None:
    with pytest.raises(ScheduleError) as e:
        p.s.validate()
    assert text in str(e.value)


# ------------------------------------------------------------------ when the step is applied


def test_unknown_thread_axes() -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].bind(p.c.op.axis[0], "threadIdx.w"),
        "bind (step 0): unknown thread axis 'threadIdx.w' (did you mean 'threadIdx.",
    )
    with pytest.raises(TensorError, match=r"thread_axis 'tx': domains start at 0, got \(1, 4\)"):
        te.thread_axis((1, 4), "threadIdx.x", name="tx")
    n = te.var("n")
    with pytest.raises(TensorError, match=r"thread_axis 'threadIdx\.x': the extent must be a num"):
        te.thread_axis((0, n), "threadIdx.x")


@pytest.mark.parametrize(
    ("tag", "why"),
    [("blockIdx.x", "blocks cannot add to one element"), ("vthread", "it has one result")],
)
def test_reductions_run_on_threads_only(tag: str, why: str) -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].bind(p.c.op.reduce_axis[0], tag),
        f"bind (step 0): loop 'C.k' is a reduction, {tag} cannot run it: {why}; bind it to "
        "threadIdx (the threads of a block reduce together), or use rfactor and bind the new loop",
    )


def test_an_axis_runs_one_loop_of_a_stage() -> None:
    p = matmul()
    i, j = p.c.op.axis
    p.s[p.c].bind(i, "threadIdx.x")
    refused(
        p,
        lambda: p.s[p.c].bind(j, "threadIdx.x"),
        "bind (step 1): 'C.i' is bound to threadIdx.x already (step 0), so 'C.j' cannot be; fuse "
        "the two loops first, or use another thread axis",
    )
    p.s[p.c].bind(j, "threadIdx.y")


def test_extents_of_axes_are_positive() -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].bind(p.c.op.axis[0], ("threadIdx.x", -2)),
        "bind (step 0): the extent of threadIdx.x must be positive, got -2",
    )
    refused(
        p,
        lambda: p.s[p.c].env_threads([("threadIdx.x", 0)]),
        "env_threads (step 0): the extent of threadIdx.x must be positive, got 0",
    )


def test_env_threads_rules() -> None:
    p = chain()
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[0])
    refused(
        p,
        lambda: p.s[p.b].env_threads([("threadIdx.x", 4)]),
        "env_threads (step 1): 'B' is computed at; give the axes to the root stage around it",
    )
    refused(
        p,
        lambda: p.s[p.d].env_threads([("threadIdx.x", 4), ("threadIdx.x", 4)]),
        "env_threads (step 1): threadIdx.x is given twice",
    )
    refused(
        p,
        lambda: p.s[p.d].env_threads(["vthread"]),
        "env_threads (step 1): 'vthread' is no axis of a launch; use one of blockIdx.x",
    )
    refused(
        p,
        lambda: p.s[p.d].env_threads([3]),
        "env_threads (step 1): expected te.thread_axis(...), got 3",
    )
    p.s[p.d].env_threads([te.thread_axis((0, 4), "threadIdx.x")])
    refused(
        p,
        lambda: p.s[p.d].env_threads(["threadIdx.y"]),
        "env_threads (step 2): 'D' has thread axes already; give all of them in one call",
    )


def test_store_predicates() -> None:
    p = matmul()
    tx = te.thread_axis("threadIdx.x", name="tx")
    refused(
        p,
        lambda: p.s[p.c].set_store_predicate([("threadIdx.x", 0)]),
        "set_store_predicate (step 0): no reduction loop of 'C' is bound to a thread axis, so "
        "every thread stores elements of its own; bind the reduction loop first",
    )
    refused(
        p,
        lambda: p.s[p.c].set_store_predicate(tx.var.equal(0)),
        "set_store_predicate (step 0): 'tx' is no thread axis of this schedule; bind a loop to it",
    )
    p.s[p.c].bind(p.c.op.reduce_axis[0], tx)
    refused(
        p,
        lambda: p.s[p.c].set_store_predicate(tx.var < 1),
        "set_store_predicate (step 1): expected axis.var.equal(n) of thread axes, joined by te.all",
    )
    refused(
        p,
        lambda: p.s[p.c].set_store_predicate([("threadIdx.y", 0)]),
        "set_store_predicate (step 1): threadIdx.y reduces nothing in 'C' (its reduction loops are "
        "bound to threadIdx.x), so a test of it would leave elements unset",
    )
    refused(
        p,
        lambda: p.s[p.c].set_store_predicate([("threadIdx.x", -1)]),
        "set_store_predicate (step 1): threadIdx.x is never -1",
    )
    p.s[p.c].set_store_predicate(te.all(tx.var.equal(10)))
    assert p.s.trace_json()[-1] == ["set_store_predicate", 2, [["threadIdx.x", 10]]]
    invalid(p, "set_store_predicate (step 1): threadIdx.x of 'C' is never 10: it runs to 9")


# ------------------------------------------------------------------ when extents are known


def test_declared_extents_must_be_those_of_the_launch() -> None:
    p = matmul()
    p.s[p.c].bind(p.c.op.axis[0], te.thread_axis((0, 16), "threadIdx.x"))
    invalid(
        p,
        "bind (step 0): the thread axis was declared with extent 16, but loop 'C.i' makes "
        "threadIdx.x 8 long; split 'C.i' to that extent, or declare the axis without one",
    )


def test_longer_loops_inside_a_kernel() -> None:
    p = matmul(8, 12, 10)
    i, j = p.c.op.axis
    p.s[p.c].bind(i, "blockIdx.x")
    p.s[p.c].bind(j, "threadIdx.x")
    copy = p.s.cache_read(p.b, "shared", [p.c])
    p.s[copy].compute_at(p.s[p.c], i)
    f = p.s[copy].fuse(*p.s[copy].op.axis)
    p.s[copy].bind(f, "threadIdx.x")
    invalid(
        p,
        "bind (step 5): loop 'B.shared.ax0.ax1' has 120 iterations, but loop 'C.j' launches only "
        "12 of threadIdx.x; split 'B.shared.ax0.ax1' by 12 and bind the inner part",
    )


def test_env_threads_give_the_extent() -> None:
    p = matmul()
    p.s[p.c].env_threads([("threadIdx.x", 4)])
    p.s[p.c].bind(p.c.op.axis[0], "threadIdx.x")
    invalid(
        p,
        "bind (step 1): loop 'C.i' has 8 iterations, but env_threads of 'C' launches only 4 of "
        "threadIdx.x; split 'C.i' by 4 and bind the inner part",
    )
    q = matmul()
    q.s[q.c].env_threads(["threadIdx.y"])
    invalid(
        q,
        "env_threads (step 0): threadIdx.y of 'C' has no extent; give it as "
        "te.thread_axis((0, n), 'threadIdx.y') or bind a loop to it",
    )


def test_blocks_belong_to_the_root_stage() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.c].compute_at(p.s[p.d], i)
    p.s[p.d].bind(j, "threadIdx.x")
    p.s[p.c].bind(p.c.op.axis[1], "blockIdx.x")
    invalid(
        p,
        "bind (step 2): 'C.j' cannot be bound to blockIdx.x: 'C' is computed inside the kernel of "
        "'D', for one block at a time; bind a loop of 'D'",
    )


def test_threads_fill_their_own_local_buffer() -> None:
    p = chain()
    i = p.d.op.axis[0]
    p.s[p.d].bind(i, "threadIdx.x")
    p.s[p.c].compute_at(p.s[p.d], i)
    p.s[p.c].bind(p.c.op.axis[1], "threadIdx.y")
    invalid(
        p,
        "bind (step 2): 'C.j' cannot be bound to threadIdx.y: the buffer of 'C' is local, each "
        'thread fills its own; bind loops of the stage that reads it, or cache it in "shared"',
    )


def test_no_parallel_loop_in_a_kernel() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].bind(i, "blockIdx.x")
    p.s[p.d].parallel(j)
    invalid(
        p,
        "parallel (step 1): loop 'D.j' runs inside a kernel (blockIdx.x); bind it to a thread axis",
    )


def test_shared_memory_does_not_outlive_its_kernel() -> None:
    p = matmul()
    p.s.cache_read(p.b, "shared", [p.c])
    p.s[p.c].bind(p.c.op.axis[0], "blockIdx.x")
    invalid(
        p,
        "cache_read (step 0): 'B.shared' is in shared memory but is computed outside of the kernel "
        "of 'C' that reads it; compute it at a loop of 'C', or keep it in global memory",
    )


def test_vectors_and_threads_do_not_reduce_together() -> None:
    p = matmul()
    ko, ki = p.s[p.c].split(p.c.op.reduce_axis[0], 4)
    p.s[p.c].bind(ko, "threadIdx.x")
    p.s[p.c].vectorize(ki)
    invalid(
        p,
        "vectorize (step 2): loop 'C.k.1' is a reduction whose loop 'C.k.0' is bound to "
        "threadIdx.x; unroll it instead, or bind it as well",
    )


def test_threads_cannot_meet_in_a_vector() -> None:
    p = matmul()
    i, j = p.c.op.axis
    p.s[p.c].bind(p.c.op.reduce_axis[0], "threadIdx.x")
    p.s[p.c].vectorize(j)
    invalid(
        p,
        "vectorize (step 1): the threads of a block must meet in loop 'C.j', where 'C' reduces "
        "across threads; vectorize another loop",
    )
    q = chain()
    i, j = q.d.op.axis
    q.s[q.c].compute_at(q.s[q.d], j)
    q.s[q.c].set_scope("shared")
    q.s[q.d].bind(i, "threadIdx.x")
    q.s[q.d].vectorize(j)
    invalid(q, "must meet in loop 'D.j', where 'C' fills shared memory; vectorize another loop")


# ------------------------------------------------------------------ traces


def test_traces_keep_axes_and_extents() -> None:
    p = matmul()
    p.s[p.c].env_threads([te.thread_axis((0, 10), "threadIdx.x"), te.thread_axis("threadIdx.y")])
    p.s[p.c].bind(p.c.op.axis[0], te.thread_axis("blockIdx.x"))
    p.s[p.c].bind(p.c.op.axis[1], te.thread_axis((0, 12), "threadIdx.y"))
    p.s[p.c].bind(p.c.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    p.s[p.c].set_store_predicate(te.thread_axis("threadIdx.x").var.equal(3))
    trace = p.s.trace_json()
    assert trace == [
        ["env_threads", 2, [["threadIdx.x", 10], ["threadIdx.y", None]]],
        ["bind", 2, "a0", "blockIdx.x"],
        ["bind", 2, "a1", "threadIdx.y", 12],
        ["bind", 2, "r0", "threadIdx.x"],
        ["set_store_predicate", 2, [["threadIdx.x", 3]]],
    ]
    p.s.validate()
    assert replay(p.s.dag, trace).trace == p.s.trace
    text = p.s.as_python()
    assert "s[C].env_threads([('threadIdx.x', 10), 'threadIdx.y'])" in text
    assert re.search(r"s\[C\]\.bind\(j, \('threadIdx\.y', 12\)\)", text)
    assert "s[C].set_store_predicate([('threadIdx.x', 3)])" in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    fresh = replay(p.s.dag, [])
    assert scope["schedule"](fresh, *fresh.tensors).trace == p.s.trace


@pytest.mark.parametrize(
    "step",
    [
        ["env_threads", 2, [["threadIdx.x"]]],
        ["bind", 2, "a0", "threadIdx.x", "8"],
        ["set_store_predicate", 2, [["threadIdx.x", None]]],
    ],
)
def test_fields_of_a_wrong_type(step: list[Any]) -> None:
    with pytest.raises(ScheduleError, match=f"trace: field '.*' of {step[0]} is .*, which is no"):
        replay(matmul().s.dag, [step])


# ------------------------------------------------------------------ the step that caused an error


def test_later_steps_do_not_change_the_step_that_is_named() -> None:
    p = matmul()
    p.s[p.c].bind(p.c.op.reduce_axis[0], "threadIdx.x")
    p.s[p.c].set_store_predicate([("threadIdx.x", 10)])
    p.s[p.c].env_threads(["threadIdx.z"])
    p.s[p.c].unroll(p.c.op.axis[0])
    p.s[p.c].unroll(p.c.op.axis[1])
    invalid(p, "set_store_predicate (step 1): threadIdx.x of 'C' is never 10: it runs to 9")
    q = matmul()
    q.s[q.c].env_threads(["threadIdx.z"])
    q.s.cache_write(q.c, "local")
    invalid(q, "env_threads (step 0): threadIdx.z of 'C' has no extent")


def test_a_change_of_scope_is_named() -> None:
    p = chain()
    p.s[p.d].bind(p.d.op.axis[0], "blockIdx.x")
    p.s[p.c].set_scope("shared")
    p.s[p.d].unroll(p.d.op.axis[1])
    invalid(p, "set_scope (step 1): 'C' is in shared memory but is computed outside of the kernel")
    q = matmul()
    copy = q.s.cache_write(q.c, "local")
    q.s[q.c].bind(q.c.op.axis[0], "threadIdx.x")
    invalid(q, "cache_write (step 0): 'C.local' is in local memory but is computed outside")
    q.s[copy].compute_at(q.s[q.c], q.c.op.axis[0])
    q.s.validate()


def test_cache_write_keeps_the_axes_of_the_launch() -> None:
    p = matmul()
    p.s[p.c].env_threads([("threadIdx.x", 4)])
    copy = p.s.cache_write(p.c, "local")
    p.s[copy].compute_at(p.s[p.c], p.c.op.axis[0])
    p.s[p.c].bind(p.c.op.axis[0], "blockIdx.x")
    kernel = p.s.validate().kernels[2]
    assert [(x.tag, x.extent) for x in kernel.threads()] == [("threadIdx.x", 4)]
