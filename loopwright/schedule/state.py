"""The immutable state of a schedule: stages, their loops and the relations between loops.

A stage's id is its index in the DAG (an int) or, for a stage made by step t, ``"s<t>"``; where a
step makes two, that before it is ``"s<t>.0"``. A loop's id is ``"a<d>"`` (spatial axis d),
``"r<d>"`` (reduction axis d) or ``"<t>.<n>"`` (output n of step t). Splits and fusions are kept as
relations: extents of attached stages are known only after `loopwright.schedule.bounds.infer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, Self, TypeAlias

from loopwright.errors import ScheduleError, did_you_mean
from loopwright.ir.expr import Dim
from loopwright.ir.kinds import AttachKind, AxisKind, MarkKind, Scope
from loopwright.te import Dag, OpNode, TensorIntrin

#: Why a loop is in use. A primitive that notes something of its own about a loop (`LoopNote`) does
#: so as ``"note"``.
UseKind = Literal["mark", "pragma", "prefetch", "tensorize", "note", "attached"]


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a loop, which therefore cannot be taken apart."""

    kind: UseKind
    #: Step since which it is so; None where the state does not keep it.
    step: int | None
    text: str  #: words for messages: ``is already vectorized (step 3)``; see `says`
    stage: int | str = -1  #: for ``"attached"``: the stage that is computed or stored there
    primitive: str = ""  #: for ``"attached"``: the primitive that put it there

    def says(self, loop: str) -> str:
        name = f"loop {loop!r}"
        return f"{self.text} {name}" if self.kind == "attached" else f"{name} {self.text}"


@dataclass(frozen=True, slots=True)
class LoopNote:
    """Note of a primitive about a loop, for lowering, which adds fields of its own."""

    loop: str
    step: int
    text: str  # use of the loop in messages: ``loop 'C.i' <text>``

    def needs(self, stage: int | str, loop: str) -> bool:
        """Whether a loop of another stage has to stay as it is for it."""
        return False


StageId = int | str
PragmaValue = str | int | float | bool | None  #: value of a hint to a loop
#: The pragma by which the stores of a stage go past the caches: a stage's, whatever loop has it.
NONTEMPORAL = "nontemporal"
#: ``(dim, div, mod)`` for ``(index[dim] // div) % mod``; mod None means no limit.
Digit = tuple[int, int, int | None]
#: A number, ``"i<d>"`` for index d, a sum, or one with a number; see `primitives.index_map`.
IndexExpr: TypeAlias = "int | str | IndexSum | IndexByNumber"
IndexSum: TypeAlias = "tuple[Literal['+'], IndexExpr, IndexExpr]"
IndexByNumber: TypeAlias = "tuple[Literal['*', '//', '%'], IndexExpr, int]"
#: One dimension of a layout. A `loopwright.ir.sizes.Symbol` may stand for a number, as in factors.
LayoutDim: TypeAlias = "Digit | IndexExpr"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a stage; ``nominal`` is its extent if the stage covered its whole tensor."""

    id: str
    name: str
    kind: AxisKind
    nominal: Dim


@dataclass(frozen=True, slots=True)
class LoopMark:
    kind: MarkKind  # ``vectorized``, ``unrolled``, ``parallel`` or ``thread``
    step: int
    tag: str = ""  # of the thread axis
    extent: int | None = None  # that the axis was declared with

    @property
    def text(self) -> str:
        """Words for messages: ``vectorized``, ``thread threadIdx.x``."""
        return f"{self.kind} {self.tag}".rstrip()


@dataclass(frozen=True, slots=True)
class SplitRel:
    """``parent = outer * inner_extent + inner``, made by one of factor and nparts."""

    parent: str
    outer: str
    inner: str
    factor: int | None
    nparts: int | None
    step: int


@dataclass(frozen=True, slots=True)
class FuseRel:
    """``fused = outer * inner_extent + inner``."""

    outer: str
    inner: str
    fused: str
    step: int


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Output ``value_index`` of ``source``, brought ``offset`` iterations of ``loop`` ahead."""

    loop: str
    source: StageId
    value_index: int
    offset: int
    step: int

    @property
    def what(self) -> tuple[str, StageId, int]:
        return self.loop, self.source, self.value_index


@dataclass(frozen=True, slots=True)
class Attach:
    """Place of a stage: at ``root``, ``inline``, or ``at`` loop ``loop`` of ``stage``."""

    kind: AttachKind
    stage: StageId = -1
    loop: str = ""
    step: int = -1
    group: StageId | None = None  # that it follows there, if no step of its own put it there


ROOT = Attach("root")


@dataclass(frozen=True, slots=True)
class GroupState:
    """Stages that are moved together: their place, and the group around them, if any."""

    id: StageId
    parent: StageId | None = None
    attach: Attach = ROOT


@dataclass(frozen=True, slots=True)
class Tensorized:
    """The loop inside which an intrinsic does the work, and the step since which it does."""

    loop: str
    intrin: TensorIntrin
    step: int


#: The pragma of a loop that is the inside of a tile: its last tile is written out by itself.
PARTITION_HINT = "loop_partition_hint"


@dataclass(frozen=True, eq=False)
class StageState:
    id: StageId
    op: OpNode
    loops: Mapping[str, Loop]
    leaves: tuple[str, ...]
    relations: tuple[SplitRel | FuseRel, ...] = ()
    marks: Mapping[str, LoopMark] = field(default_factory=dict)
    pragmas: tuple[tuple[str, str, PragmaValue], ...] = ()
    prefetches: tuple[Prefetched, ...] = ()
    attach: Attach = ROOT
    scope: Scope = "global"
    layout: tuple[LayoutDim, ...] | None = None  #: set by step ``laid_out``
    laid_out: int = -1
    pad_value: float | None = None  #: fills the buffer's padding
    #: (dimension of the buffer, factor, offset) of its strides.
    align: tuple[tuple[int, int, int], ...] = ()
    store: Attach | None = None  #: place of its buffer, if not where it is computed
    #: Step that requested several places of the buffer in turn, ``copies`` of them.
    double: int | None = None
    copies: int = 2
    reordered: bool = False
    env_threads: tuple[tuple[str, int | None], ...] = ()
    predicate: tuple[tuple[str, int], ...] | None = None
    #: Last step that acted, of each primitive whose effect carries no step of its own.
    since: Mapping[str, int] = field(default_factory=dict)
    tensorized: Tensorized | None = None
    group: StageId | None = None  #: innermost group that it belongs to
    notes: tuple[LoopNote, ...] = ()  #: notes of other primitives about its loops

    @property
    def transformed(self) -> bool:
        """True when a primitive has touched its loops."""
        used = any(True for x in self.leaves for _ in self.uses(x))
        return bool(self.relations or self.reordered or used)

    @property
    def nontemporal(self) -> Any:
        """Whether its stores go past the caches: 0, 1, or a symbol whose value is not known yet."""
        values = [value for _, key, value in self.pragmas if key == NONTEMPORAL]
        return values[-1] if values else 0

    def uses(self, loop: str) -> Iterator[Use]:
        """Uses of a loop by primitives of this stage; `State.uses` knows other stages too."""
        if (mark := self.marks.get(loop)) is not None:
            yield Use("mark", mark.step, f"is already {mark.text} (step {mark.step})")
        if any(x == loop for x, _, _ in self.pragmas):
            yield Use("pragma", None, "carries a pragma")
        for p in self.prefetches:
            if p.loop == loop:
                yield Use("prefetch", p.step, "prefetches a tensor")
        done = self.tensorized
        if done is not None and done.loop == loop:
            yield Use("tensorize", done.step, f"is tensorized (step {done.step})")
        for note in self.notes:
            if note.loop == loop:
                yield Use("note", note.step, note.text)

    @property
    def short_tiles(self) -> dict[str, int]:
        """Loops inside tiles of which the last stands alone, with a divisor of its iterations."""
        hints = [(loop, value) for loop, key, value in self.pragmas if key == PARTITION_HINT]
        return {loop: int(value) for loop, value in hints if isinstance(value, int) and value}

    def after(self, primitive: str, step: int) -> Mapping[str, int]:
        return {**self.since, primitive: step}


def initial_stage(sid: StageId, op: OpNode, scope: Scope = "global") -> StageState:
    """A stage with the loops of its operation, spatial before reduction."""
    loops = {f"a{d}": Loop(f"a{d}", a.name, "spatial", op.shape[d]) for d, a in enumerate(op.axes)}
    loops |= {
        f"r{d}": Loop(f"r{d}", a.name, "reduce", a.extent) for d, a in enumerate(op.reduce_axes)
    }
    return StageState(sid, op, loops, tuple(loops), scope=scope)


@dataclass(frozen=True, eq=False)
class State:
    """A schedule as a value."""

    stages: Mapping[StageId, StageState]
    order: tuple[StageId, ...]  # topological
    outputs: tuple[StageId, ...]
    steps: int = 0  # number of those applied
    groups: Mapping[StageId, GroupState] = field(default_factory=dict)
    #: Numbers that sampling steps chose, by the index of the step.
    samples: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def initial(dag: Dag) -> State:
        stages: dict[StageId, StageState] = {
            i: initial_stage(i, op) for i, op in enumerate(dag.ops)
        }
        return State(stages, tuple(stages), dag.outputs)

    def stage(self, sid: StageId) -> StageState:
        """The stage with an id; an `IllegalStep` where there is none."""
        if sid in self.groups:
            raise IllegalStep(
                f"{sid!r} is a group of stages, with no loops and no buffer of its own; it takes "
                "compute_at and compute_root, name one of its stages for the rest"
            )
        if sid not in self.stages:
            stages = ", ".join(map(str, self.order))
            raise IllegalStep(f"there is no stage {sid!r}; stages: {stages}")
        return self.stages[sid]

    def compute_stage(self, sid: StageId) -> StageState:
        """The stage with an id, which must not be an input."""
        st = self.stage(sid)
        if st.op.is_placeholder:
            raise IllegalStep(
                f"{st.op.name!r} is an input and has no loops; use cache_read to make a stage "
                "that copies it"
            )
        return st

    def with_stage(self, st: StageState) -> State:
        # Written out: `dataclasses.replace` takes a third of the time of a schedule.
        stages = {**self.stages, st.id: st}
        return State(stages, self.order, self.outputs, self.steps, self.groups, self.samples)

    def inserted(self, at: int, *new: StageState, changed: Iterable[StageState]) -> State:
        """A state with new stages from place ``at`` of the order on, and some stages replaced."""
        stages = {**self.stages, **{st.id: st for st in (*new, *changed)}}
        order = (*self.order[:at], *(st.id for st in new), *self.order[at:])
        return replace(self, stages=stages, order=order)

    def after_step(self) -> State:
        steps = self.steps + 1
        return State(self.stages, self.order, self.outputs, steps, self.groups, self.samples)

    def with_sample(self, step: int, chosen: tuple[int, ...]) -> State:
        return replace(self, samples={**self.samples, step: chosen})

    def with_group(self, group: GroupState) -> State:
        return replace(self, groups={**self.groups, group.id: group})

    def label(self, sid: StageId) -> str:
        """Printed name of a stage: its operation's name, made unique."""
        names: dict[str, int] = {}
        for i in self.order:
            name = base = self.stages[i].op.name
            while name in names:
                names[base] += 1
                name = f"{base}_{names[base]}"
            names[name] = 0
            if i == sid:
                return name
        raise KeyError(sid)

    def loop_label(self, st: StageState, loop: str) -> str:
        """Printed name of a loop: ``C.i.0``."""
        return f"{self.label(st.id)}.{st.loops[loop].name}"

    def leaf(self, st: StageState, loop: str) -> Loop:
        """A loop that a primitive may act on; the `IllegalStep` says which step consumed it."""
        if loop in st.leaves:
            return st.loops[loop]
        if loop not in st.loops:
            raise IllegalStep(
                f"stage {self.label(st.id)!r} has no loop {loop!r}{did_you_mean(loop, st.loops)}; "
                f"its loops: {self.loop_list(st)}"
            )
        consumer = "a later step removed it"
        for r in st.relations:
            if isinstance(r, SplitRel) and r.parent == loop:
                parts = f"{self.loop_label(st, r.outer)}, {self.loop_label(st, r.inner)}"
                consumer = f"step {r.step} split it into {parts}"
            elif isinstance(r, FuseRel) and loop in (r.outer, r.inner):
                consumer = f"step {r.step} fused it into {self.loop_label(st, r.fused)}"
        raise IllegalStep(
            f"loop {self.loop_label(st, loop)!r} no longer exists ({consumer}); the loops are now "
            f"{self.loop_list(st)}"
        )

    def loop_list(self, st: StageState) -> str:
        """The leaf loops of a stage, outermost first, as text."""
        return ", ".join(self.loop_label(st, x) for x in st.leaves) or "none"

    def output_label(self, sid: StageId, index: int) -> str:
        """Printed name of an output: ``C``, or ``C.v1`` where the stage has several."""
        label = self.label(sid)
        return label if self.stages[sid].op.num_outputs == 1 else f"{label}.v{index}"

    def consumers(self, sid: StageId, output: int | None = None) -> list[StageId]:
        """Stages whose bodies read stage ``sid`` (or only this output of it)."""
        outputs = range(self.stages[sid].op.num_outputs) if output is None else (output,)
        return [
            i
            for i in self.order
            if any(r.source == sid and r.value_index in outputs for r in self.stages[i].op.reads())
        ]

    def attached_at(self, sid: StageId, loop: str) -> list[StageId]:
        """Stages computed or stored at one loop, in topological order."""
        return [
            i
            for i in self.order
            if _is_at(self.stages[i].attach, sid, loop) or _is_at(self.stages[i].store, sid, loop)
        ]

    def uses(self, stage: StageState, loop: str) -> list[Use]:
        """Uses of a loop of a stage by all primitives; nothing: it may be taken apart."""
        out = list(stage.uses(loop))
        for other in self.stages.values():
            needed = (note for note in other.notes if note.needs(stage.id, loop))
            text = f"is prefetched for by {self.label(other.id)!r}"
            out += [Use("note", note.step, f"{text} (step {note.step})") for note in needed]
        for sid in self.attached_at(stage.id, loop):
            computed = self.stages[sid].attach
            stored = self.stages[sid].store or computed
            at, verb = (
                (computed, "compute") if _is_at(computed, stage.id, loop) else (stored, "store")
            )
            text = f"stage {self.label(sid)!r} is {verb}d at"
            out.append(Use("attached", at.step, text, sid, f"{verb}_at"))
        return out


def _is_at(place: Attach | None, sid: StageId, loop: str) -> bool:
    return place is not None and (place.kind, place.stage, place.loop) == ("at", sid, loop)


class IllegalStep(ScheduleError):
    """A step that cannot be applied; `apply` puts its name and its index before the reason."""


def refuse(step: str, index: int, text: str) -> NoReturn:
    raise ScheduleError(f"{step} (step {index}): {text}")


class Sampled(int):
    """A number that a step chose, in whose place a replay of the trace may have another one.

    Steps that take it keep that it comes from there; arithmetic on it gives plain numbers.
    """

    step: int  # index of the step that chose it
    part: int  # its index among the numbers that the step chose

    def __new__(cls, value: int, step: int = -1, part: int = 0) -> Self:
        number = super().__new__(cls, value)
        number.step, number.part = step, part
        return number

    @property
    def name(self) -> str:
        """Name in the Python text of a trace."""
        return f"v{self.step}_{self.part}"


def loops_around(state: State, stage: StageState) -> list[tuple[StageId, int]]:
    """The loops around a stage, innermost first, each as a stage and a position there."""
    out: list[tuple[StageId, int]] = []
    while stage.attach.kind == "at":
        host = state.stages[stage.attach.stage]
        last = host.leaves.index(stage.attach.loop)
        out += [(host.id, p) for p in range(last, -1, -1)]
        stage = host
    return out


def store_position(state: State, stage: StageState) -> tuple[StageId, int]:
    """Loop inside which an attached stage's buffer exists (-1: around all); checks store_at."""
    around = loops_around(state, stage)
    at = stage.store or stage.attach
    if at.kind == "root":
        return around[-1][0], -1
    host = state.stages[at.stage]
    wanted = (host.id, host.leaves.index(at.loop) if at.loop in host.leaves else -1)
    if wanted not in around:
        inside = ", ".join(
            state.loop_label(state.stages[sid], state.stages[sid].leaves[p]) for sid, p in around
        )
        refuse(
            "store_at",
            at.step,
            f"loop {state.loop_label(host, at.loop)!r} is not around the place where "
            f"{state.label(stage.id)!r} is computed; name one of {inside}",
        )
    return wanted
