"""A primitive that the package does not have, in this one file: what a step class must say.

``chunk`` asks for iterations of a loop in chunks, of which a scheduler of threads might make use.
Beside the class it needs a line in `loopwright/schedule/primitives/__init__.py` and a method of
`Stage`; here a fixture enters both and takes them away again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule, Stage, State, apply, replay
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.primitives import Reorder, Split
from loopwright.schedule.state import IllegalStep, LoopNote, refuse
from loopwright.schedule.steps import Step, TraceNames, register
from tests.unit.schedule.programs import matmul


@dataclass(frozen=True, slots=True)
class ChunkNote(LoopNote):
    """What ``chunk`` says about a loop."""

    size: int


@register("chunk")
class Chunk(Step):
    """Run ``size`` iterations of a loop at a time."""

    loop: str
    size: int

    def apply(self, state: State, t: int) -> State:
        """Note the size of the chunks; a later one replaces the earlier."""
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        if loop.kind == "reduce":
            name = state.loop_label(stage, loop.id)
            raise IllegalStep(f"loop {name!r} is a reduction; use a spatial loop")
        note = ChunkNote(loop.id, t, f"runs in chunks of {self.size} (step {t})", self.size)
        others = (x for x in stage.notes if (type(x), x.loop) != (ChunkNote, loop.id))
        return state.with_stage(replace(stage, notes=(*others, note)))

    def arguments(self, names: TraceNames) -> str:
        """As in ``s[C].chunk(i, 4)``."""
        return f"{names.loop(self.stage, self.loop)}, {self.size}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """A chunk is no longer than the loop."""
        for sb in bounds.stages.values():
            extents = {x.loop.id: x.extent for x in sb.loops}
            for note in sb.stage.notes:
                n = extents[note.loop]
                if isinstance(note, ChunkNote) and isinstance(n, int) and note.size > n:
                    name = state.loop_label(sb.stage, note.loop)
                    text = f"loop {name!r} has {n} iterations, no chunk of {note.size}"
                    refuse("chunk", note.step, text)


del Step.registry["chunk"]  # only tests with the fixture `chunk` have it


def method(self: Stage, axis: IterVar, size: int) -> None:
    """The method of `Stage`."""
    self.schedule.apply_step(Chunk(self.id, self.loop_id(axis, "chunk"), size))


@pytest.fixture
def chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The primitive is known as long as a test runs."""
    monkeypatch.setitem(Step.registry, "chunk", Chunk)
    monkeypatch.setattr(Stage, "chunk", method, raising=False)


def chunked() -> Schedule:
    """A schedule with the primitive, applied as a method."""
    p = matmul(8, 12, 16)
    i, j = p.c.op.axis
    p.s[p.c].reorder(j, i)
    p.s[p.c].chunk(i, 4)
    return p.s


@pytest.mark.usefixtures("chunk")
def test_it_is_applied_and_lowered() -> None:
    s = chunked()
    assert s.trace == (Reorder(2, ("a1", "a0")), Chunk(2, "a0", 4))
    (note,) = s.state.stages[2].notes
    assert (note.loop, note.step, note.size) == ("a0", 1, 4)
    again = apply(s.state, Chunk(2, "a0", 2))
    assert [x.size for x in again.stages[2].notes] == [2]
    assert s.validate().stages[2].stage.notes == (note,)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(
    ("size", "loop", "text"),
    [
        (4, "r0", r"chunk \(step 0\): loop 'C\.k' is a reduction; use a spatial loop"),
        (4, "a7", r"chunk \(step 0\): stage 'C' has no loop 'a7'.*; its loops: C\.i, C\.j, C\.k"),
    ],
)
def test_its_rule(size: int, loop: str, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        apply(matmul().s.state, Chunk(2, loop, size))


@pytest.mark.usefixtures("chunk")
def test_its_rule_that_needs_extents() -> None:
    s = replay(matmul(8, 12, 16).s.dag, [Chunk(2, "a0", 9)])
    with pytest.raises(ScheduleError, match=r"chunk \(step 0\): loop 'C\.i' has 8 iterations, no"):
        s.validate()


@pytest.mark.usefixtures("chunk")
def test_other_primitives_learn_that_the_loop_is_in_use() -> None:
    s = chunked()
    stage = s.state.stages[2]
    (use,) = s.state.uses(stage, "a0")
    assert (use.kind, use.step, use.text) == ("note", 1, "runs in chunks of 4 (step 1)")
    assert not s.state.uses(stage, "a1")
    text = r"split \(step 2\): loop 'C\.i' runs in chunks of 4 \(step 1\); split it before that"
    with pytest.raises(ScheduleError, match=text):
        apply(s.state, Split(2, "a0", 2, None))
    with pytest.raises(ScheduleError, match=r"cache_write .*: the loops of 'C' are already transf"):
        s.cache_write(s.tensors[2], "local")


@pytest.mark.usefixtures("chunk")
def test_its_json() -> None:
    s = chunked()
    assert s.trace_json() == [["reorder", 2, ["a1", "a0"]], ["chunk", 2, "a0", 4]]
    assert replay(s.dag, s.trace_json()).trace == s.trace
    text = r"trace: field 'size' of chunk is '4', which is no int"
    with pytest.raises(ScheduleError, match=text):
        Step.from_json(["chunk", 2, "a0", "4"])


@pytest.mark.usefixtures("chunk")
def test_its_python_text() -> None:
    s = chunked()
    assert s.as_python() == (
        "def schedule(s, A, B, C):\n"
        "    [i, j] = s[C].op.axis\n"
        "    [k] = s[C].op.reduce_axis\n"
        "    s[C].reorder(j, i)\n"
        "    s[C].chunk(i, 4)\n"
        "    return s\n"
    )
    scope: dict[str, Any] = {}
    exec(s.as_python(), scope)
    fresh = replay(s.dag, [])
    assert scope["schedule"](fresh, *fresh.tensors).trace == s.trace


def test_without_it_traces_are_refused() -> None:
    assert "chunk" not in Step.registry
    with pytest.raises(ScheduleError, match="trace: unknown primitive 'chunk'"):
        replay(matmul().s.dag, [["chunk", 2, "a0", 4]])
    assert not hasattr(Stage, "chunk")


def test_a_field_of_an_unknown_type_is_refused() -> None:
    class Odd(Chunk):
        weights: dict[str, float]

    text = r"odd: field 'weights' is of type dict\[str, float\]; say how it is read and written"
    with pytest.raises(TypeError, match=text):
        register("odd")(Odd)
    assert "odd" not in Step.registry


def test_fields_that_no_call_would_show_are_refused() -> None:
    class Mute(Step):
        size: int
        apply = Chunk.apply

    with pytest.raises(TypeError, match=r"mute: define arguments .*: calls lose its fields"):
        register("mute")(Mute)
    assert "mute" not in Step.registry
