"""create_group: which stages it takes, where they are computed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower, lower_ids
from loopwright.schedule import Schedule, create_schedule, replay
from loopwright.schedule.stage import Group


class Ladder(NamedTuple):
    """``B = 2 A``, C adds two neighbours in B, ``D = C + W``, ``E = 3 D``, ``F = E + A``."""

    s: Schedule
    a: te.Tensor
    w: te.Tensor
    b: te.Tensor
    c: te.Tensor
    d: te.Tensor
    e: te.Tensor
    f: te.Tensor

    def at(self, t: te.Tensor, axis: int = 0) -> tuple[Any, Any]:
        """Arguments of compute_at."""
        return self.s[t], t.op.axis[axis]


def ladder(n: int = 6, m: int = 5) -> Ladder:
    a = te.placeholder((n, m + 1), name="A", dtype="int32")
    w = te.placeholder((n, m), name="W", dtype="int32")
    b = te.compute((n, m + 1), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i, j + 1], name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + w[i, j], name="D")
    e = te.compute((n, m), lambda i, j: d[i, j] * 3, name="E")
    f = te.compute((n, m), lambda i, j: e[i, j] + a[i, j], name="F")
    return Ladder(create_schedule(f.op), a, w, b, c, d, e, f)


def names(g: Group) -> list[str]:
    return [x.op.name for x in g.members]


def places(p: Ladder) -> dict[str, str]:
    """Where each computed stage is computed."""
    state = p.s.state
    out = {}
    for sid in state.order:
        stage = state.stages[sid]
        if not stage.op.is_placeholder:
            at = stage.attach
            host = state.loop_label(state.stages[at.stage], at.loop) if at.kind == "at" else ""
            out[state.label(sid)] = host or at.kind
    return out


def check(p: Ladder) -> str:
    """The text of the program, whose results and replays are right."""
    f = lower(p.s, [p.a, p.w, p.f])
    n, m = p.f.shape
    a = np.arange(n * (m + 1), dtype="int32").reshape(n, m + 1)
    w, got = np.arange(n * m, dtype="int32").reshape(n, m) % 7, np.empty((n, m), "int32")
    interpret(f, [a, w, got])
    np.testing.assert_array_equal(got, 3 * (2 * (a[:, :-1] + a[:, 1:]) + w) + a[:, :-1])
    trace = json.loads(json.dumps(p.s.trace_json()))
    assert str(lower_ids(replay(p.s.dag, trace), p.s.arg_ids([p.a, p.w, p.f]))) == str(f)
    scope: dict[str, Any] = {}
    exec(p.s.as_python(), {"te": te}, scope)
    fresh = Schedule(p.s.dag, {})
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == p.s.trace
    return str(f)


# ------------------------------------------------------------------ which stages


def test_stages_between_outputs_and_inputs() -> None:
    p = ladder()
    assert names(p.s.create_group(p.d, p.a)) == ["B", "C", "D"]
    assert p.s.trace_json() == [["create_group", 4, [], [0]]]


def test_ways_that_reach_no_input_are_left_out() -> None:
    p = ladder()
    assert names(p.s.create_group([p.e], [p.w])) == ["D", "E"]


def test_inputs_belong_to_it_on_request() -> None:
    p = ladder()
    assert names(p.s.create_group(p.e, p.c)) == ["D", "E"]
    q = ladder()
    g = q.s.create_group(outputs=q.e, inputs=q.c, include_inputs=True)
    assert names(g) == ["C", "D", "E"]
    assert q.s.trace_json() == [["create_group", 5, [], [2], True]]
    assert repr(g) == "Group(C, D, E)"


def test_several_outputs_each_once() -> None:
    p = ladder()
    g = p.s.create_group([p.c, p.d, p.c], [p.b, p.b])
    assert names(g) == ["C", "D"]
    assert p.s.trace_json() == [["create_group", 2, [4], [1]]]
    assert [x.id for x in p.s.groups] == ["s0"]


# ------------------------------------------------------------------ where they are computed


def test_compute_at_moves_all() -> None:
    p = ladder()
    g = p.s.create_group(p.d, p.a)
    assert set(places(p).values()) == {"root"}
    g.compute_at(*p.at(p.f))
    inside = {"B": "F.i", "C": "F.i", "D": "F.i"}
    assert (g.attach_type, places(p)) == ("at", {**inside, "E": "root", "F": "root"})
    with pytest.raises(ScheduleError, match=r"'E' reads it too and does not run inside that loop"):
        lower(p.s, [p.a, p.w, p.f])
    g.compute_at(*p.at(p.e))
    text = check(p)
    assert text.count("alloc(int32[1, 5]") == 2
    assert "B = alloc(int32[1, 6]" in text
    g.compute_root()
    assert (g.attach_type, set(places(p).values())) == ("root", {"root"})
    check(p)


def test_a_stage_with_a_place_of_its_own_keeps_it() -> None:
    p = ladder()
    g = p.s.create_group(p.d, p.a)
    p.s[p.b].compute_at(*p.at(p.c, 1))
    p.s[p.d].compute_inline()
    g.compute_at(*p.at(p.e))
    assert places(p) == {"B": "C.j", "C": "E.i", "D": "inline", "E": "root", "F": "root"}
    check(p)
    p.s[p.d].compute_root()
    p.s[p.b].compute_root()
    assert places(p)["B"] == places(p)["D"] == "E.i"
    check(p)


def test_new_stages_belong_to_it() -> None:
    p = ladder()
    g = p.s.create_group(p.d, p.a)
    g.compute_at(*p.at(p.e))
    cl = p.s.cache_write(p.c, "local")
    bl = p.s.cache_read(p.b, "local", [cl])
    assert names(g) == ["B", "B.local", "C.local", "C", "D"]
    assert places(p)[bl.op.name] == places(p)[cl.op.name] == places(p)["C"] == "E.i"
    check(p)
    g.compute_root()
    check(p)


def test_partial_results_belong_to_it() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((4,), lambda i: b[i] + 1, name="C")
    s = create_schedule(c.op)
    g = s.create_group(b, a)
    _, ki = s[b].split(k, factor=4)
    s.rfactor(b, ki)
    g.compute_at(s[c], c.op.axis[0])
    assert names(g) == ["B.rf", "B"]
    x, got = np.arange(32, dtype="float32").reshape(4, 8), np.empty(4, "float32")
    interpret(lower(s, [a, c]), [x, got])
    np.testing.assert_array_equal(got, x.sum(axis=1) + 1)


def test_copies_of_grouped_inputs_belong_to_it() -> None:
    p = ladder()
    g = p.s.create_group(p.c, p.a, include_inputs=True)
    al = p.s.cache_read(p.a, "local", [p.b])
    g.compute_at(*p.at(p.d))
    assert places(p)[al.op.name] == "D.i"
    check(p)


def test_storage_goes_back_with_the_group() -> None:
    p = ladder()
    g = p.s.create_group(p.d, p.a)
    g.compute_at(*p.at(p.e, 1))
    p.s[p.b].store_at(*p.at(p.e, 0))
    assert "B = alloc(int32[1, 6]" in check(p)
    g.compute_root()
    assert p.s.state.stages[1].store is None
    check(p)


# ------------------------------------------------------------------ groups of groups


def test_a_group_inside_a_group_follows_it() -> None:
    p = ladder()
    inner = p.s.create_group(p.c, p.a)
    outer = p.s.create_group(p.e, p.a)
    assert (names(inner), names(outer)) == (["B", "C"], ["B", "C", "D", "E"])
    outer.compute_at(*p.at(p.f))
    assert set(places(p).values()) == {"F.i", "root"}
    inner.compute_at(*p.at(p.d))
    assert places(p) == {"B": "D.i", "C": "D.i", "D": "F.i", "E": "F.i", "F": "root"}
    check(p)
    inner.compute_root()
    assert places(p)["B"] == "F.i"
    outer.compute_root()
    assert set(places(p).values()) == {"root"}
    check(p)


def test_a_group_made_inside_one_that_has_moved() -> None:
    p = ladder()
    outer = p.s.create_group(p.e, p.a)
    outer.compute_at(*p.at(p.f))
    inner = p.s.create_group(p.c, p.a)
    assert p.s.state.groups[inner.id].parent == outer.id
    assert places(p)["B"] == "F.i"
    inner.compute_at(*p.at(p.d, 1))
    check(p)


def test_the_same_stages_twice_are_nested() -> None:
    p = ladder()
    outer, inner = p.s.create_group(p.c, p.a), p.s.create_group(p.c, p.a)
    innermost = p.s.create_group(p.b, p.a)
    groups = p.s.state.groups
    assert [groups[g.id].parent for g in (outer, inner, innermost)] == [None, outer.id, inner.id]


# ------------------------------------------------------------------ refused


def _moved(p: Ladder, *where: te.Tensor) -> Group:
    g = p.s.create_group(p.d, p.a)
    if where:
        g.compute_at(*p.at(where[0]))
    return g


def _two(p: Ladder) -> Group:
    inner = p.s.create_group(p.c, p.a)
    p.s.create_group(p.d, p.a)
    return inner


def _inlined_host(p: Ladder) -> None:
    """All stages of a group have places of their own when its host goes; then one comes back."""
    g = p.s.create_group(p.c, p.a)
    g.compute_at(*p.at(p.d))
    p.s[p.b].compute_inline()
    p.s[p.c].compute_inline()
    p.s[p.d].compute_inline()
    p.s[p.c].compute_root()


REFUSED: dict[str, tuple[Callable[[Ladder], Any], str]] = {
    "an input as an output": (
        lambda p: p.s.create_group(p.a, p.a),
        r"create_group \(step 0\): 'A' is an input and has no loops; use cache_read",
    ),
    "no output": (
        lambda p: p.s.create_group([], p.a),
        r"create_group \(step 0\): name at least one output",
    ),
    "nothing between": (
        lambda p: p.s.create_group(p.c, p.w),
        r"create_group \(step 0\): no stage lies between W and C; inputs are tensors that the "
        r"outputs are computed from",
    ),
    "no inputs": (
        lambda p: p.s.create_group(p.c, []),
        r"create_group \(step 0\): no stage lies between no inputs and C",
    ),
    "groups that cross": (
        lambda p: (p.s.create_group(p.d, p.b), p.s.create_group(p.c, p.a)),
        r"create_group \(step 1\): the group of C, D has C of the stages asked for, but not B; "
        r"groups are nested or have no stage in common",
    ),
    "a stage computed outside": (
        lambda p: (p.s[p.c].compute_at(*p.at(p.d)), p.s.create_group(p.c, p.a)),
        r"create_group \(step 1\): 'C' is computed at loop 'D.i' \(step 0\), outside of the group; "
        r"call create_group before that and move the group",
    ),
    "a group computed outside": (
        lambda p: (
            p.s.create_group(p.b, p.a).compute_at(*p.at(p.d)),
            p.s.create_group(p.c, p.a),
        ),
        r"create_group \(step 2\): the group of B is computed at loop 'D.i' \(step 1\), outside",
    ),
    "inside itself": (
        lambda p: _moved(p, p.c),
        r"compute_at \(step 1\): the group of B, C, D cannot be computed inside its own stage 'C'; "
        r"name a stage that uses it",
    ),
    "in a stage that does not use it": (
        lambda p: p.s.create_group(p.d, p.c).compute_at(*p.at(p.b)),
        r"compute_at \(step 1\): 'B' does not use 'D', directly or through others; it is used by E",
    ),
    "with an output": (
        lambda p: p.s.create_group(p.f, p.e).compute_at(*p.at(p.e)),
        r"compute_at \(step 1\): 'F' is an output and is computed at root",
    ),
    "a stage out of its group": (
        lambda p: (_moved(p), p.s[p.b].compute_at(*p.at(p.e))),
        r"compute_at \(step 1\): 'B' belongs to the group of B, C, D and can be computed only "
        r"inside stages of that, not inside 'E'; move the group",
    ),
    "a group out of its group": (
        lambda p: _two(p).compute_at(*p.at(p.e)),
        r"compute_at \(step 2\): the group of B, C belongs to the group of B, C, D and can be "
        r"computed only inside stages of that, not inside 'E'; move the group",
    ),
    "a loop that is gone": (
        lambda p: (p.s[p.e].split(p.e.op.axis[0], 2), _moved(p, p.e)),
        r"compute_at \(step 2\): loop 'E.i' no longer exists \(step 0 split it into E.i.0, E.i.1\)",
    ),
    "a place that is gone": (
        _inlined_host,
        r"compute_root \(step 5\): 'C' follows the group of B, C to loop 'D.i' \(step 1\), which "
        r"is no longer there; move the group first",
    ),
    "a loop with stages of a group inside": (
        lambda p: (_moved(p, p.e), p.s[p.e].split(p.e.op.axis[0], 2)),
        r"split \(step 2\): stage 'B' is computed at loop 'E.i'; split the loop first",
    ),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_refused(what: str) -> None:
    p = ladder()
    act, text = REFUSED[what]
    with pytest.raises(ScheduleError, match=text):
        act(p)


def test_a_group_has_no_loops() -> None:
    p = ladder()
    p.s.create_group(p.d, p.a)
    with pytest.raises(
        ScheduleError,
        match=r"split \(step 1\): 's0' is a group of stages, with no loops and no buffer of its "
        r"own; it takes compute_at and compute_root, name one of its stages for the rest",
    ):
        replay(p.s.dag, [*p.s.trace_json(), ["split", "s0", "a0", 2, None]])


def test_a_trace_is_checked() -> None:
    p = ladder()
    with pytest.raises(ScheduleError, match=r"field 'include_inputs' of create_group is 1, which"):
        replay(p.s.dag, [["create_group", 4, [], [0], 1]])
    with pytest.raises(ScheduleError, match=r"create_group \(step 0\): there is no stage 9"):
        replay(p.s.dag, [["create_group", 4, [9], [0]]])


def test_a_place_in_a_reduction_that_went_to_another_stage_is_gone() -> None:
    """Found by a fuzz, as a KeyError."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    s.create_group(b, a).compute_at(s[c], k)
    s[b].compute_inline()
    s.cache_write(c, "local")
    with pytest.raises(ScheduleError, match=r"'B' follows the group of B to loop .* no longer"):
        s[b].compute_root()
