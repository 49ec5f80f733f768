"""Kernels of an expression: the parts of it that each run as one loop nest.

A kernel ends in a tensor that lies in memory: one reduction with elementwise stages behind it, a
chain of reductions over rows, or no reduction at all. The fusion is that of graph compilers (Chen
et al., OSDI 2018), derived from access maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from loopwright import te
from loopwright.ir.expr import Call
from loopwright.ir.visitor import contains, nodes
from loopwright.space.analysis import StageAnalysis, analyze
from loopwright.space.expression import expressions, is_computed, is_own


@dataclass(frozen=True)
class RowChain:
    """Chain of reductions over rows: softmax, layer normalisation, a norm, one reduction."""

    out: te.Tensor  # a number a row, or a row
    #: numbers of each row, reduced from something over all of it; in order
    reductions: tuple[te.Tensor, ...]
    whole: tuple[te.Tensor, ...] = ()  # intermediate rows
    single: tuple[te.Tensor, ...] = ()  # numbers computed from such numbers
    #: whether every operand of a reduction stands still along its last loop, or runs along memory
    #: with it
    along_memory: bool = False

    @property
    def rank(self) -> int:
        return len(self.reductions[0].shape)


def row_chain(out: te.Tensor, stages: Sequence[StageAnalysis] | None = None) -> RowChain | None:
    """Chain in an expression, or None: all reductions have one shape, which the result begins with,
    and every stage reads others at its own row. ``stages`` are those of the chain, inputs first;
    None for all that the result needs."""
    stages = analyze(out) if stages is None else stages
    chain = [s.tensor for s in stages]
    reductions = [s for s in stages if s.reduced]
    if not reductions or not reductions[0].tensor.shape:
        return None
    shape = reductions[0].tensor.static_shape
    if any(r.tensor.static_shape != shape for r in reductions):
        return None
    for s in stages:
        row = s.spatial[: len(shape)]
        own = [o.access.dims for o in s.operands if o.tensor in chain]
        pairs = [pair for dims in own for pair in zip(dims, row, strict=False)]
        if len(row) < len(shape) or not all(is_own(dim, x) for dim, x in pairs):
            return None
    reduced = {r.tensor for r in reductions}
    below = [t for t in chain if t is not out and t not in reduced]
    return RowChain(
        out,
        tuple(r.tensor for r in reductions),
        tuple(t for t in below if t.static_shape != shape),
        tuple(t for t in below if t.static_shape == shape),
        all(map(runs_along_memory, reductions)),
    )


def runs_along_memory(stage: StageAnalysis) -> bool:
    """Whether the last loop moves every operand of a reduction along memory, or not at all."""
    last = stage.reduced[-1]
    moved = [o.strides.get(last) for o in stage.operands if o.access.moves_with(last)]
    return bool(moved) and all(stride == 1 for stride in moved)


#: Nodes, and nested stages, that an expression may grow to by inlining: compilers take long for
#: more, and walk it by recursion.
_MOST_NODES, _MOST_DEPTH = 400, 24
#: Stages in a row of which each reads the one before at several places, in one kernel.
_MOST_SPREAD = 4
_CHEAP = 12  #: nodes of a stage that is recomputed in every kernel that reads it, rather than kept


@dataclass(frozen=True, eq=False)
class Kernel:
    """Part of an expression that runs as one loop nest.

    Example:
        >>> A, B = te.placeholder((8, 4), name="A"), te.placeholder((4, 8), name="B")
        >>> C = lw.ops.matmul_compute(A, B)
        >>> D = te.compute((8, 8), lambda i, j: te.max(C[i, j], 0), name="D")
        >>> seen = set()
        >>> @lw.space_rule("example/watch", scope="kernel")
        ... def watch(kernel):
        ...     seen.add((*(t.name for t in kernel.tensors), str(kernel.single.kind)))
        ...
        >>> task = lw.create_task(D, target="llvm")
        >>> print(seen)
        {('C', 'D', 'contraction')}
        >>> lw.space.remove_rule("example/watch")
    """

    out: te.Tensor  #: its result in memory
    #: The stages that it computes, inputs first, that of ``out`` last.
    stages: tuple[StageAnalysis, ...]

    @cached_property
    def tensors(self) -> tuple[te.Tensor, ...]:
        """Computed tensors, inputs first."""
        return tuple(s.tensor for s in self.stages)

    @cached_property
    def reductions(self) -> tuple[StageAnalysis, ...]:
        """Its reductions, in order."""
        return tuple(s for s in self.stages if s.reduced)

    @cached_property
    def chain(self) -> RowChain | None:
        """The kernel as a chain over rows along memory, or None."""
        if self._has_tuples:
            return None
        chain = row_chain(self.out, [s for s in self.stages if s.tensor not in self.numbers])
        return chain if chain is not None and chain.along_memory else None

    @cached_property
    def numbers(self) -> tuple[te.Tensor, ...]:
        """Intermediate tensors without dimensions, such as factors, which no loop moves."""
        loops = {s.tensor: bool(s.spatial or s.reduced) for s in self.stages}
        return tuple(t for t in self.tensors if not loops[t] and t is not self.out)

    @cached_property
    def single(self) -> StageAnalysis | None:
        """Its one reduction, over which ``out`` is elementwise, or None."""
        if len(self.reductions) != 1 or self._has_tuples:
            return None
        points = {self.reductions[0].tensor}
        for s in self.stages:
            inside = {o.tensor for o in s.operands if o.tensor in points}
            if not all(_reads_own_point(s, t) for t in inside):
                return None
            points |= {s.tensor} if inside else set()
        return self.reductions[0] if self.out in points else None

    @cached_property
    def _has_tuples(self) -> bool:
        return any(t.op.num_outputs > 1 for t in self.tensors)

    @cached_property
    def grown(self) -> int:
        """Nodes of the result as one expression."""
        nodes: dict[te.Tensor, int] = {}
        for s in self.stages:
            inner = (nodes[o.tensor] for o in s.operands if o.tensor in nodes)
            nodes[s.tensor] = _nodes(s.tensor.op) + sum(inner)
        return nodes[self.out]

    @property
    def may_inline(self) -> bool:
        """Whether all of it may be one expression: compilers take long for a large one."""
        return self.grown <= _MOST_NODES

    @property
    def work(self) -> int:
        """Points of all its loops together; of a scan those of its result."""
        return sum(s.work for s in self.stages)

    def computes(self, tensor: te.Tensor) -> bool:
        """Whether a tensor is computed on the way."""
        return tensor in self.tensors


def kernels(outputs: Sequence[te.Tensor]) -> list[Kernel]:
    """Kernels of an expression in execution order, which together compute every stage. A cheap
    stage may be in several. All ``outputs`` lie in memory."""
    return _Partition(outputs).kernels()


@dataclass(frozen=True)
class _Growth:
    """Size of an expression in which every stage is computed where it is read."""

    nodes: int
    depth: int = 1  # nested stages
    spread: int = 0  # stages in a row that are read at several places

    def fits(self) -> bool:
        small = self.nodes <= _MOST_NODES and self.depth <= _MOST_DEPTH
        return small and self.spread <= _MOST_SPREAD


class _Partition:
    """Walks stages inputs first, and decides which of them lie in memory. Invariant: the part from
    memory to any walked stage is a kernel that rules know."""

    def __init__(self, outputs: Sequence[te.Tensor]) -> None:
        self._stages = {s.tensor: s for s in analyze(outputs)}
        self._roots = set(outputs)
        self._growth: dict[te.Tensor, _Growth] = {}
        for s in self._stages.values():
            self._enter(s)
        while shared := self._shared():
            self._roots |= shared

    def kernels(self) -> list[Kernel]:
        """Kernel for every tensor in memory; one for all outputs of a stage."""
        ends: dict[te.Operation, te.Tensor] = {}
        for t in self._stages:
            if t in self._roots:
                ends.setdefault(t.op, t)
        return [self._kernel(t) for t in ends.values()]

    def _kernel(self, out: te.Tensor) -> Kernel:
        members: set[te.Tensor] = set()
        pending = [out]
        while pending:
            t = pending.pop()
            members.add(t)
            pending += [x for x in self._inner(t) if x not in members]
        return Kernel(out, tuple(s for t, s in self._stages.items() if t in members))

    def _inner(self, t: te.Tensor) -> list[te.Tensor]:
        """Stages that a stage computes where it reads them."""
        return [x for x in t.op.input_tensors if is_computed(x) and x not in self._roots]

    def _enter(self, stage: StageAnalysis) -> None:
        t = stage.tensor
        if t.op.num_outputs > 1:
            self._roots |= {t, *self._inner(t)}
        if not self._is_known(t):
            # Inputs that need reductions lie in memory; where the stage is elementwise behind
            # several, all but the one with the most work.
            needing = [x for x in self._inner(t) if self._kernel(x).reductions]
            needing.sort(key=lambda x: self._kernel(x).work)
            self._roots |= set(needing[:-1])
            if needing and not self._is_known(t):
                self._roots.add(needing[-1])
        growth = self._grown(stage)
        kernel = self._kernel(t)
        if not growth.fits() or (kernel.reductions and not kernel.may_inline):
            self._roots |= set(self._inner(t))
            growth = self._grown(stage)
        self._growth[t] = replace(growth, nodes=1) if stage.reduced else growth

    def _is_known(self, t: te.Tensor) -> bool:
        kernel = self._kernel(t)
        return not kernel.reductions or kernel.single is not None or kernel.chain is not None

    def _grown(self, stage: StageAnalysis) -> _Growth:
        inner = set(self._inner(stage.tensor))
        reads = [o.tensor for o in stage.operands if o.tensor in inner]
        grown = [self._growth[t] for t in inner]
        several = [t for t in inner if reads.count(t) > 1]
        # A stage that is read at several places may be kept for a tile: then it does not grow.
        nodes = sum(self._growth[t].nodes for t in inner if t not in several)
        spreads = bool(several) or bool(inner and stage.reduced)
        return _Growth(
            _nodes(stage.tensor.op) + nodes,
            1 + max((g.depth for g in grown), default=0),
            spreads + max((g.spread for g in grown), default=0),
        )

    def _shared(self) -> set[te.Tensor]:
        """Stages that several kernels need, unless they are cheap."""
        first: dict[te.Tensor, te.Tensor] = {}
        return {
            t
            for kernel in self.kernels()
            for t in kernel.tensors[:-1]
            if first.setdefault(t, kernel.out) is not kernel.out and not self._is_cheap(t)
        }

    def _is_cheap(self, t: te.Tensor) -> bool:
        large = self._stages[t].reduced or self._inner(t) or _nodes(t.op) > _CHEAP
        return not large and not any(contains(e, Call) for e in expressions(t.op))


def _nodes(op: te.Operation) -> int:
    return sum(1 for e in expressions(op) for _ in nodes(e))


def _reads_own_point(reader: StageAnalysis, tensor: te.Tensor) -> bool:
    """Whether a stage reads a tensor at its own point alone."""
    if reader.reduced or reader.tensor.shape != tensor.shape:
        return False
    reads = [o.access.dims for o in reader.operands if o.tensor is tensor]
    return all(is_own(dim, x) for d in reads for dim, x in zip(d, reader.spatial, strict=True))
