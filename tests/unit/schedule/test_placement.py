"""compute_at, compute_inline, compute_root: effects and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule.state import ROOT, Attach
from tests.unit.schedule.programs import chain, matmul


def test_compute_at_and_root() -> None:
    p = chain()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[1])
    assert p.s.state.stages[2].attach == Attach("at", 3, "a1", 0)
    assert p.s.state.attached_at(3, "a1") == [2]
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    assert p.s.state.attached_at(3, "a1") == []
    p.s[p.c].compute_root()
    assert p.s.state.stages[2].attach == ROOT


def test_compute_at_a_stage_that_uses_it_through_others() -> None:
    p = chain()
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s.validate()


def test_compute_inline_and_back() -> None:
    p = chain()
    p.s[p.b].compute_inline()
    assert p.s.state.stages[1].attach.kind == "inline"
    p.s[p.b].compute_root()
    assert p.s.state.stages[1].attach == ROOT


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda p: p.s[p.d].compute_at(p.s[p.c], p.c.op.axis[0]),
            r"compute_at \(step 0\): 'D' is an output and is computed at root; use cache_write and "
            "move the cache stage",
        ),
        (
            lambda p: p.s[p.a].compute_at(p.s[p.b], p.b.op.axis[0]),
            r"compute_at \(step 0\): 'A' is an input; use cache_read to make a stage of it",
        ),
        (
            lambda p: p.s[p.c].compute_at(p.s[p.b], p.b.op.axis[0]),
            r"compute_at \(step 0\): 'B' does not use 'C', directly or through others; it is used "
            "by D",
        ),
        (
            lambda p: p.s[p.c].compute_at(p.s[p.c], p.c.op.axis[0]),
            r"compute_at \(step 0\): 'C' cannot be computed inside itself; name a stage that uses",
        ),
        (
            lambda p: p.s[p.d].compute_inline(),
            r"compute_inline \(step 0\): 'D' is an output and is computed at root",
        ),
        (
            lambda p: p.s[p.a].compute_inline(),
            r"compute_inline \(step 0\): 'A' is an input",
        ),
        (
            lambda p: p.s[p.a].compute_root(),
            r"compute_root \(step 0\): 'A' is an input and has no loops; use cache_read",
        ),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    p = chain()
    state = p.s.state
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.state is state
    assert p.s.trace == ()


def test_reductions_are_not_inlined() -> None:
    p = matmul()
    d = te.compute(p.c.shape, lambda i, j: p.c[i, j] + 1.0, name="D")
    s = te.create_schedule(d)
    with pytest.raises(
        ScheduleError,
        match=r"compute_inline \(step 0\): 'C' is a reduction and would be computed again at every "
        "use; use compute_at",
    ):
        s[p.c].compute_inline()


def test_a_stage_with_another_inside_is_not_inlined() -> None:
    p = chain()
    p.s[p.b].compute_at(p.s[p.c], p.c.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"compute_inline \(step 1\): stage 'B' is computed inside 'C'; move it out first",
    ):
        p.s[p.c].compute_inline()


# ------------------------------------------------------------------ rules that need extents


def test_every_reader_must_run_inside_the_loop() -> None:
    p = chain()
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"compute_at \(step 0\): 'B' is computed at loop 'D\.i', but 'C' reads it too and "
        "does not run inside that loop; compute both there, or this one at root",
    ):
        p.s.validate()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[1])
    p.s.validate()


def test_a_reader_further_out_than_the_stage() -> None:
    """C runs at D's outer loop, B further in: C would read what does not exist yet."""
    p = chain()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[1])
    with pytest.raises(
        ScheduleError, match=r"'B' is computed at loop 'D\.j', but 'C' reads it too"
    ):
        p.s.validate()


def test_a_host_that_is_inlined_has_no_loops() -> None:
    p = chain()
    p.s[p.c].compute_inline()
    p.s[p.b].compute_at(p.s[p.c], p.c.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"compute_at \(step 1\): 'B' is computed in 'C', which is inlined and has no loops",
    ):
        p.s.validate()
