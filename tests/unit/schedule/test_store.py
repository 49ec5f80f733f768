"""store_at, store_root and double_buffer: where a buffer exists, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import LowerError, ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule, replay
from tests.unit.schedule.programs import Chain, chain


def attached() -> Chain:
    """B and C computed at the inner loop of D."""
    p = chain()
    for t in (p.b, p.c):
        p.s[t].compute_at(p.s[p.d], p.d.op.axis[1])
    return p


def shape_of(p: Chain, name: str) -> str:
    text = str(lower(p.s, [p.a, p.d]))
    return text.split(f"{name} = alloc(")[1].split(", global")[0]


def test_storage_covers_the_loops_between() -> None:
    p = attached()
    assert shape_of(p, "C") == "float32[1, 1]"
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[1])
    assert shape_of(p, "C") == "float32[1, 1]"
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[0])
    assert shape_of(p, "C") == "float32[1, 6]"
    p.s[p.c].store_root()
    assert shape_of(p, "C") == "float32[8, 6]"
    assert p.s.trace_json()[2:] == [
        ["store_at", 2, 3, "a1"],
        ["store_at", 2, 3, "a0"],
        ["store_root", 2],
    ]
    p.s[p.c].compute_root()
    assert p.s.state.stages[2].store is None


def test_storage_in_a_loop_of_the_stage_around_the_parent() -> None:
    """B is computed in C, which is computed in D; its buffer exists in a loop of D."""
    p = chain()
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[1])
    bl = p.s.cache_read(p.b, "global", [p.c])
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[1])
    p.s[bl].compute_at(p.s[p.c], p.c.op.axis[1])
    p.s[bl].store_at(p.s[p.d], p.d.op.axis[0])
    assert shape_of(p, "B.global") == "float32[1, 6]"


REFUSED: list[tuple[Callable[[Chain], Any], str]] = [
    (
        lambda p: p.s[p.a].store_root(),
        r"store_root \(step 2\): 'A' is an input; use cache_read to make a stage of it",
    ),
    (
        lambda p: p.s[p.d].store_root(),
        r"store_root \(step 2\): 'D' is an output and is computed at root",
    ),
    (
        lambda p: p.s[p.c].store_at(p.s[p.b], p.b.op.axis[0]),
        r"store_at \(step 2\): loop 'B\.i' is not around the place where 'C' is computed; name one "
        r"of D\.j, D\.i",
    ),
    (
        lambda p: p.s[p.d].double_buffer(),
        r"double_buffer \(step 2\): 'D' is an output and is computed at root",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_refusals(call: Any, text: str) -> None:
    p = attached()
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert len(p.s.trace) == 2


def test_stages_at_root_and_inlined_ones() -> None:
    p = chain()
    with pytest.raises(
        ScheduleError,
        match=r"store_at \(step 0\): 'B' is computed at root, where its buffer is; call compute_at "
        "first",
    ):
        p.s[p.b].store_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.b].compute_inline()
    with pytest.raises(ScheduleError, match=r"double_buffer \(step 1\): 'B' is inlined and has no"):
        p.s[p.b].double_buffer()


def test_a_loop_with_storage_is_not_taken_apart() -> None:
    p = attached()
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"split \(step 3\): stage 'C' is stored at loop 'D\.i'; split the loop first and use "
        "store_at afterwards",
    ):
        p.s[p.d].split(p.d.op.axis[0], factor=2)


def test_moving_the_stage_out_of_its_storage() -> None:
    p = attached()
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[1])
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"store_at \(step 2\): loop 'D\.j' is not around the place where 'C' is computed; "
        r"name one of D\.i",
    ):
        p.s.validate()


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
def test_iterations_that_run_at_once_share_no_storage(kind: str) -> None:
    p = attached()
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[0])
    getattr(p.s[p.d], kind)(p.d.op.axis[1])
    done = {"parallel": "parallel", "vectorize": "vectorized"}[kind]
    with pytest.raises(
        ScheduleError,
        match=rf"store_at \(step 2\): 'C' is stored outside of loop 'j', which is {done} "
        r"\(step 3\): iterations that run at once would write into one buffer; store it inside of "
        "that loop",
    ):
        p.s.validate()
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[1])
    p.s.validate()


def test_two_halves_need_a_serial_loop() -> None:
    p = chain()
    p.s[p.c].double_buffer()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 0\): 'C' is computed at root, once; compute it at a serial "
        "loop of a stage that uses it",
    ):
        p.s.validate()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s.validate()
    p.s[p.c].store_root()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 0\): the buffer of 'C' exists outside of loop 'D\.i' "
        r"\(step 2\); store it where it is computed",
    ):
        p.s.validate()
    p.s[p.c].store_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.d].parallel(p.d.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 0\): 'C' is computed at loop 'D\.i', which is parallel "
        r"\(step 4\); two halves need a serial loop",
    ):
        p.s.validate()


def test_what_fills_a_half_reads_nothing_of_one_iteration() -> None:
    p = attached()
    p.s[p.c].double_buffer()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 2\): 'C' reads 'B', which is computed at loop 'D\.j' too, for "
        "the same iteration only; double_buffer it as well, or compute it inside 'C'",
    ):
        p.s.validate()
    p.s[p.b].double_buffer()
    p.s.validate()


def test_what_fills_a_half_counts_stages_inside() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((4, 8), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((4, 8), lambda i, j: c[i, j] - 3.0, name="D")
    e = te.compute((4, 8), lambda i, j: d[i, j] * d[i, 7 - j], name="E")
    s = te.create_schedule(e)
    i = e.op.axis[0]
    s[d].compute_at(s[e], i)
    s[c].compute_at(s[d], d.op.axis[1])
    s[b].compute_at(s[e], i)
    s[d].double_buffer()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 3\): 'C', computed inside 'D', reads 'B', which is computed "
        r"at loop 'E\.i' too, for the same iteration only; double_buffer it as well, or compute it "
        "inside 'D'",
    ):
        s.validate()
    s[b].double_buffer()
    x = np.arange(32, dtype="float32").reshape(4, 8)
    out = np.zeros_like(x)
    interpret(lower(s, [a, e]), [x, out])
    y = x * 2 - 2
    np.testing.assert_array_equal(out, y * y[:, ::-1])


def test_the_strides_of_an_argument_are_fixed() -> None:
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((4, 4), lambda i, j: b[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[b].storage_align(0, 8, 0)
    with pytest.raises(LowerError, match="lower: the strides of the argument 'B' are fixed"):
        lower(s, [a, b, c])


def test_the_scope_of_an_argument_is_fixed() -> None:
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((4, 4), lambda i, j: b[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[b].set_scope("local")
    with pytest.raises(LowerError, match="argument 'B' lies in global memory, and set_scope says"):
        lower(s, [a, b, c])


@pytest.mark.parametrize("stages", [1, 0, -2, 9, True, 2.5, "3", None])
def test_stages_of_a_pipeline_are_a_small_number(stages: Any) -> None:
    p = attached()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step \d\): stages is how many iterations have a place in the "
        rf"buffer, from 2 to 8, got {re.escape(repr(stages))}",
    ):
        p.s[p.c].double_buffer(stages)


def test_stages_of_two_that_are_read_together_are_equal() -> None:
    p = attached()
    p.s[p.b].double_buffer(3)
    p.s[p.c].double_buffer()
    with pytest.raises(
        ScheduleError,
        match=r"double_buffer \(step 3\): 'C' has 2 stages and reads 'B', which is computed at "
        r"loop 'D\.j' too and has 3 \(step 2\); give both the same number",
    ):
        p.s.validate()
    p.s[p.c].double_buffer(3)
    p.s.validate()


def test_traces_tell_stages_only_where_there_are_more_than_two() -> None:
    p = attached()
    p.s[p.b].double_buffer()
    p.s[p.c].double_buffer(np.int64(3))
    trace = p.s.trace_json()
    assert trace[-2:] == [["double_buffer", 1], ["double_buffer", 2, 3]]
    assert replay(p.s.dag, trace).trace_json() == trace
    assert "double_buffer()" in p.s.as_python()
    assert "double_buffer(stages=3)" in p.s.as_python()
