"""What the model says of spilled sums, beside compiled code, of narrow pieces of many rows, and of
pages, beside a memory of the pages that were used last."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace

import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.cpu.core import Core
from loopwright.cost.cpu.cycles import COLD, JUMP_MEMORY, MEMORY, PAGES, MemoryModel, cycles
from loopwright.cost.cpu.footprint import PAGE, STREAMS, BufferUsage, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.loop_nest import nests_of
from loopwright.target.hardware import Caches

MACHINE = Machine(1, Caches(1 << 15, 1 << 20, 1 << 24, 64), 64, 32, 64)


@pytest.mark.parametrize(
    ("columns", "tile", "unroll"),
    [(24, (14, 32), 1), (24, (14, 32), 2), (24, (10, 32), 2), (24, (12, 32), 4), (32, (14, 32), 4)],
)
def test_sums_spill_where_they_do_in_compiled_code(
    columns: int, tile: tuple[int, int], unroll: int
) -> None:
    # 24 columns are vectors of 16 and of 8 lanes, of which those of all steps are loaded first.
    A, B = te.placeholder((64, 96), name="A"), te.placeholder((96, columns), name="B")
    k = te.reduce_axis((0, 96), name="k")
    C = te.compute((64, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    task = lw.create_task([A, B, C], target="llvm -mcpu=x86-64-v4 -num-threads=1")
    (structure,) = (s for s in task.structures if s.name == "i x j, B as it is, vectors outside")
    space = structure.config_space
    values = dict(space.get(space.default_index).values)
    values |= {"tile": list(tile), "row_block": 1, "vector_block": 1, "unroll": unroll}
    s, args = structure.instantiate(space.get(space.find(values)))
    code = str(lw.build(s, args, task.target).get_source("asm"))
    # The loop with the most products; a spilled sum is stored on the stack in it.
    loop = max(re.split(r"^\.?\w+:", code, flags=re.MULTILINE), key=lambda x: x.count("vfmadd"))
    spilled = re.search(r"vmov\w+\s+%[xyz]mm\d+, -?\d*\(%r[sb]p", loop) is not None
    nests = nests_of(s.state)
    (sums,) = (nest for nest in nests if nest.op.reduction is not None)
    core = Core(Touches(sums, MACHINE), BufferUsage(nests).resident)
    assert bool(core.spilled) is spilled


@pytest.mark.parametrize(("steps", "columns"), [(16, 64), (16, 512), (512, 512)])
def test_narrow_pieces_of_many_rows_take_longer(steps: int, columns: int) -> None:
    # Four rows times a matrix of 16 MB, in blocks of steps by columns: as many rows as are read as
    # streams, along as much of them as a block has; more rows are read a vector at a time.
    n = 2048
    A, B = te.placeholder((4, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((4, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    j0, j1 = s[C].split(j, factor=columns)
    j1, jv = s[C].split(j1, factor=16)
    k0, k1 = s[C].split(s[C].op.reduce_axis[0], factor=steps)
    s[C].reorder(j0, k0, j1, k1, i, jv)
    s[C].unroll(i)
    s[C].vectorize(jv)
    nests = nests_of(s.state)
    touches = Touches(nests[0], MACHINE)
    cycles_here = MemoryModel([touches], BufferUsage(nests)).cycles(touches)
    # What is read once comes in whole lines, whatever the order.
    least = n * n * 4 / MEMORY
    pieces_of = n * n // (columns if steps <= STREAMS else 16)
    assert cycles_here == pytest.approx(least + pieces_of * JUMP_MEMORY, rel=0.1)


def test_weights_are_waited_for_but_for_the_panels_that_are_prefetched() -> None:
    rows, steps, columns, width = 7, 512, 256, 32
    A = te.placeholder((rows, steps), name="A")
    B = te.placeholder((steps, columns), name="B", constant=True)
    k = te.reduce_axis((0, steps), name="k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    task = lw.create_task([A, B, C], target="llvm -mcpu=x86-64-v4 -num-threads=1")
    (structure,) = (
        s for s in task.structures if s.name == "i x j, B packed at root, vectors outside"
    )
    space = structure.config_space
    values = dict(space.get(space.default_index).values) | {"tile": [rows, width]}

    def predicted(panels: int, ahead: int, threads: int = 1, *, known: bool = True) -> float:
        choice = values | {"vector_block": panels, "ahead": ahead}
        s, _ = structure.instantiate(space.get(space.find(choice)))
        weights = [sid for sid, stage in s.state.stages.items() if stage.op.constant]
        machine = replace(MACHINE, threads=threads)
        return float(cycles(s.state, machine, weights if known else ()))

    wait = steps * columns * 4 * COLD
    panels = columns // width
    assert predicted(1, 0) - predicted(1, 1) == pytest.approx(wait * (1 - 1 / panels), rel=0.1)
    shared = predicted(1, 0, threads=2) - predicted(1, 1, threads=2)
    assert shared == pytest.approx(wait * (1 - 2 / panels) / 2, rel=0.1)
    # One task has no next panel; what is no weight may be in the cache from the last call.
    assert predicted(panels, 0) == predicted(panels, 1)
    assert predicted(1, 0, known=False) == predicted(1, 1, known=False)


@pytest.mark.parametrize(("steps", "width"), [(32, 1024), (128, 1024), (300, 1024), (300, 256)])
def test_pages_are_gone_on_to_as_by_a_memory_of_those_used_last(steps: int, width: int) -> None:
    # Tiles of 4 rows times 16 columns of a matrix whose rows are a page apart, or a quarter of one.
    rows, columns = 12, 16
    A, B = te.placeholder((rows, steps), name="A"), te.placeholder((steps, width), name="B")
    k = te.reduce_axis((0, steps), name="k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    (i, j), (k,) = s[C].op.axis, s[C].op.reduce_axis
    i0, i1 = s[C].split(i, factor=4)
    s[C].reorder(i0, k, i1, j)
    touches = Touches(nests_of(s.state)[0], MACHINE)
    used: OrderedDict[tuple[str, int], None] = OrderedDict()
    missing = 0
    for row, step, each in (
        (r, s, x) for r in range(0, rows, 4) for s in range(steps) for x in range(4)
    ):
        at = row + each
        for buffer, place in (
            ("A", at * steps + step),
            ("B", step * width),
            ("C", at * columns),
        ):
            page = (buffer, place * 4 // PAGE)
            missing += page not in used
            used[page] = None
            used.move_to_end(page)
            if len(used) > PAGES:
                used.popitem(last=False)
    assert abs(touches.page_moves(PAGES) - missing) <= PAGES
