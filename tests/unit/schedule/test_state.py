"""The immutable state: names, errors, queries."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import create_schedule
from loopwright.schedule.state import refuse
from tests.unit.schedule.programs import chain, matmul


def test_consumers_and_attached_stages() -> None:
    p = chain()
    assert p.s.state.consumers(1) == [2, 3]
    assert p.s.state.consumers(3) == []
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    assert p.s.state.attached_at(3, "a0") == [1, 2]
    assert p.s.state.attached_at(3, "a1") == []


def test_loops_of_a_fresh_stage() -> None:
    p = matmul(3, 4, 5)
    stage = p.s.state.stages[2]
    assert [(x.id, x.name, x.kind, x.nominal) for x in stage.loops.values()] == [
        ("a0", "i", "spatial", 3),
        ("a1", "j", "spatial", 4),
        ("r0", "k", "reduce", 5),
    ]
    assert not stage.transformed
    assert p.s.state.loop_list(stage) == "C.i, C.j, C.k"
    assert p.s.state.loop_list(p.s.state.stages[0]) == "none"


def test_ids_are_never_renumbered() -> None:
    p = matmul()
    assert p.s.state.order == (0, 1, 2)
    cl = p.s.cache_write(p.c, "local")
    assert p.s.state.order == (0, 1, "s0", 2)
    p.s.cache_read(p.a, "local", [cl])
    assert p.s.state.order == (0, "s1", 1, "s0", 2)
    assert [p.s.state.stages[i].op.name for i in (0, 1, 2)] == ["A", "B", "C"]


def test_labels_are_unique_whatever_the_names() -> None:
    t = te.placeholder((2,), name="a")
    for name in ("a", "a_1", "a", "a_2", "a_1_1", "a"):
        t = te.compute((2,), lambda i, t=t: t[i] + 1.0, name=name)
    state = create_schedule(t).state
    labels = [state.label(i) for i in state.order]
    assert len(set(labels)) == len(labels)
    assert labels[0] == "a"


def test_errors_name_step_and_index() -> None:
    with pytest.raises(ScheduleError, match=r"^split \(step 7\): why$"):
        refuse("split", 7, "why")


def test_what_a_loop_is_used_for() -> None:
    p = chain()
    i, j = p.d.op.axis
    assert not p.s.state.uses(p.s.state.stages[3], "a0")
    p.s[p.d].pragma(i, "auto_unroll_max_step", 4)
    p.s[p.d].prefetch(p.c, i, 2)
    p.s[p.d].bind(i, "blockIdx.x")
    p.s[p.b].compute_at(p.s[p.d], j)
    p.s[p.b].store_at(p.s[p.d], i)
    stage = p.s.state.stages[3]
    assert [(u.kind, u.step, u.says("D.i")) for u in p.s.state.uses(stage, "a0")] == [
        ("mark", 2, "loop 'D.i' is already thread blockIdx.x (step 2)"),
        ("pragma", None, "loop 'D.i' carries a pragma"),
        ("prefetch", 1, "loop 'D.i' prefetches a tensor"),
        ("attached", 4, "stage 'B' is stored at loop 'D.i'"),
    ]
    (use,) = p.s.state.uses(stage, "a1")
    assert (use.says("D.j"), use.stage) == ("stage 'B' is computed at loop 'D.j'", 1)
    assert (use.kind, use.step, use.primitive) == ("attached", 3, "compute_at")
