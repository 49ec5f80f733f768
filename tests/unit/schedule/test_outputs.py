"""Stages with several outputs: handles, caches, traces, argument ids."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from loopwright import te
from loopwright.errors import LowerError, ScheduleError
from loopwright.lowering import lower, lower_ids
from loopwright.schedule import Schedule, create_schedule, replay
from loopwright.schedule.primitives import CacheRead
from loopwright.schedule.steps import Step


class Pair(NamedTuple):
    """A schedule of ``P, Q = A + 1, A * 2`` and ``C = P * Q``, and its tensors."""

    s: Schedule
    a: te.Tensor
    p: te.Tensor
    q: te.Tensor
    c: te.Tensor


def pair(n: int = 8) -> Pair:
    a = te.placeholder((n,), name="A")
    p, q = te.compute((n,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="P")
    c = te.compute((n,), lambda i: p[i] * q[i], name="C")
    return Pair(create_schedule(c), a, p, q, c)


def test_outputs_share_a_stage() -> None:
    x = pair()
    assert x.s[x.p].id == x.s[x.q].id == x.s[x.p.op].id == 1
    assert x.s[x.q].op is x.p.op
    assert [s.op.num_outputs for s in x.s.stages] == [1, 2, 1]
    assert x.s[x.c].op.input_tensors == [x.p, x.q]


def test_any_output_makes_the_schedule() -> None:
    x = pair()
    ways = (x.p, x.q, x.p.op, [x.p, x.q], [x.q, x.p], [x.p, x.p], [x.q.op, x.p])
    assert len({create_schedule(t).dag.hash for t in ways}) == 1


def test_argument_ids() -> None:
    x = pair()
    s = create_schedule([x.p, x.c])
    ids = s.arg_ids([x.a, x.q, x.c, x.p])
    assert ids == [0, (1, 1), 2, 1]
    assert [s.tensor(i) for i in json.loads(json.dumps(ids))] == [x.a, x.q, x.c, x.p]
    text = str(lower(s, [x.a, x.q, x.c, x.p]))
    assert text == str(lower_ids(s, json.loads(json.dumps(ids))))
    assert text.splitlines()[0] == (
        "def main(A: float32[8], P.v1: out float32[8], C: out float32[8], P.v0: out float32[8]):"
    )
    with pytest.raises(LowerError, match=r"the program has no tensor \[1, 2\]"):
        lower_ids(s, [0, (1, 2), 2])
    with pytest.raises(LowerError, match="the program has no tensor 7"):
        lower_ids(s, [0, 1, 2, 7])
    with pytest.raises(ScheduleError, match=r"arguments: 'P' has 2 outputs; name one: output\(k\)"):
        s.arg_ids([x.p.op])  # type: ignore[list-item]


def test_cache_write_caches_all_outputs() -> None:
    x = pair()
    made = x.s.cache_write([x.p, x.q], "local")
    assert [t.name for t in made] == ["P.local.v0", "P.local.v1"]
    assert made[0].op is made[1].op
    assert x.s.state.order == (0, "s0", 1, 2)
    assert [r.value_index for r in x.s.state.stages[1].op.reads()] == [0, 1]
    assert x.s[x.q].op.input_tensors == made
    other = pair()
    assert len(other.s.cache_write(other.p.op, "local")) == 2
    assert other.s.trace == x.s.trace
    one = pair()
    assert [t.name for t in one.s.cache_write([one.c], "local")] == ["C.local"]


def test_cache_read_of_one_output() -> None:
    x = pair()
    copy = x.s.cache_read(x.q, "local", [x.c])
    assert copy.name == "P.v1.local"
    assert x.s.trace == (CacheRead(1, "local", (2,), 1),)
    assert x.s[x.c].op.input_tensors == [x.p, copy]
    assert x.s.trace_json() == [["cache_read", 1, "local", [2], 1]]


def test_steps_of_old_traces_are_read_and_written_as_they_were() -> None:
    old = ["cache_read", 0, "local", [1]]
    assert Step.from_json(old) == CacheRead(0, "local", (1,), 0)
    assert Step.from_json(old).to_json() == old
    with pytest.raises(ScheduleError, match="cache_read takes 4 fields"):
        Step.from_json(["cache_read", 0, "local"])
    with pytest.raises(ScheduleError, match="cache_read takes 4 fields"):
        Step.from_json([*old, 0, 0])
    with pytest.raises(ScheduleError, match="field 'value_index' of cache_read is 'x'"):
        Step.from_json([*old, "x"])


def test_the_trace_as_python_and_json() -> None:
    x = pair()
    x.s.cache_write([x.p, x.q], "local")
    x.s.cache_read(x.q, "shared", [x.c])
    text = x.s.as_python()
    assert "P_local, *_ = s.cache_write(P.op, 'local')" in text
    assert "P_v1_shared = s.cache_read(P.op.output(1), 'shared', [C])" in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    fresh = replay(x.s.dag, [])
    assert scope["schedule"](fresh, *fresh.tensors).trace == x.s.trace
    again = replay(x.s.dag, json.loads(json.dumps(x.s.trace_json())))
    assert str(lower_ids(again, [0, 2])) == str(lower(x.s, [x.a, x.c]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: x.s.cache_write(x.q, "local"),
            r"cache_write \(step 0\): 'P' makes 2 outputs in one nest; give all of them: "
            r"cache_write\(\[P\.v0, P\.v1\], scope\)",
        ),
        (lambda x: x.s.cache_write([x.p], "local"), "'P' makes 2 outputs in one nest"),
        (
            lambda x: x.s.cache_write([x.p, x.c], "local"),
            r"cache_write \(step 0\): 'P' and 'C' are not outputs of one operation",
        ),
        (lambda x: x.s.cache_write([], "local"), "expected a tensor or all outputs of an op"),
        (
            lambda x: x.s.cache_read(x.p.op, "local", [x.c]),
            r"cache_read \(step 0\): 'P' has 2 outputs; name one: output\(k\)",
        ),
        (
            lambda x: x.s.apply_step(CacheRead(1, "local", (2,), 2)),
            r"cache_read \(step 0\): 'P' has 2 output\(s\), there is no output 2",
        ),
        (
            lambda x: (x.s.cache_read(x.q, "local", [x.c]), x.s.cache_read(x.q, "local", [x.c])),
            r"cache_read \(step 1\): stage 'C' does not read 'P\.v1'; its readers: P\.v1\.local",
        ),
        (lambda x: x.s.cache_read(x.q, "local", []), "name at least one stage that reads 'P.v1'"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    x = pair()
    with pytest.raises(ScheduleError, match=text):
        call(x)


def test_an_output_inlined_into_its_reader() -> None:
    x = pair()
    x.s[x.p].compute_inline()
    assert "C[i] = (A[i] + 1.0) * (A[i] * 2.0)" in str(lower(x.s, [x.a, x.c]))


def test_buffers_of_all_outputs_take_one_layout_and_place() -> None:
    x = pair()
    i, _ = x.s[x.c].split(x.c.op.axis[0], factor=4)
    x.s[x.p].compute_at(x.s[x.c], i)
    x.s[x.q].transform_layout(lambda k: (k % 2, k // 2))
    text = str(lower(x.s, [x.a, x.c]))
    assert "P.v0 = alloc(float32[2, 2]" in text
    assert "P.v1 = alloc(float32[2, 2]" in text


def test_a_tuple_reduction_is_not_inlined() -> None:
    a, k = te.placeholder((4, 4), name="A"), te.reduce_axis((0, 4), "k")
    at, top = te.compute((4,), lambda i: te.argmax((k, a[i, k]), axis=k), name="T")
    c = te.compute((4,), lambda i: top[i] * 2.0)
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="'T' is a reduction and would be computed again"):
        s[at].compute_inline()
