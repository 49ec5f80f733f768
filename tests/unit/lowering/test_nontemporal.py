"""The pragma for stores past the caches: its rules, its trace, and the stores that have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.codegen.kernel_cache import program_key
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, Store
from loopwright.ir.visitor import nodes
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule, create_schedule, replay
from loopwright.target import Target


def chain() -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((6, 10), name="A")
    b = te.compute((6, 10), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((6, 10), lambda i, j: b[i, j] + 1.0, name="C")
    return create_schedule(c), [a, b, c]


def stores(f: Func) -> dict[str, set[bool]]:
    found: dict[str, set[bool]] = {}
    for n in nodes(f.body):
        if isinstance(n, Store):
            found.setdefault(n.buffer.name, set()).add(n.nontemporal)
    return found


@pytest.mark.parametrize("level", [0, 2, 3])
def test_stores_of_the_stage_alone_have_it(level: int) -> None:
    """Also those of the tail, which a split leaves, and after every pass."""
    s, (a, _, c) = chain()
    _, lane = s[c].split(c.op.axis[1], factor=4)
    s[c].vectorize(lane)
    s[c].pragma(lane, "nontemporal")
    with PassContext(level, config={"verify": True}):
        f = lower(s, [a, c])
    assert stores(f) == {"B": {False}, "C": {True}}
    assert "nontemporal C[" in str(f)
    x, y = np.arange(60, dtype="float32").reshape(6, 10), np.zeros((6, 10), "float32")
    interpret(f, [x, y])
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_recorded_replayed_printed_and_taken_back() -> None:
    s, (a, _, c) = chain()
    s[c].pragma(c.op.axis[1], "nontemporal")
    assert s.trace_json() == [["pragma", 2, "a1", "nontemporal", True]]
    assert replay(s.dag, s.trace_json()).trace == s.trace
    assert "s[C].pragma(j, 'nontemporal', True)" in s.as_python()
    s[c].pragma(c.op.axis[1], "nontemporal", 0)
    assert stores(lower(s, [a, c])) == {"B": {False}, "C": {False}}


def test_programs_that_differ_in_it_are_measured_apart() -> None:
    s, (a, _, c) = chain()
    plain = lower(s, [a, c])
    s[c].pragma(c.op.axis[1], "nontemporal")
    keys = [program_key(f, Target("llvm"), {}) for f in (plain, lower(s, [a, c]))]
    assert keys[0] != keys[1]


def _of_sums(s: Schedule, t: te.Tensor) -> None:
    s[t].pragma(s[t].op.axis[0], "nontemporal")


REFUSED: list[tuple[Callable[[Schedule, te.Tensor], Any], str]] = [
    (
        _of_sums,
        r"pragma \(step 0\): stage 'S' is a reduction, which reads again what it stores; "
        "cache_write it, and give nontemporal to the stage that copies the result",
    ),
    (
        lambda s, t: s[t].pragma(s[t].op.axis[0], "nontemporal", 2),
        "nontemporal takes True or False, got 2",
    ),
    (
        lambda s, t: s[t].pragma(s[t].op.axis[0], "nontemporal", "yes"),
        "nontemporal takes True or False, got 'yes'",
    ),
]


@pytest.mark.parametrize(("step", "text"), REFUSED)
def test_refused(step: Callable[[Schedule, te.Tensor], Any], text: str) -> None:
    a = te.placeholder((6, 10), name="A")
    k = te.reduce_axis((0, 10), name="k")
    t = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="S")
    with pytest.raises(ScheduleError, match=text):
        step(create_schedule(t), t)


def test_the_copy_of_a_result_may_go_past_the_caches() -> None:
    a = te.placeholder((6, 10), name="A")
    k = te.reduce_axis((0, 10), name="k")
    t = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="S")
    s = create_schedule(t)
    s.cache_write(t, "local")
    s[t].pragma(s[t].op.axis[0], "nontemporal")
    assert stores(lower(s, [a, t])) == {"S.local": {False}, "S": {True}}
