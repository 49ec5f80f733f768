"""Attributes of a stage: its present operation, loops, relations and place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.ir.kinds import AttachKind, Scope
from loopwright.schedule.state import FuseRel, PragmaValue, SplitRel, StageState
from loopwright.schedule.surface.resolution import StageLike, StageOp, StageRef
from loopwright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor


def output_of(key: StageLike, who: str) -> int:
    """Index of the output that a tensor is; an operation or a stage means its only one."""
    if isinstance(key, Tensor):
        return key.value_index
    op = key.schedule._operation(key.id) if isinstance(key, StageRef) else key
    if op.num_outputs > 1:
        raise ScheduleError(f"{who}: {op.name!r} has {op.num_outputs} outputs; name one: output(k)")
    return 0


#: TE's names for kinds of loops and for what primitives make of them.
_ITER_TYPES = {
    "spatial": "DataPar",
    "reduce": "CommReduce",
    "thread": "ThreadIndex",
    "vectorized": "Vectorized",
    "unrolled": "Unrolled",
    "parallel": "Parallelized",
}


@dataclass(frozen=True, slots=True)
class IterVarAttr:
    """Mark and pragmas of a loop, under TE's names."""

    #: ``"DataPar"``, ``"CommReduce"``, ``"ThreadIndex"``, ``"Vectorized"``, ``"Unrolled"``,
    #: ``"Parallelized"`` or ``"Tensorized"``.
    iter_type: str
    #: Thread axis that it is bound to, or ``""``.
    bind_thread: str
    #: By name.
    pragmas: Mapping[str, PragmaValue]


class StageView(StageRef):
    """The attributes of a stage, under TE's names."""

    def __repr__(self) -> str:
        return f"Stage({self.schedule.state.label(self.id)})"

    def _who(self, verb: str) -> str:
        return self.schedule._who(verb)

    def loop_id(self, axis: object, verb: str) -> str:
        """The loop that an axis means; ``verb`` is the primitive that asks, for messages.

        Raises:
            ScheduleError: it means no loop of this stage.
        """
        return self.schedule.loop_id(self.id, axis, self._who(verb))

    @property
    def _state(self) -> StageState:
        return self.schedule.state.stages[self.id]

    @property
    def op(self) -> Operation:
        """The operation as it is now (after caching steps)."""
        op = self.schedule._operation(self.id)
        original = isinstance(op, ComputeOp)
        unchanged = original and self._state.op is self.schedule.dag.ops[int(self.id)]
        if unchanged or isinstance(op, PlaceholderOp):
            return op
        return StageOp(self.schedule, self.id, op._outputs)

    @property
    def origin_op(self) -> Operation:
        """The operation as the user defined it; the present one for stages made by a step."""
        return self.schedule._operation(self.id)

    @property
    def leaf_iter_vars(self) -> list[IterVar]:
        """Axes of the present loops, outermost first."""
        return [self.schedule._axis(self.id, x) for x in self._state.leaves]

    @property
    def all_iter_vars(self) -> list[IterVar]:
        """Axes of all loops that ever were: those of the operation, and those that steps made."""
        return [self.schedule._axis(self.id, x) for x in self._state.loops]

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterVarAttr]:
        """Marks and pragmas of present loops; loops without any are left out."""
        st = self._state
        out = {}
        for x in st.leaves:
            mark = st.marks.get(x)
            pragmas = {key: value for loop, key, value in st.pragmas if loop == x}
            kind = _ITER_TYPES[mark.kind if mark else st.loops[x].kind]
            if st.tensorized is not None and st.tensorized.loop == x:
                kind = "Tensorized"
            elif mark is None and not pragmas:
                continue
            axis = self.schedule._axis(self.id, x)
            out[axis] = IterVarAttr(kind, mark.tag if mark else "", pragmas)
        return out

    @property
    def relations(self) -> tuple[SplitRel | FuseRel, ...]:
        """Splits and fusions of loops, in the order of the steps."""
        return self._state.relations

    @property
    def attach_type(self) -> AttachKind:
        """Place where it is computed: ``"root"``, ``"inline"`` or ``"at"``."""
        return self._state.attach.kind

    @property
    def attach_stage(self) -> StageView | None:
        """The stage in whose loop it is computed, or None."""
        a = self._state.attach
        return type(self)(self.schedule, a.stage) if a.kind == "at" else None

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop at which it is computed, or None."""
        a = self._state.attach
        return self.schedule._axis(a.stage, a.loop) if a.kind == "at" else None

    @property
    def scope(self) -> Scope:
        """Memory scope of its buffer: ``"global"``, ``"shared"`` or ``"local"``."""
        return self._state.scope

    @property
    def is_output(self) -> bool:
        """True when it is one of the schedule's outputs."""
        return self.id in self.schedule.state.outputs
