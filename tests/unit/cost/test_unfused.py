"""Fused parallel loops are judged as the loops that they were made of, as a cache sees them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from loopwright import te
from loopwright.cost.cpu.cycles import unfused
from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.symbolic.loop_nest import nests_of
from loopwright.schedule import Schedule
from loopwright.target import Target

TARGET = Target("llvm -num-threads=2")
ROWS, COLUMNS, STEPS = 32, 24, 64
LINE = 64


def tiled(order: str, row_tile: int = 4, column_tile: int = 2, fused: bool = True) -> Schedule:
    """A product of rows in tiles; tiles of ``order[0]`` outside of those of ``order[1]``."""
    A = te.placeholder((ROWS, STEPS), name="A")
    B = te.placeholder((COLUMNS, STEPS), name="B")
    k = te.reduce_axis(STEPS, name="k")
    C = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    (i, j), (k,) = s[C].op.axis, s[C].op.reduce_axis
    io, ii = s[C].split(i, factor=row_tile)
    jo, ji = s[C].split(j, factor=column_tile)
    outer = {"i": io, "j": jo}
    s[C].reorder(*(outer[x] for x in order), k, ii, ji)
    if fused:
        s[C].parallel(s[C].fuse(*(outer[x] for x in order)))
    return s


def misses(order: str, capacity: int, row_tile: int = 4, column_tile: int = 2) -> int:
    """Bytes that come into a cache of least recently used lines while the tiles run in turn."""
    cache: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    count = 0
    tiles = {"i": ROWS // row_tile, "j": COLUMNS // column_tile}
    for first in range(tiles[order[0]]):
        for second in range(tiles[order[1]]):
            at = dict(zip(order, (first, second), strict=True))
            for k in range(STEPS):
                touched = [("A", at["i"] * row_tile + x, k * 4 // LINE) for x in range(row_tile)]
                touched += [
                    ("B", at["j"] * column_tile + x, k * 4 // LINE) for x in range(column_tile)
                ]
                for line in touched:
                    count += line not in cache
                    cache[line] = None
                    cache.move_to_end(line)
                    if len(cache) * LINE > capacity:
                        cache.popitem(last=False)
    return count * LINE


def loads(s: Schedule, capacity: int) -> Any:
    """Bytes of loads beyond a cache of so many bytes, by the model."""
    (nest,) = nests_of(unfused(s.state))
    t = Touches(nest, machine_of(TARGET)).without_store()
    return t.traffic(capacity)


@pytest.mark.parametrize("order", ["ij", "ji"])
@pytest.mark.parametrize("capacity", [3 << 10, 9 << 10, 20 << 10])
def test_what_the_inner_loop_touches_again_counts_again(order: str, capacity: int) -> None:
    # A row is four lines: tiles are 1.5 kB, all rows of A 8 kB, those of B 6 kB.
    assert loads(tiled(order), capacity) == pytest.approx(misses(order, capacity), rel=0.05)


def test_a_stage_that_reads_nothing_brings_nothing() -> None:
    B = te.compute((8, 64), lambda i, j: te.const(1.0, "float32"), name="B")
    (nest,) = nests_of(te.create_schedule(B.op).state)
    t = Touches(nest, machine_of(TARGET)).without_store()
    assert t.traffic(1 << 15) == t.page_moves(64) == 0


def test_a_state_without_fused_parallel_loops_stays_the_one_it_is() -> None:
    state = tiled("ij", fused=False).state
    assert unfused(state) is state


def test_a_stage_at_a_fused_loop_is_then_at_the_inner_one() -> None:
    A = te.placeholder((ROWS, COLUMNS, 8), name="A")
    B = te.compute(A.shape, lambda i, j, c: A[i, j, c] + 1, name="B")
    C = te.compute(A.shape, lambda i, j, c: B[i, j, c] * 2, name="C")
    s = te.create_schedule(C.op)
    i, j, _ = s[C].op.axis
    fused = s[C].fuse(i, j)
    s[C].parallel(fused)
    s[B].compute_at(s[C], fused)
    inner, outer = nests_of(unfused(s.state))
    assert [x.extent for x in outer.loops] == [ROWS, COLUMNS, 8]
    assert [x.extent for x in inner.loops] == [ROWS, COLUMNS, 1, 1, 8]
    assert [x.mark for x in outer.loops] == ["parallel", "parallel", ""]
