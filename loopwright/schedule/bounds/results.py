"""Results of bound inference: loops, regions and guards of stages, launch axes of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loopwright.errors import InternalError
from loopwright.ir.affine import Affine, Extent, Interval, SizeRanges
from loopwright.ir.expr import Expr, Var
from loopwright.ir.kinds import Scope
from loopwright.ir.sizes import Sizes
from loopwright.ir.visitor import free_vars
from loopwright.schedule.state import Loop, LoopMark, StageId, StageState, State
from loopwright.te import OpNode


@dataclass(eq=False)
class LoopBound:
    loop: Loop
    var: Var
    extent: Extent
    mark: LoopMark | None
    #: Iterations in the copy of the nest that is being written, where that is for tiles at an edge;
    #: None: all.
    shortened: int | None = None

    @property
    def written(self) -> Extent:
        """Iterations in the copy of the nest that is being written."""
        return self.extent if self.shortened is None else self.shortened

    @property
    def count(self) -> int:
        """Extent of a loop that is written out, which `validate` found to be constant."""
        if not isinstance(self.extent, int):
            raise InternalError(f"loop {self.loop.name!r} has no constant extent: {self.extent}")
        return self.extent


@dataclass(eq=False)
class Guard:
    """A condition under which a statement runs: ``value < below``, and ``value >= 0``."""

    value: Affine
    kind: str  #: use of the loop behind the value: ``"spatial"``, ``"reduce"`` or ``"thread"``
    #: The bound; None where the value is known to stay below it.
    below: Extent | None
    nonnegative: bool = False  #: whether ``value >= 0`` has to be tested too


@dataclass(eq=False)
class LaunchAxis:
    """One launch axis: its variable, its extent (0: not known yet) and the loop that gave it."""

    tag: str
    var: Var
    extent: Extent = 0
    stage: StageId = -1
    loop: str = ""

    @property
    def is_thread(self) -> bool:
        """True for threadIdx, False for blockIdx."""
        return self.tag.startswith("threadIdx")


@dataclass(eq=False)
class KernelLaunch:
    """Launch axes of one kernel: a root stage, and the stages attached inside it."""

    root: StageId
    launches: dict[str, LaunchAxis]  #: axes by tag, in the order of `launches.LAUNCH_TAGS`
    #: Variables that differ between the threads or virtual threads of a block, and the tags that
    #: they depend on.
    varying: dict[Var, frozenset[str]] = field(default_factory=dict)
    #: Variables of loops shorter than their axis, with its tag and their extent.
    short: dict[Var, tuple[str, int]] = field(default_factory=dict)

    def depends(self, var: Var, value: Expr) -> None:
        """Note a definition that may differ between threads."""
        tags = frozenset[str]().union(*(self.varying.get(v, ()) for v in free_vars(value)))
        self.varying |= {var: tags} if tags else {}

    def threads(self) -> list[LaunchAxis]:
        return [x for x in self.launches.values() if x.is_thread]

    def blocks(self) -> list[LaunchAxis]:
        return [x for x in self.launches.values() if not x.is_thread]


def launch_tag(mark: LoopMark | None) -> str:
    """The launch axis that a mark binds a loop to, or ``""`` (also for virtual threads)."""
    return mark.tag if mark and mark.kind == "thread" and mark.tag != "vthread" else ""


@dataclass(eq=False)
class StageBounds:
    """Bounds of one stage, as lowering needs them."""

    stage: StageState
    op: OpNode  #: after inlining
    padded: bool  #: whether its buffer covers what its loops over-run (attached stages)
    sizes: Sizes  #: the size variables of the program, which are known everywhere
    loops: list[LoopBound] = field(default_factory=list)  #: leaves, outermost first
    #: Definitions to make after loop p is entered, at index p + 1 (0: before any loop).
    lets: list[list[tuple[Var, Expr]]] = field(default_factory=list)
    #: Each root axis variable as an affine form over loop and let variables, and its bounds in
    #: iterations that pass the guards.
    values: dict[Var, Affine] = field(default_factory=dict)
    guarded: dict[Var, Interval] = field(default_factory=dict)
    base: list[Affine] = field(default_factory=list)  #: first element of the buffer
    shape: list[Extent] = field(default_factory=list)  #: extents of the buffer, before the layout
    guards: list[Guard] = field(default_factory=list)  #: conditions under which the statement runs
    #: Of padded stages, conditions of each spatial axis that an over-run violates.
    domain: dict[int, list[Guard]] = field(default_factory=dict)
    #: Index of the loop after which a variable is known (-1: outside the stage).
    position: dict[Var, int] = field(default_factory=dict)
    enclosing: set[Var] = field(default_factory=set)  #: variables of the loops around the stage
    kernel: KernelLaunch | None = None
    scope: Scope = "global"  #: of the buffer

    def visible(self, upto: int) -> set[Var]:
        """Variables known inside loop ``upto`` (those around the stage, and sizes, included)."""
        inside = {v for v, p in self.position.items() if p <= upto}
        return self.enclosing | self.sizes.known | inside

    def launch_var(self, x: LoopBound) -> Var | None:
        """The launch variable that a loop takes its iterations from, or None."""
        tag = launch_tag(x.mark) if self.kernel is not None else ""
        return self.kernel.launches[tag].var if self.kernel is not None and tag else None


@dataclass(eq=False)
class Bounds:
    """Bounds of all stages that are computed (inlined ones are gone), and ranges of variables."""

    state: State  #: the schedule's state that they are the bounds of
    stages: dict[StageId, StageBounds]
    ops: Mapping[StageId, OpNode]
    sizes: Sizes
    kernels: Mapping[StageId, KernelLaunch] = field(default_factory=dict)

    @property
    def ranges(self) -> SizeRanges:
        return self.sizes.ranges
