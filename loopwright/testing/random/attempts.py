"""The base of the classes that draw schedules: a step that the rules refuse, or that makes the
program too slow to interpret or its code too long, is counted and left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.schedule.apply import apply, validate_bounds
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.state import StageId, StageState, State
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag
from loopwright.testing.random.values import Draw
from loopwright.testing.schedule_costs import costs

#: Most executions of statements, and most copies of a statement, in a schedule that is kept.
MAX_WORK = 20_000
MAX_COPIES = 600


@dataclass
class RandomSchedule:
    """A trace as JSON, and the number of steps of each primitive that were applied and refused."""

    trace: list[list[Any]]
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return "RandomSchedule([\n" + "".join(f"  {t!r},\n" for t in self.trace) + "])"


class Attempts:
    """A schedule being drawn: tries steps, and picks their stages and loops."""

    #: Whether rules that need extents are asked after each step.
    validating = False

    def __init__(self, d: Draw, dag: Dag) -> None:
        self.d = d
        self.state = State.initial(dag)
        self.out = RandomSchedule([])

    # ------------------------------------------------------------ applying

    def do(self, step: Step) -> bool:
        """Apply a step if the rules, and the limits of testing, allow it."""
        name = step.primitive
        try:
            new = apply(self.state, step)
            if not self.d.chance(2):
                self._limit(new)
        except ScheduleError:
            self.out.refused[name] += 1
            return False
        self.state = new
        self.out.trace.append(step.to_json())
        self.out.applied[name] += 1
        return True

    def _limit(self, new: State) -> None:
        bounds = infer_bounds(new)
        if self.validating or any(map(_refused_late, new.stages.values())):
            validate_bounds(new, bounds)
        work, copies = costs(new, bounds)
        if work > MAX_WORK or copies > MAX_COPIES:
            raise ScheduleError(f"too costly to test: {work} statements, {copies} copies")

    # ------------------------------------------------------------ picking

    def stage(self) -> StageState | None:
        """A stage that is computed."""
        computed = [s for s in self.state.stages.values() if not s.op.is_placeholder]
        return self.d.pick(computed) if computed else None

    def refresh(self, stage: StageState) -> StageState:
        return self.state.stages[stage.id]

    def loop(self, stage: StageState, kind: str | None = None, last: bool = False) -> str | None:
        """One of the loops of a stage, of this kind if it has one; mostly the last, if asked."""
        fit = [x for x in stage.leaves if kind is None or stage.loops[x].kind == kind]
        fit = fit or list(stage.leaves)
        if not fit:
            return None
        if last and self.d.chance(70):
            return fit[-1]
        return str(self.d.pick(fit))

    def readers(self, sid: StageId) -> list[StageId]:
        return self.state.consumers(sid)


def _refused_late(x: StageState) -> bool:
    """Whether it has features that are mostly refused when extents are known."""
    bound = any(m.kind == "thread" for m in x.marks.values())
    asked = x.store or x.layout or x.double is not None or x.prefetches or x.notes or x.tensorized
    return bool(asked or bound)
