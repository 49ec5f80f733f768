"""Layout of the results of stages with unknown factors, and movement of accesses there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright import dtypes
from loopwright.cost.symbolic.index_steps import LoopKey, Move, SteppedIndex
from loopwright.cost.symbolic.symbols import Number, Sym, product
from loopwright.ir.kinds import Scope
from loopwright.schedule.state import LayoutDim, StageId, StageState
from loopwright.te.op_node import OpNode


@dataclass(frozen=True, slots=True)
class BufferDim:
    """One dimension of a buffer: extent, stride in elements, and its digit of an index."""

    extent: Number
    stride: Number
    source: LayoutDim


@dataclass(frozen=True, slots=True)
class NestBuffer:
    """Memory of the elements of a stage, or of an input."""

    stage: StageId
    dims: tuple[BufferDim, ...]
    itemsize: int
    scope: Scope  # as `loopwright.schedule.bounds.launches.memory_scope` decides for kernels
    #: loops outside of which it does not exist: they never move an address
    within: frozenset[LoopKey]
    places: Number = 1  # iterations with a place of their own in it (`double_buffer`)
    all_bytes: int = 0  # bytes of an element, with those of the other outputs of the stage
    row_major: bool = False  # it lies as its tensor does, whatever factors are chosen
    #: it is an input, made by the caller: NumPy's arrays begin anywhere in a cache line
    given: bool = False

    def rows_apart(self) -> list[int]:
        """Bytes between neighbours in each dimension but the last, of those that have any; none
        where they depend on factors.
        """
        dims = self.dims[:-1] if self.row_major else ()
        strides = [d.stride for d in dims if not (isinstance(d.extent, int) and d.extent == 1)]
        return [n * self.itemsize for n in strides if isinstance(n, int)]

    @property
    def elements(self) -> Number:
        return product(d.extent for d in self.dims)

    @property
    def allocated(self) -> Number:
        """Allocated bytes: gaps, places and the other outputs of its stage included."""
        whole = self.dims[0].stride * self.dims[0].extent if self.dims else 1
        return whole * self.places * self.all_bytes


@dataclass(frozen=True, slots=True)
class Access:
    """Load or store of a stage; ``moves`` has the movement of each dimension of the buffer."""

    buffer: NestBuffer
    write: bool
    moves: tuple[tuple[Move, ...], ...]


def buffer_of(
    stage: StageState, shape: Sequence[Number], op: OpNode, within: frozenset[LoopKey]
) -> NestBuffer:
    """Buffer of a stage for a region of ``shape``, which lives inside the loops ``within``."""
    sources: Sequence[LayoutDim] = [(d, 1, None) for d in range(len(shape))]
    if stage.layout is not None:
        sources = stage.layout
    whole = [SteppedIndex(0, (Move((stage.id, f"a{d}"), 1, n),)) for d, n in enumerate(shape)]
    aligned = {dim: (factor, offset) for dim, factor, offset in stage.align}
    dims: list[BufferDim] = []
    stride: Number = 1
    for d, source in reversed(list(enumerate(sources))):
        lo, hi = _placed(source, whole).span()
        extent = hi - lo + 1
        if d in aligned:
            factor, offset = aligned[d]
            stride = stride + (offset - stride) % factor
        dims.insert(0, BufferDim(extent, stride, source))
        stride = stride * extent
    size, every = dtypes.nbytes(op.dtype), sum(map(dtypes.nbytes, op.dtypes))
    return NestBuffer(stage.id, tuple(dims), size, stage.scope, within, all_bytes=every)


def _placed(source: LayoutDim, indices: Sequence[SteppedIndex]) -> SteppedIndex:
    """Dimension of a layout, from the indices of an element."""
    match source:
        case int() | Sym():
            return SteppedIndex(source, ())
        case str():
            return indices[int(source[1:])]
        case ("+", a, b):
            return _placed(a, indices) + _placed(b, indices)
        case ("*", a, k):
            return _placed(a, indices).times(k)
        case ("//", a, k):
            return _placed(a, indices).digit(k, None)
        case ("%", a, k):
            return _placed(a, indices).digit(1, k)
        case (int(d), div, mod):
            whole = mod is None and isinstance(div, int) and div == 1
            return indices[d] if whole else indices[d].digit(div, mod)


def access_of(buffer: NestBuffer, indices: Sequence[SteppedIndex | None], write: bool) -> Access:
    """Load or store at some indices; None where one is no sum of steps."""
    still = SteppedIndex(0, ())
    moving = [still if x is None else x.without(buffer.within) for x in indices]
    return Access(buffer, write, tuple(_placed(dim.source, moving).moves for dim in buffer.dims))
