"""Names of stages and loops in the Python text of a trace."""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.schedule.sampled import Sampled
from loopwright.schedule.state import StageId, State
from loopwright.te.source import PythonIdentifiers


class Names(PythonIdentifiers):
    """Python identifiers for the stages and loops of a schedule, each used once.

    The axes of a stage get their names where a loop of the stage is first asked for, by lines that
    stand before the call that asked.
    """

    def __init__(self, state: State) -> None:
        super().__init__(("s", "te", "schedule"))
        #: States before and after the present step.
        self.before = self.after = state
        self.lines: list[str] = []
        self._stages: dict[StageId, str] = {}
        self._loops: dict[tuple[StageId, str], str] = {}
        self._with_axes: set[StageId] = set()

    @property
    def step(self) -> int:
        return self.before.steps

    def tensor(self, sid: StageId) -> str:
        """A stage's tensor: ``C``."""
        if sid not in self._stages:
            self._stages[sid] = self.fresh(self.after.stages[sid].op.name)
        return self._stages[sid]

    def output(self, sid: StageId, index: int) -> str:
        """One of the tensors of a stage: ``C``, or ``C.op.output(1)`` where there are several."""
        several = self.before.stages[sid].op.num_outputs > 1
        return f"{self.tensor(sid)}.op.output({index})" if several else self.tensor(sid)

    def stage(self, sid: StageId) -> str:
        """A stage, or a group of stages, as an object with methods: ``s[C]``, ``group``."""
        name = self.tensor(sid)
        return name if sid in self.before.groups else f"s[{name}]"

    def new_stage(self) -> str:
        """The tensor of the stage that the present step makes."""
        return self.tensor(f"s{self.step}")

    def new_group(self) -> str:
        """The group that the present step makes."""
        name = self._stages[f"s{self.step}"] = self.fresh("group")
        return name

    def loop(self, sid: StageId, loop: str) -> str:
        if sid not in self._with_axes:
            self._name_axes(sid)
        return self._loop(self.after, sid, loop)

    def number(self, v: object) -> str:
        """A number, by its name where a step of the trace chose it."""
        return v.name if isinstance(v, Sampled) else repr(v)

    def _loop(self, state: State, sid: StageId, loop: str) -> str:
        if (sid, loop) not in self._loops:
            self._loops[sid, loop] = self.fresh(state.stages[sid].loops[loop].name)
        return self._loops[sid, loop]

    def _name_axes(self, sid: StageId) -> None:
        self._with_axes.add(sid)
        op = self.before.stages[sid].op
        for prefix, attribute, axes in (
            ("a", "axis", op.axes),
            ("r", "reduce_axis", op.reduce_axes),
        ):
            names = ", ".join(
                self._loop(self.before, sid, f"{prefix}{d}") for d in range(len(axes))
            )
            if names:
                self.lines.append(f"    [{names}] = s[{self.tensor(sid)}].op.{attribute}")

    def move(self, sid: StageId, moves: Mapping[str, str]) -> None:
        """Give names to the stage that the present step made, where loops moved there unchanged."""
        for old, loop in self.before.stages[sid].loops.items():
            name = self._loops.pop((sid, old), "") if loop.kind == "reduce" else ""
            if name and moves.get(old) == old:
                self._loops[f"s{self.step}", old] = name
        self._with_axes.discard(sid)
