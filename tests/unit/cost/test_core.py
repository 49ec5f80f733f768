"""Register tiles and what a core does for them, against counts made by hand."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.core import LATENCY, MISS, Core
from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.cpu.stage_order import by_arithmetic
from loopwright.schedule import Schedule
from loopwright.target.caches import Caches

MACHINE = Machine(1, Caches(1 << 15, 1 << 20, 1 << 24, 64), 64, 32, 64)


def _core(s: Schedule, machine: Machine = MACHINE) -> Core:
    """Of the stage with the most arithmetic."""
    nests = by_arithmetic(s.state)
    return Core(Touches(nests[0], machine), BufferUsage(nests).resident)


def _matmul(
    rows: int, columns: int, unrolled: tuple[bool, bool] = (True, True), depth: int = 32
) -> Schedule:
    """64 x 64 x depth in tiles of rows x columns, 16 lanes, the reduction outside of the tile."""
    A, B = te.placeholder((64, depth), name="A"), te.placeholder((depth, 64), name="B")
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    i0, i1 = s[C].split(i, factor=rows)
    j0, j1 = s[C].split(j, factor=columns)
    j1, jv = s[C].split(j1, factor=16)
    s[C].reorder(i0, j0, s[C].op.reduce_axis[0], i1, j1, jv)
    for axis, wanted in zip((i1, j1), unrolled, strict=True):
        if wanted:
            s[C].unroll(axis)
    s[C].vectorize(jv)
    return s


def test_a_tile_runs_for_each_step_and_holds_its_results() -> None:
    tile = _core(_matmul(8, 32)).tile
    assert tile.runs == 8 * 2 * 32
    assert tile.held == tile.live == tile.independent == 8 * 2
    assert tile.instructions(64) == 8 * 2
    assert tile.instructions(32) == 8 * 2 * 2


def test_a_loop_of_one_iteration_does_not_end_a_tile() -> None:
    tile = _core(_matmul(8, 16, (True, False))).tile
    assert tile.runs == 8 * 4 * 32
    assert tile.held == 8


def test_results_that_the_loop_outside_moves_are_loaded_and_stored_in_every_run() -> None:
    kept, moved = _core(_matmul(8, 32)), _core(_matmul(8, 32, (False, True)))
    assert kept.results == (0, 64 * 4)
    again, stored = moved.results
    assert again == 64 * 4 * 32
    assert stored == 64 * 4 * 32 + 64 * 4


def test_operands_are_loaded_once_a_run_and_before_loops_that_do_not_move_them() -> None:
    vectors, halves = _core(_matmul(8, 32)).loaded
    assert vectors == halves == 8 * 2 * 32 * (8 + 2)
    # The rows are a loop: the two vectors of B stand before it.
    vectors, _ = _core(_matmul(8, 32, (False, True))).loaded
    assert vectors == 8 * 2 * 32 * (8 + 2)


def test_what_exceeds_the_registers_is_spilled() -> None:
    assert _core(_matmul(8, 32)).spilled == 0
    # 64 results, a vector of B or an element of A, and one more.
    assert _core(_matmul(16, 64)).spilled == 64 + 4 + 1 - 32


def test_one_result_waits_for_itself() -> None:
    core = _core(_matmul(1, 16, depth=512))
    assert core.cycles >= 64 * 64 * 512 / 16 * LATENCY
    # Sums this short are made ahead of one another.
    assert _core(_matmul(1, 16, depth=4)).cycles < 64 * 64 * 4 / 16 * LATENCY


def test_narrow_data_paths_take_a_vector_in_two() -> None:
    narrow = Machine(1, MACHINE.caches, 64, 32, 32)
    fast, slow = _core(_matmul(8, 32)), _core(_matmul(8, 32), narrow)
    assert slow.loaded[1] == 8 * 2 * 32 * (8 + 2 * 2)
    assert slow.cycles > 1.9 * fast.cycles


def _padded(inline: bool) -> Schedule:
    X, W = te.placeholder((30, 62), name="X"), te.placeholder((3, 3), name="W")
    P = te.compute(
        (32, 64),
        lambda y, x: te.if_then_else(te.all(y >= 1, y < 31, x >= 1, x < 63), X[y - 1, x - 1], 0.0),
        name="P",
    )
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    Y = te.compute((30, 62), lambda y, x: te.sum(P[y + r, x + q] * W[r, q], axis=[r, q]), name="Y")
    s = te.create_schedule(Y.op)
    y, x = s[Y].op.axis
    s[Y].reorder(y, r, q, x)
    s[Y].vectorize(x)
    if inline:
        s[P].compute_inline()
    return s


def test_inlined_padding_tests_where_its_indices_move() -> None:
    tests, guarded = _core(_padded(True)).guards
    # One range of y a run of (y, r), one of x for 64 lanes a run, and one read each.
    assert guarded == 30 * 9
    assert tests == 30 * 3 * 2 + 30 * 9 * 8 * 4


def test_padding_that_is_a_stage_needs_no_tests_in_the_main_one() -> None:
    assert _core(_padded(False)).guards == (0, 0)


@pytest.mark.parametrize("unroll", [False, True])
def test_a_buffer_is_registers_where_no_loop_moves_its_index(unroll: bool) -> None:
    A = te.placeholder((64, 32), name="A")
    k = te.reduce_axis((0, 32), name="k")
    B = te.compute((64,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((64,), lambda i: B[i] + 1.0, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(s[C].op.axis[0], factor=4)
    s[B].compute_at(s[C], outer)
    if unroll:
        s[C].unroll(inner)
        s[B].unroll(s[B].op.axis[0])
    nests = by_arithmetic(s.state)
    buffers = {a.buffer.stage: a.buffer for n in nests for a in n.accesses}
    found = BufferUsage(nests)
    assert found.resident(buffers[nests[0].stage.id]) == int(unroll)
    assert found.used == (64 * 32 + 64) * 4


def _transposed(unroll: bool) -> Schedule:
    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    i0, i1 = s[B].split(i, factor=16)
    j0, j1 = s[B].split(j, factor=16)
    s[B].reorder(i0, j0, i1, j1)
    if unroll:
        s[B].unroll(i1)
    s[B].vectorize(j1)
    return s


def test_squares_that_are_turned_are_loaded_as_vectors_else_as_elements() -> None:
    assert _core(_transposed(True)).loaded[0] == 64 * 64 / 16
    assert _core(_transposed(False)).loaded[0] == 64 * 64


@pytest.mark.parametrize(("row", "cost"), [(1000, 1), (1024, MISS)])
def test_rows_a_power_of_two_apart_miss_the_first_cache(row: int, cost: int) -> None:
    A, B = te.placeholder((64, row), name="A"), te.placeholder((row, 16), name="B")
    k = te.reduce_axis((0, row), name="k")
    C = te.compute((64, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    i0, i1 = s[C].split(i, factor=16)
    s[C].reorder(i0, k, i1, j)
    s[C].unroll(i1)
    s[C].vectorize(j)
    core = _core(s)
    # Sixteen rows of A, and a vector of B.
    assert core.loaded[1] == 4 * row * (16 * cost + 1)
