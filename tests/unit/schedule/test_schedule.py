"""The surface: looking things up, handles that stay valid, refusals that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule, replay
from tests.unit.schedule.programs import chain, matmul


def loops(s: Schedule, t: te.Tensor) -> list[str]:
    stage = s.state.stages[s[t].id]
    return [stage.loops[x].name for x in stage.leaves]


# ------------------------------------------------------------------ create_schedule


def test_of_an_operation_a_tensor_or_several() -> None:
    p = matmul()
    for given in (p.c.op, p.c, [p.c.op], (p.c,), [p.c, p.c.op, p.c], [p.c.op] * 2):
        s = create_schedule(given)
        assert [stage.op.name for stage in s.stages] == ["A", "B", "C"]
        assert s.outputs == [p.c.op]
        assert s.trace == ()
    assert s.tensors == [p.a, p.b, p.c]


def test_of_several_outputs() -> None:
    p = chain()
    s = create_schedule([p.d, p.b])
    assert s.outputs == [p.d.op, p.b.op]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "create_schedule: expected operations or tensors, got None"),
        ("C", "create_schedule: expected operations or tensors, got 'C'"),
        ([], "create_schedule: expected one or more operations"),
        (te.placeholder((4,), name="X"), "create_schedule: 'X' is an input; give what is computed"),
    ],
)
def test_of_something_else(given: Any, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        create_schedule(given)


# ------------------------------------------------------------------ looking things up


def test_stages_by_tensor_operation_and_stage() -> None:
    p = matmul()
    assert p.s[p.c].id == p.s[p.c.op].id == p.s[p.s[p.c]].id == p.s[p.s[p.c].op].id == 2
    assert repr(p.s[p.c]) == "Stage(C)"


def test_unknown_tensors_are_refused() -> None:
    p = matmul()
    other = te.placeholder((4,), name="CC")
    with pytest.raises(
        ScheduleError,
        match=r"schedule: Tensor\(CC: .*\) is not part of this schedule \(did you mean 'C'\?\); "
        r"stages: A, B, C$",
    ):
        p.s[other]
    with pytest.raises(ScheduleError, match=r"expected a tensor, .* got 'C'; stages: A, B, C$"):
        p.s["C"]
    q = matmul()
    with pytest.raises(ScheduleError, match=r"this schedule \(its own 'C' is another tensor\);"):
        p.s[q.c]
    with pytest.raises(ScheduleError, match=r"Stage\(C\) belongs to another schedule"):
        p.s[q.s[q.c]]


def test_the_operation_of_an_untouched_stage_is_the_users() -> None:
    p = matmul()
    assert p.s[p.c].op is p.c.op
    assert p.s[p.a].op is p.a.op


def test_two_stages_of_one_name() -> None:
    """Names are no identities: every operation may be called "compute"."""
    a = te.placeholder((4,), name="x")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="x")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="x")
    s = create_schedule(c)
    assert [s.state.label(i) for i in s.state.order] == ["x", "x_1", "x_2"]
    s[b].split(b.op.axis[0], factor=2)
    assert loops(s, b) == ["i.0", "i.1"]
    assert loops(s, c) == ["i"]
    s[b].compute_inline()
    assert "x_2[i] = (x[i] + 1.0) * 2.0" in str(lower(s, [a, c]))


def test_labels_do_not_collide_with_given_names() -> None:
    a = te.placeholder((4,), name="x")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="x")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="x_1")
    s = create_schedule(c)
    labels = [s.state.label(i) for i in s.state.order]
    assert len(set(labels)) == 3
    assert labels[0] == "x"


# ------------------------------------------------------------------ handles


def test_handles_are_kept_across_steps() -> None:
    p = matmul()
    i, j = p.c.op.axis
    (k,) = p.c.op.reduce_axis
    io, ii = p.s[p.c].split(i, factor=4)
    jo, ji = p.s[p.c].split(j, nparts=3)
    p.s[p.c].reorder(io, jo, k, ii, ji)
    p.s[p.c].vectorize(ji)
    f = p.s[p.c].fuse(io, jo)
    p.s[p.c].parallel(f)
    assert loops(p.s, p.c) == ["i.0.j.0", "k", "i.1", "j.1"]
    assert p.s[p.c].leaf_iter_vars == [f, k, ii, ji]
    assert (ji.extent, f.extent) == (4, 6)


def test_a_handle_is_one_object() -> None:
    p = matmul()
    io, _ = p.s[p.c].split(p.c.op.axis[0], factor=4)
    assert p.s[p.c].leaf_iter_vars[0] is io
    assert p.s[p.c].op.axis[1] is p.c.op.axis[1]


def test_axes_after_cache_write() -> None:
    """Spatial axes stay with C, the reduction moves to the cache stage: AutoTVM's habit."""
    p = matmul()
    i, j = p.c.op.axis
    (k,) = p.c.op.reduce_axis
    cl = p.s.cache_write(p.c, "local")
    assert (cl.name, cl.shape, cl.dtype) == ("C.local", p.c.shape, "float32")
    assert p.s[p.c].op.axis == [i, j]
    assert p.s[p.c].op.reduce_axis == []
    assert p.s[cl].op.reduce_axis == [k]
    assert p.s[cl].op.axis[0] is not i

    p.s[p.c].split(i, factor=4)
    p.s[cl].split(k, factor=5)
    p.s[cl].split(p.s[cl].op.axis[1], factor=3)
    assert loops(p.s, p.c) == ["i.0", "i.1", "j"]
    assert loops(p.s, cl) == ["i", "j.0", "j.1", "k.0", "k.1"]
    with pytest.raises(
        ScheduleError,
        match=r"split \(step 4\): axis 'k' belongs to stage 'C.local', not to 'C'; the loops of "
        r"'C' are C.i.0, C.i.1, C.j",
    ):
        p.s[p.c].split(k, factor=2)


def test_operations_after_caching_tell_the_present_inputs() -> None:
    p = matmul()
    al = p.s.cache_read(p.a, "local", [p.c])
    assert p.s[p.c].op.input_tensors == [al, p.b]
    assert p.c.op.input_tensors == [p.a, p.b]
    assert p.s[p.c].op.output(0) is p.c
    assert p.s[al].op.input_tensors == [p.a]
    cl = p.s.cache_write(p.c, "global")
    assert p.s[p.c].op.input_tensors == [cl]
    assert p.s[cl].op.input_tensors == [al, p.b]
    assert [x.name for x in p.s.tensors] == ["A", "B", "C"]


def test_axes_of_placeholders_do_not_exist() -> None:
    p = matmul()
    with pytest.raises(
        ScheduleError, match=r"split \(step 0\): axis 'i' belongs to stage 'C', not"
    ):
        p.s[p.a].split(p.c.op.axis[0], factor=2)


# ------------------------------------------------------------------ refusals change nothing


def everything(s: Schedule) -> tuple[Any, ...]:
    return s.state, s.trace, [list(s[t].leaf_iter_vars) for t in s.tensors]


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.s[p.c].split(p.c.op.axis[0], factor=0),
        lambda p: p.s[p.c].fuse(p.c.op.axis[1], p.c.op.axis[0]),
        lambda p: p.s[p.c].fuse(*p.c.op.axis, p.c.op.reduce_axis[0]),
        lambda p: p.s[p.c].tile(*p.c.op.axis, 4, 0),
        lambda p: p.s[p.c].tile(p.c.op.axis[0], p.c.op.axis[0], 4, 4),
        lambda p: p.s[p.c].parallel(p.c.op.reduce_axis[0]),
        lambda p: p.s[p.c].compute_inline(),
        lambda p: p.s.cache_read(p.a, "local", [p.b]),
        lambda p: p.s.cache_write(p.a, "local"),
        lambda p: p.s[p.c].reorder(p.c.op.axis[0], p.c.op.axis[0]),
    ],
)
def test_a_refused_call_changes_nothing(call: Any) -> None:
    p = matmul()
    before = everything(p.s)
    with pytest.raises(ScheduleError):
        call(p)
    assert everything(p.s) == before
    assert p.s.state is before[0]


def test_axes_of_a_refused_call_do_not_come_back() -> None:
    p = matmul()
    i, j = p.c.op.axis
    with pytest.raises(ScheduleError):
        p.s[p.c].tile(i, j, 4, 0)  # step 0 was the split of i
    outer, inner = p.s[p.c].split(j, factor=8)
    assert (outer.name, inner.name, inner.extent) == ("j.0", "j.1", 8)


def test_a_refused_call_leaves_no_stale_handles() -> None:
    """Loop "0.0" of the refused tile must not be taken for loop "0.0" of the next step."""
    p = matmul()
    i, j = p.c.op.axis
    with pytest.raises(ScheduleError):
        p.s[p.c].tile(i, j, 4, 0)
    f = p.s[p.c].fuse(i, j)
    assert (f.name, f.extent) == ("i.j", 96)


# ------------------------------------------------------------------ results


def test_replay_gives_the_same_function() -> None:
    p = matmul(7, 9, 5)
    i, j = p.c.op.axis
    cl = p.s.cache_write(p.c, "local")
    _, _, ii, ji = p.s[p.c].tile(i, j, 4, 4)
    p.s[cl].compute_at(p.s[p.c], p.s[p.c].leaf_iter_vars[1])
    p.s[p.c].unroll(ii)
    p.s[p.c].vectorize(ji)
    for trace in (p.s.trace, p.s.trace_json()):
        again = replay(p.s.dag, trace)
        assert again.trace == p.s.trace
        assert str(lower(again, again.tensors)) == str(lower(p.s, [p.a, p.b, p.c]))


def test_replay_on_a_dag_read_from_json() -> None:
    p = matmul(4, 4, 4)
    p.s[p.c].split(p.c.op.axis[0], factor=2)
    dag = te.Dag.from_json(p.s.dag.to_json())
    s = replay(dag, p.s.trace_json())
    a, b = np.eye(4, dtype="float32") * 2, np.arange(16, dtype="float32").reshape(4, 4)
    c = np.zeros((4, 4), "float32")
    interpret(lower(s, s.tensors), [a, b, c])
    np.testing.assert_array_equal(c, 2 * b)


def test_bounds_are_inferred_once_a_state() -> None:
    p = matmul()
    assert p.s.bounds() is p.s.bounds()
    first = p.s.bounds()
    p.s[p.c].split(p.c.op.axis[0], factor=2)
    assert p.s.bounds() is not first


def test_argument_ids() -> None:
    p = matmul()
    cl = p.s.cache_write(p.c, "local")
    assert p.s.arg_ids([p.c, p.a, p.b]) == [2, 0, 1]
    with pytest.raises(
        ScheduleError, match=r"arguments: 'C\.local' was made by a schedule primitive"
    ):
        p.s.arg_ids([p.a, cl])
    with pytest.raises(ScheduleError, match=r"arguments: Tensor\(X: .*\) is not part of this"):
        p.s.arg_ids([te.placeholder((4,), name="X")])
