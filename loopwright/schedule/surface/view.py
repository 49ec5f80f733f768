"""What a stage shows of itself: its present operation, loops, relations and place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import IterVar
from loopwright.schedule.state import FuseRel, SplitRel, StageId, StageState
from loopwright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from loopwright.schedule.surface.resolution import Handles


class StageOp(Operation):
    """The present operation of a stage: `axis`, `reduce_axis`, `input_tensors`, ``output(k)``."""

    def __init__(
        self, schedule: Handles, sid: StageId, tensors: tuple[Tensor, ...] | None = None
    ) -> None:
        op = schedule.state.stages[sid].op
        super().__init__(op.name, op.shape, op.dtypes, op.tag)
        self._schedule, self._sid = schedule, sid
        self._outputs = tensors or self._outputs
        self.axis = [schedule._handle(sid, f"a{d}") for d in range(len(op.axes))]
        self.reduce_axis = [schedule._handle(sid, f"r{d}") for d in range(len(op.reduce_axes))]

    @property
    def body(self) -> Any:
        """The expression of an element, as a `ComputeOp` has it; reads name stages by id."""
        return self._schedule.state.stages[self._sid].op.body

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads now."""
        reads = self._schedule.state.stages[self._sid].op.reads()
        ids = dict.fromkeys((r.source, r.value_index) for r in reads)
        return [self._schedule._tensor(*i) for i in ids]


def output_of(key: Any, who: str) -> int:
    """Which output a tensor is; what is no tensor stands for its only one."""
    if isinstance(key, Tensor):
        return key.value_index
    op = key.op if isinstance(key, StageView) else key
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
    """What primitives said of a loop.

    Attributes:
        iter_type: ``"DataPar"``, ``"CommReduce"``, ``"ThreadIndex"``, ``"Vectorized"``,
            ``"Unrolled"``, ``"Parallelized"`` or ``"Tensorized"``.
        bind_thread: the thread axis that it is bound to, or ``""``.
        pragmas: its pragmas by name.
    """

    iter_type: str
    bind_thread: str
    pragmas: Mapping[str, Any]


class StageView:
    """The attributes of a stage, under TE's names."""

    def __init__(self, schedule: Handles, sid: StageId) -> None:
        self.schedule, self.id = schedule, sid

    def __repr__(self) -> str:
        return f"Stage({self.schedule.state.label(self.id)})"

    def _who(self, verb: str) -> str:
        return self.schedule._who(verb)

    def _loop(self, axis: Any, verb: str) -> str:
        return self.schedule._loop_id(self.id, axis, self._who(verb))

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
        """Handles of the present loops, outermost first."""
        return [self.schedule._handle(self.id, x) for x in self._state.leaves]

    @property
    def all_iter_vars(self) -> list[IterVar]:
        """Handles of all loops that ever were: the axes, and what steps made of them."""
        return [self.schedule._handle(self.id, x) for x in self._state.loops]

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterVarAttr]:
        """What primitives said of present loops; a loop of which nothing was said is left out."""
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
            handle = self.schedule._handle(self.id, x)
            out[handle] = IterVarAttr(kind, mark.tag if mark else "", pragmas)
        return out

    @property
    def relations(self) -> tuple[SplitRel | FuseRel, ...]:
        """How loops came from loops, in the order of the steps."""
        return self._state.relations

    @property
    def attach_type(self) -> str:
        """Where it is computed: ``"root"``, ``"inline"`` or ``"at"``."""
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
        return self.schedule._handle(a.stage, a.loop) if a.kind == "at" else None

    @property
    def scope(self) -> str:
        """Memory scope of its buffer: ``"global"``, ``"shared"`` or ``"local"``."""
        return self._state.scope

    @property
    def is_output(self) -> bool:
        """True when it is one of the schedule's outputs."""
        return self.id in self.schedule.state.outputs
