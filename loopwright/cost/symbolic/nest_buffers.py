"""Where the elements of stages lie while factors need not be known, and how accesses move there."""

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
    """One dimension of a buffer: extent, stride in elements, and which digit of an index it is."""

    extent: Number
    stride: Number
    source: LayoutDim


@dataclass(frozen=True, slots=True)
class NestBuffer:
    """Where the elements of a stage, or of an input, lie.

    ``within`` are the loops outside of which it does not exist: they never move an address.
    ``scope`` is where it lies, as `loopwright.schedule.bounds.launches.memory_scope` decides for
    kernels. ``places`` is how many iterations have a place of their own in it (`double_buffer`),
    ``all_bytes`` what an element takes with those of the other outputs of the stage. ``row_major``
    says that it lies as its tensor does, whatever factors are chosen, ``given`` that it is an
    input, which the caller made: NumPy's arrays begin anywhere in a cache line.
    """

    stage: StageId
    dims: tuple[BufferDim, ...]
    itemsize: int
    scope: Scope
    within: frozenset[LoopKey]
    places: Number = 1
    all_bytes: int = 0
    row_major: bool = False
    given: bool = False

    def rows_apart(self) -> list[int]:
        """Bytes between neighbours in each dimension but the last, of those that have any; none
        where they depend on factors."""
        dims = self.dims[:-1] if self.row_major else ()
        strides = [d.stride for d in dims if not (isinstance(d.extent, int) and d.extent == 1)]
        return [n * self.itemsize for n in strides if isinstance(n, int)]

    @property
    def elements(self) -> Number:
        """Number of elements."""
        return product(d.extent for d in self.dims)

    @property
    def allocated(self) -> Number:
        """Bytes that it takes: gaps, places and the other outputs of its stage included."""
        whole = self.dims[0].stride * self.dims[0].extent if self.dims else 1
        return whole * self.places * self.all_bytes


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of a stage.

    ``moves`` has, for each dimension of the buffer, how it moves with loops.
    """

    buffer: NestBuffer
    write: bool
    moves: tuple[tuple[Move, ...], ...]


def buffer_of(
    stage: StageState, shape: Sequence[Number], op: OpNode, within: frozenset[LoopKey]
) -> NestBuffer:
    """The buffer of a stage.

    Args:
        stage: its layout and the gaps in it.
        shape: extents of what it holds.
        op: the operation.
        within: the loops outside of which it does not exist.
    """
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
    """A dimension of a layout, from the indices of an element."""
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
    """A load or store at some indices; None for one that is no sum of steps."""
    still = SteppedIndex(0, ())
    moving = [still if x is None else x.without(buffer.within) for x in indices]
    return Access(buffer, write, tuple(_placed(dim.source, moving).moves for dim in buffer.dims))
