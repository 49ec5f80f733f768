"""A trace as Python: executed on a fresh schedule it gives the trace again."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.schedule import Schedule, create_schedule, replay
from tests.unit.schedule.programs import chain, matmul
from tests.unit.schedule.test_apply import STEPS


def run(s: Schedule) -> Schedule:
    """Execute ``s.as_python()`` on a fresh schedule of the same DAG."""
    scope: dict[str, Any] = {}
    exec(s.as_python(), scope)
    fresh = replay(s.dag, [])
    made = scope["schedule"](fresh, *fresh.tensors)
    assert made is fresh
    return fresh


def test_text() -> None:
    p = matmul(16, 16, 16)
    i, j = p.c.op.axis
    cl = p.s.cache_write(p.c, "local")
    _, jo, _, ji = p.s[p.c].tile(i, j, 4, 8)
    p.s[p.c].vectorize(ji)
    p.s[cl].compute_at(p.s[p.c], jo)
    p.s[cl].transform_layout(lambda i, j: (j // 8, i, j % 8))
    p.s[cl].split(p.c.op.reduce_axis[0], nparts=2)
    p.s.cache_read(p.b, "global", [cl])
    assert p.s.as_python() == (
        "def schedule(s, A, B, C):\n"
        '    C_local = s.cache_write(C, "local")\n'
        "    [i, j] = s[C].op.axis\n"
        "    i_0, i_1 = s[C].split(i, factor=4)\n"
        "    j_0, j_1 = s[C].split(j, factor=8)\n"
        "    s[C].reorder(i_0, j_0, i_1, j_1)\n"
        "    s[C].vectorize(j_1)\n"
        "    s[C_local].compute_at(s[C], j_0)\n"
        "    s[C_local].transform_layout(lambda i0, i1: (i1 // 8, i0, i1 % 8))\n"
        "    [i_2, j_2] = s[C_local].op.axis\n"
        "    [k] = s[C_local].op.reduce_axis\n"
        "    k_0, k_1 = s[C_local].split(k, nparts=2)\n"
        '    B_global = s.cache_read(B, "global", [C_local])\n'
        "    return s\n"
    ).replace('"', "'")
    assert run(p.s).trace == p.s.trace


def test_an_empty_trace() -> None:
    s = matmul().s
    assert s.as_python() == "def schedule(s, A, B, C):\n    pass\n    return s\n"
    assert run(s).trace == ()


def test_every_primitive() -> None:
    s = replay(chain().s.dag, STEPS)
    assert run(s).trace == s.trace


def test_names_that_python_or_the_text_itself_uses() -> None:
    """Operations called like keywords, like ``s``, like each other, or like nothing at all."""
    names = ["s", "for", "te", "s", "x y", "1st", "", "schedule", "ax0", "i_0"]
    t = te.placeholder((4, 4), name="lambda")
    for n in names:
        t = te.compute((4, 4), lambda i, j, t=t: t[i, j] + 1.0, name=n)
    s = create_schedule(t)
    for x in s.stages:
        if isinstance(x.op, te.ComputeOp):
            x.split(x.op.axis[0], factor=2)
    assert run(s).trace == s.trace


@pytest.mark.parametrize("shape", [(), (4,)])
def test_stages_with_few_axes(shape: tuple[int, ...]) -> None:
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis(8, "k")
    c = te.compute(shape, lambda *i: te.sum(a[k], axis=k), name="C")
    s = create_schedule(c)
    cl = s.cache_write(c, "local")
    s[cl].split(k, factor=2)
    s[cl].transform_layout(lambda *i: i)
    assert run(s).trace == s.trace
