"""Chunks of a device's memory, cut into blocks: first fit, with splitting and coalescing.

The blocks of a chunk lie beside each other and know their neighbours, so that a block that becomes
free joins those on both sides (boundary tags, as in Knuth, The Art of Computer Programming, 2.5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from loopwright.runtime.devices.interface import Memory, Stream
from loopwright.runtime.memory.pool import Lease


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a chunk, with its neighbours in the chunk."""

    chunk: Chunk
    #: Bytes from the chunk's beginning.
    offset: int
    size: int
    #: The holder's lease; None where the block is free.
    lease: Lease | None = None
    #: Of a free block: streams in which work that uses it may be queued.
    streams: dict[int, Stream] = field(default_factory=dict)
    before: Block | None = None
    after: Block | None = None


def _offset(block: Block) -> int:
    return block.offset


class Chunk:
    """Memory that a pool has from its device in one piece."""

    __slots__ = ("_first", "free", "memory")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._first = Block(self, 0, memory.nbytes)
        self.free = [self._first]

    @property
    def unused(self) -> bool:
        """Whether nobody holds a block of it."""
        return len(self.free) == 1 and self.free[0].size == self.memory.nbytes

    def blocks(self) -> Iterator[Block]:
        """All blocks in the order of their addresses."""
        block: Block | None = self._first
        while block is not None:
            yield block
            block = block.after

    def take(self, block: Block, size: int) -> None:
        """Take the first bytes of a free block; the rest stays free."""
        position = bisect_left(self.free, block.offset, key=_offset)
        if block.size == size:
            del self.free[position]
            return
        rest = Block(
            self, block.offset + size, block.size - size, None, dict(block.streams), block,
            block.after,
        )  # fmt: skip
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self.free[position] = rest

    def give(self, block: Block) -> None:
        """Make a block free, and join it with its free neighbours."""
        position = bisect_left(self.free, block.offset, key=_offset)
        self.free.insert(position, block)
        if block.after is not None and block.after.lease is None:
            self._join(block, block.after, position + 1)
        if block.before is not None and block.before.lease is None:
            self._join(block.before, block, position)

    def _join(self, block: Block, after: Block, position: int) -> None:
        """Join two free neighbours; ``position`` is that of the second in the free list."""
        block.size += after.size
        block.streams.update(after.streams)
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        del self.free[position]
