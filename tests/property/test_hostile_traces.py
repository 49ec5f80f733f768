"""Damaged traces: whatever is in one, replaying and lowering it works or says so in one line."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import te
from loopwright.errors import LoopwrightError, ScheduleError
from loopwright.lowering import lower_ids
from loopwright.schedule import replay
from loopwright.schedule.steps import MAX_STEPS
from loopwright.te.dag import ArgId, Dag
from tests.covering import examples

Json = Any
Path = tuple[Any, ...]
#: Values that stand where they do not belong.
ODD = (
    0, -1, 1, 3, 10**9, 10**12, 10**400, -(10**400), 2**63, 0.5, float("nan"), float("inf"), True,
    None, "", "a0", "0.1", "s0", "x" * 5000, "\x00", "vectorized", "unrolled", "local", "shared",
    "threadIdx.x", "vthread", [], {}, [[]], [0, 1], ["a0", "a1"], {"a": 1},
)  # fmt: skip
#: Seconds that no refusal may take, many times what the slowest took on a slow machine.
LIMIT = 20.0


@cache
def cases() -> tuple[tuple[Dag, Json, list[ArgId]], ...]:
    """Programs with traces that have every field which a primitive of the CPU takes."""
    made = (_placed(), _tensorized(), _factored(), _threaded())
    return tuple((s.dag, s.trace_json(), s.arg_ids(args)) for s, args in made)


def _placed() -> tuple[te.Schedule, list[te.Tensor]]:
    A, B = te.placeholder((24, 32), name="A"), te.placeholder((32, 16), name="B")
    k = te.reduce_axis((0, 32), name="k")
    C = te.compute((24, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((24, 16), lambda i, j: te.exp(C[i, j]) + 1.0, name="D")
    s = te.create_schedule(D.op)
    AA = s.cache_read(A, "local", [C])
    i, j = s[D].op.axis
    io, ii = s[D].split(i, factor=5)
    jo, ji = s[D].split(j, nparts=4)
    s[D].reorder(io, jo, ii, ji)
    outer = s[D].fuse(io, jo)
    s[D].parallel(outer)
    s[D].vectorize(ji)
    s[D].unroll(ii)
    s[C].compute_at(s[D], outer)
    s[AA].compute_at(s[C], s[C].op.axis[0])
    s[AA].storage_align(AA.op.axis[0], 8, 1)
    ko, _ = s[C].split(s[C].op.reduce_axis[0], 8)
    s[C].pragma(ko, "auto_unroll_max_step", 16)
    s[C].prefetch(B, ko, 2)
    return s, [A, B, D]


def _tensorized() -> tuple[te.Schedule, list[te.Tensor]]:
    A = te.placeholder((16, 64), "uint8", name="A")
    B = te.placeholder((4, 16, 16, 4), "int8", name="B")
    k = te.reduce_axis((0, 64), name="k")

    def product(i: te.Var, j: te.Var) -> te.Expr:
        b = B[j // 16, k // 4, j % 16, k % 4].astype("int32")
        return te.sum(A[i, k].astype("int32") * b, axis=k)

    C = te.compute((16, 64), product, name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    jo, ji = s[C].split(j, 16)
    ko, ki = s[C].split(s[C].op.reduce_axis[0], 4)
    s[C].reorder(jo, i, ko, ji, ki)
    s[C].tensorize(ji, te.intrinsics.dot_uint8_int8_int32(16))
    return s, [A, B, C]


def _factored() -> tuple[te.Schedule, list[te.Tensor]]:
    A = te.placeholder((30, 20), name="A")
    k = te.reduce_axis((0, 20), name="k")
    B = te.compute((30,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(s[B].op.reduce_axis[0], 5)
    BF = s.rfactor(B, ki)
    AA = s.cache_read(A, "global", [BF])
    s[AA].transform_layout(lambda i, j: (j // 4, i, j % 4))
    return s, [A, B]


def _threaded() -> tuple[te.Schedule, list[te.Tensor]]:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((64,), lambda i: B[i] + 1.0, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], 8)
    s[B].compute_at(s[C], inner)
    s[B].store_at(s[C], outer)
    s[B].double_buffer()
    s[C].bind(outer, "vthread")
    return s, [A, C]


def _places(x: Json, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    items = enumerate(x) if isinstance(x, list) else x.items() if isinstance(x, dict) else ()
    for key, value in items:
        yield from _places(value, (*at, key))


def _get(x: Json, at: Path) -> Json:
    for key in at:
        x = x[key]
    return x


def _deep(depth: int) -> Json:
    out: Json = 0
    for _ in range(depth):
        out = [out]
    return out


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Dag, Json, list[ArgId]]:
    """A case whose trace is changed in one to three places."""
    dag, trace, ids = draw(st.sampled_from(cases()))
    trace = copy.deepcopy(trace)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(trace))
        if not places:
            break
        at = draw(st.sampled_from(places))
        parent, key, old = _get(trace, at[:-1]), at[-1], _get(trace, at)
        alike = [v for v in (_get(trace, p) for p in places) if type(v) is type(old)]
        match draw(st.sampled_from(["alike", "odd", "drop", "twice", "number", "move"])):
            case "alike":
                parent[key] = copy.deepcopy(draw(st.sampled_from(alike)))
            case "odd":
                parent[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case "drop":
                del parent[key]
            case "twice" if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(old))
            case "number" if isinstance(old, int):
                parent[key] = draw(st.integers(-4, 1 << 41))
            case "move":
                trace.insert(draw(st.integers(0, len(trace))), trace.pop(at[0]))
    return dag, trace, ids


@settings(max_examples=examples(60, 250), deadline=None)
@given(damaged())
def test_a_damaged_trace_is_lowered_or_refused(case: tuple[Dag, Json, list[ArgId]]) -> None:
    dag, trace, ids = case
    text, begin = "", time.monotonic()
    try:
        s = replay(dag, trace)
        s.as_python()
        lower_ids(s, ids)
    except LoopwrightError as error:
        text = str(error)
    assert "\n" not in text
    assert len(text) < 2000
    assert time.monotonic() - begin < LIMIT


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        (None, "a trace is a list of steps, got a NoneType"),
        ({}, "a trace is a list of steps, got a dict"),
        ([["split", 2, "a0", 4, None]] * (MAX_STEPS + 1), "1001 steps, and at most 1000 are read"),
        ([["cache_write", 2, "local"]] * 201, "201 steps add a stage, and at most 200 are read"),
        ([[0] * 100_000], "more than 100000 values in all steps"),
        ([["split", 2, "a0", _deep(5000), None]], "step 0: its lists nest deeper than 200"),
        ([["split", 2, "a0", 10**400, None]], "step 0: a number of more than 1099511627776"),
        ([["pragma", 2, "a0", "user.x", float("nan")]], "step 0: the number nan"),
        ([["split", 2, "a" * 1001, 4, None]], "a text of 1001 characters, at most 1000"),
        ([["split", 2, "a0", {1, 2}, None]], "a set, which JSON does not have"),
    ],
)
def test_limits(trace: Json, text: str) -> None:
    with pytest.raises(ScheduleError, match=r"^trace: ") as error:
        replay(cases()[0][0], trace)
    assert text in str(error.value)
