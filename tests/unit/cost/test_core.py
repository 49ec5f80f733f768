"""Register tiles and what a core does for them, against counts made by hand."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.cost.cpu import cycles
from loopwright.cost.cpu.arithmetic import by_arithmetic
from loopwright.cost.cpu.core import LATENCY, Core
from loopwright.cost.cpu.cycles import MemoryModel
from loopwright.cost.cpu.footprint import MISPLACED, BufferUsage, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.cpu.register_tile import pieces
from loopwright.cost.symbolic.symbols import Number
from loopwright.schedule import Schedule
from loopwright.target.hardware import Caches
from tests.unit.lowering.int8_programs import packed_matmul, tile

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


def _cut_short(m: int, n: int, rows: int, columns: int) -> Schedule:
    """A product of depth 8 in tiles whose last ones have what is left over, in whole vectors."""
    A, B = te.placeholder((m, 8), name="A"), te.placeholder((8, n), name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    i0, i1 = s[C].split(i, factor=rows)
    j0, j1 = s[C].split(j, factor=columns)
    s[C].reorder(i0, j0, s[C].op.reduce_axis[0], i1, j1)
    s[C].unroll(i1)
    s[C].vectorize(j1)
    s[C].pragma(i1, "loop_partition_hint")
    s[C].pragma(j1, "loop_partition_hint", 16)
    return s


@pytest.mark.parametrize(
    ("shape", "tile", "rows", "columns"),
    [
        ((24, 96), (12, 32), 24, 96),
        ((91, 96), (12, 32), 91, 96),
        ((96, 70), (12, 32), 96, 80),  # 6 lanes take a vector
        ((91, 70), (12, 32), 91, 80),
    ],
)
def test_the_last_tile_takes_what_it_has_of_iterations(
    shape: tuple[int, int], tile: tuple[int, int], rows: int, columns: int
) -> None:
    found = _core(_cut_short(*shape, *tile)).tails.shortened(1)
    whole = -(-shape[0] // tile[0]) * tile[0] * -(-shape[1] // tile[1]) * tile[1]
    assert found == pytest.approx(rows * columns / whole)


def test_a_short_tile_takes_as_long_as_its_sums_wait() -> None:
    """One row of two vectors after two tiles of twelve: eight sums have to be in flight."""
    found = _core(_cut_short(25, 32, 12, 32)).tails.shortened(8)
    assert found == pytest.approx((24 + 24 + 8) / (3 * 24))


def test_tiles_that_end_with_the_result_are_not_tested() -> None:
    assert _core(_cut_short(91, 96, 12, 32)).tails.partial == 0
    assert _core(_cut_short(91, 70, 12, 32)).tails.partial > 0


def test_results_that_the_loop_outside_moves_are_loaded_and_stored_in_every_run() -> None:
    kept, moved = _core(_matmul(8, 32)), _core(_matmul(8, 32, (False, True)))
    assert kept.results == (0, 64 * 4)
    again, stored = moved.results
    assert again == 64 * 4 * 32
    assert stored == 64 * 4 * 32 + 64 * 4


def test_operands_are_loaded_once_a_run_and_before_loops_that_do_not_move_them() -> None:
    vectors, halves = _core(_matmul(8, 32)).loaded
    assert vectors == 8 * 2 * 32 * (8 + 2)
    # A vector of an input may lie across two lines.
    assert halves == 8 * 2 * 32 * (8 + 2 * (1 + MISPLACED))
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
    assert slow.loaded[1] == 8 * 2 * 32 * (8 + 2 * 2 * (1 + MISPLACED / 2))
    assert slow.cycles > 1.9 * fast.cycles


def _padded(inline: bool, unroll: bool = False) -> Schedule:
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
    if unroll:
        s[Y].unroll(r)
        s[Y].unroll(q)
    return s


def test_inlined_padding_tests_where_its_indices_move() -> None:
    guards = _core(_padded(True)).guards
    tests, guarded = guards.tests, guards.reads
    # One range of y a run of (y, r), one of x for 64 lanes a run, and one read each.
    assert guarded == 30 * 9
    assert tests == 30 * 3 * 2 + 30 * 9 * 8 * 4


def test_conditions_that_are_constants_where_code_is_written_out_cost_nothing() -> None:
    guards = _core(_padded(True, unroll=True)).guards
    tests, guarded = guards.tests, guards.reads
    # What columns are let through is known; the rows are a loop, and guard each of the nine reads.
    assert guarded == 30 * 9
    assert tests == 30 * 3 * 2


@pytest.mark.parametrize(("step", "vectors"), [(1, 1), (2, 2), (4, 4), (5, 16)])
def test_lanes_a_few_elements_apart_are_picked_out_of_vectors(step: int, vectors: int) -> None:
    X = te.placeholder((64 * step,), name="X")
    Y = te.compute((64,), lambda i: X[i * step] + 1.0, name="Y")
    s = te.create_schedule(Y.op)
    s[Y].vectorize(s[Y].split(Y.op.axis[0], factor=16)[1])
    core = _core(s)
    assert core.loaded[0] == 4 * vectors
    # Lanes further apart are loaded one by one, and nothing is picked.
    assert core.picked == (4 * vectors if 1 < step < 5 else 0)


def test_a_guarded_place_that_several_rows_read_is_guarded_once() -> None:
    def rows(count: int) -> Core:
        s = _padded(True, unroll=True)
        Y = s.outputs[0].output(0)
        y, x = s[Y].op.axis
        y0, y1 = s[Y].split(y, factor=count)
        s[Y].reorder(y0, *s[Y].op.reduce_axis, y1, x)
        s[Y].unroll(y1)
        return _core(s)

    # Three rows for one, four for two; three shifts of each.
    assert [rows(n).guards.reads for n in (1, 2, 3)] == [30 * 9, 15 * 12, 10 * 15]


def test_vectors_that_a_loop_shifts_lie_across_lines() -> None:
    def across(step: int, machine: Machine = MACHINE) -> Number:
        X, q = te.placeholder((4, 128), name="X"), te.reduce_axis((0, 3), name="q")
        Y = te.compute((4, 64), lambda y, x: te.sum(X[y, x + q * step], axis=q), name="Y")
        s = te.create_schedule(Y.op)
        s[Y].reorder(s[Y].op.axis[0], q, s[Y].op.axis[1])
        s[Y].vectorize(s[Y].op.axis[1])
        core = _core(s, machine)
        return core.loaded[1] / core.loaded[0]

    # By an element, or by 64 bytes: a line. Half a line is a vector of 32 bytes.
    assert (across(1), across(8), across(16)) == (2, 2, 1 + MISPLACED)
    half = Machine(1, MACHINE.caches, 32, 16, 32)
    assert (across(1, half), across(8, half)) == (1.5, 1 + MISPLACED / 2)


@pytest.mark.parametrize(("constant", "more"), [(False, MISPLACED), (True, 0)])
def test_inputs_begin_anywhere_in_a_line_and_what_the_program_holds_does_not(
    constant: bool, more: float
) -> None:
    X, k = (
        te.placeholder((64, 4, 16), name="X", constant=constant),
        te.reduce_axis((0, 4), name="k"),
    )
    Y = te.compute((64, 16), lambda i, x: te.sum(X[i, k, x], axis=k), name="Y")
    s = te.create_schedule(Y.op)
    i, x = s[Y].op.axis
    s[Y].reorder(i, k, x)
    s[Y].vectorize(x)
    (nest,) = by_arithmetic(s.state)
    core, (store, load) = (
        Core(Touches(nest, MACHINE), lambda _: False),
        Touches(nest, MACHINE).accesses,
    )
    assert core.loaded[1] == 64 * 4 * (1 + more)
    # A row of 64 bytes: its line, and of a misplaced one 60 of 64 times a part of the next.
    assert load.lines[2] == pytest.approx(1 + more * 60 / 64)
    assert store.lines[2] == 1


def test_padding_that_is_a_stage_needs_no_tests_in_the_main_one() -> None:
    guards = _core(_padded(False)).guards
    assert (guards.tests, guards.reads, guards.masks) == (0, 0, 0)


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


@pytest.mark.parametrize(("row", "misses"), [(1000, False), (1024, True)])
def test_rows_a_power_of_two_apart_miss_the_first_cache(row: int, misses: bool) -> None:
    A, B = te.placeholder((64, row), name="A"), te.placeholder((row, 16), name="B")
    k = te.reduce_axis((0, row), name="k")
    C = te.compute((64, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    i0, i1 = s[C].split(i, factor=16)
    s[C].reorder(i0, k, i1, j)
    s[C].unroll(i1)
    s[C].vectorize(j)
    (nest,) = by_arithmetic(s.state)
    t = Touches(nest, MACHINE)
    # Sixteen lines of A at once, in sets of eight lines: all of them in one set, or apart.
    needed = t.ways(4096)[2]
    assert (needed > 16) == misses
    # B (64 KB) comes in each of four blocks either way; A comes once, or once in every step.
    cycles = MemoryModel([t], BufferUsage([nest])).cycles(t)
    once = (4 * row * 64 + 64 * row * 4) / 40
    assert cycles == pytest.approx(once + misses * 64 * (row - row / 16) * 64 / 40, rel=0.1)


def test_vectors_are_cut_into_registers_with_a_power_of_two_lanes() -> None:
    for lanes in range(1, 70):
        left, registers = lanes, 0
        while left:
            left -= min(16, 1 << (left.bit_length() - 1))
            registers += 1
        assert pieces(lanes, 16) == registers


def test_partial_tiles_and_those_beyond_the_edge_are_counted() -> None:
    A = te.placeholder((50,), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((50,), lambda i: te.sum(A[i] * 2.0, axis=k), name="B")
    s = te.create_schedule(B.op)
    acc = s.cache_write(B, "local")
    (i,) = s[B].op.axis
    tiles, lane = s[B].split(i, factor=16)
    _, inner = s[B].split(tiles, factor=3)
    s[B].vectorize(lane)
    s[acc].compute_at(s[B], inner)
    s[acc].reorder(s[acc].op.reduce_axis[0], s[acc].op.axis[0])
    s[acc].vectorize(s[acc].op.axis[0])
    core = _core(s)
    # Four tiles of 16 cover 50 elements; two blocks of three have room for six.
    assert core.tile.begun == 4 / 6
    assert core.tails.partial == pytest.approx(1 / 4)


def _in_tiles(extent: int, width: int, fused: bool = False) -> Core:
    """Sums over windows of three, of so many columns in tiles of so many lanes."""
    A = te.placeholder((4, extent + 2), name="A")
    k = te.reduce_axis((0, 3), name="k")
    B = te.compute((4, extent), lambda i, j: te.sum(A[i, j + k], axis=k), name="B")
    s = te.create_schedule(B.op)
    acc = s.cache_write(B, "local")
    i, j = s[B].op.axis
    tile, lane = s[B].split(j, factor=width)
    s[B].vectorize(lane)
    s[acc].compute_at(s[B], s[B].fuse(i, tile) if fused else tile)
    s[acc].reorder(s[acc].op.reduce_axis[0], *s[acc].op.axis)
    s[acc].vectorize(s[acc].op.axis[1])
    return _core(s)


@pytest.mark.parametrize(
    ("extent", "width", "apart", "alive"),
    [
        (56, 48, True, 64 / 96),  # of six vectors four are left
        (56, 32, True, 1),  # all four hold a part of the result
        (40, 64, False, 1),  # one tile, which is cut to 40 lanes
        (56, 16, False, 1),  # four tiles: the test of the tail does not say which it is
        (64, 32, False, 1),  # nothing reaches too far
    ],
)
def test_two_tiles_are_told_apart_by_the_test_of_the_tail(
    extent: int, width: int, apart: bool, alive: float
) -> None:
    tails = _in_tiles(extent, width).tails
    assert bool(tails.partial_tile_is_known) is apart
    assert tails.alive == pytest.approx(alive)
    assert (tails.cut > 0) is (extent == 56 and width == 16)


def test_tiles_of_a_fused_loop_are_not_told_apart() -> None:
    tails = _in_tiles(56, 48, fused=True).tails
    assert not tails.partial_tile_is_known
    assert tails.alive == 1


def test_masks_of_lanes_are_made_in_each_run_and_joined_with_those_of_rows() -> None:
    # Nine reads of four vectors in each of 30 rows: masks of 64 lanes, and one of each row beside.
    runs = 30 * 9
    masks = _core(_padded(True)).guards.masks
    assert masks == runs * 8 * 1.5 + 30 * 3 + runs * 4
    # Written out, columns are known, and half of the vectors lie at an edge.
    known = _core(_padded(True, unroll=True)).guards.masks
    assert known == 30 * 3 + 30 * 9 * 4 * 0.5


def test_lanes_that_have_sums_of_their_own_do_not_wait_for_one_another() -> None:
    def rows(width: int) -> Core:
        X, k = te.placeholder((8, 1024), name="X"), te.reduce_axis((0, 1024), name="k")
        Y = te.compute((8,), lambda i: te.sum(X[i, k], axis=k), name="Y")
        s = te.create_schedule(Y.op)
        s[Y].vectorize(s[Y].split(s[Y].op.reduce_axis[0], factor=width)[1])
        return _core(s)

    assert [rows(w).tile.independent for w in (16, 32, 64)] == [1, 2, 4]
    assert rows(16).cycles >= 8 * 64 * LATENCY
    assert rows(64).cycles < rows(16).cycles / 2


def test_what_steps_share_is_held_from_one_to_the_next() -> None:
    def stencil(taps: int) -> Core:
        X, W = te.placeholder((40, 64), name="X"), te.placeholder((taps, 64, 32), name="W")
        c, q = te.reduce_axis((0, 64), name="c"), te.reduce_axis((0, taps), name="q")
        Y = te.compute(
            (14, 32), lambda x, f: te.sum(X[x + q, c] * W[q, c, f], axis=[c, q]), name="Y"
        )
        s = te.create_schedule(Y.op)
        x, f = s[Y].op.axis
        s[Y].reorder(c, q, x, f)
        s[Y].unroll(q)
        s[Y].unroll(x)
        s[Y].vectorize(f)
        return _core(s)

    # 28 sums, two vectors of W, an element of X; with three taps elements of X serve them all.
    assert stencil(1).spilled == 0
    assert stencil(3).spilled == 28 + 2 + 14 - 32


def test_a_packed_copy_of_a_constant_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its reader may wait for it: tests/unit/cost/test_reading.py.
    monkeypatch.setattr(MemoryModel, "wait", lambda *_: 0)
    A, B = te.placeholder((64, 256), name="A"), te.placeholder((256, 64), name="B")
    k = te.reduce_axis((0, 256), name="k")
    C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    packed = s.cache_read(B, "global", [C])
    a, b = (s.arg_ids([x])[0] for x in (A, B))
    plain, with_a, with_b = (cycles.slowdown(s.state, MACHINE, known) for known in ((), (a,), (b,)))
    assert with_b < plain == with_a
    assert s[packed].op.name == "B.global"


def test_floats_of_16_bits_are_widened_once_for_each_load() -> None:
    """Eight elements of A that all lanes share, three operations each; two vectors of B, two."""
    s = _halves(8, 32)
    core = _core(s)
    assert core.widened == core.tile.runs * (8 * 3 + 2 * 2)
    assert _core(_matmul(8, 32)).widened == 0
    copy = te.compute((64,), te.placeholder((64,), "float16", name="A"), name="B")
    assert _core(te.create_schedule(copy.op)).widened == 0


def _halves(rows: int, columns: int) -> Schedule:
    """As `_matmul`, of float16 into float32."""
    A = te.placeholder((64, 32), "float16", name="A")
    B = te.placeholder((32, 64), "float16", name="B")
    k = te.reduce_axis((0, 32), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        return te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k)

    C = te.compute((64, 64), element, name="C")
    s = te.create_schedule(C.op)
    i0, j0, i1, j1 = s[C].tile(*s[C].op.axis, rows, columns)
    j1, jv = s[C].split(j1, factor=16)
    s[C].reorder(i0, j0, s[C].op.reduce_axis[0], i1, j1, jv)
    s[C].unroll(i1)
    s[C].unroll(j1)
    s[C].vectorize(jv)
    return s


def test_an_instruction_for_dot_products_takes_a_group_at_once() -> None:
    s, args, _ = packed_matmul(8, 64, 32)
    acc, lanes = tile(s, args[-1])
    plain = _core(s).tile
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    core = _core(s)
    # Four rows of two vectors; eight groups of the reduction, two by two tiles.
    assert core.tile.instructions(64) == 4 * 2
    assert core.tile.runs == 8 * 2 * 2
    assert core.tile.steps == 1
    assert core.loaded == (32 * (4 + 2), 32 * (4 + 2))
    assert plain.runs * plain.instructions(64) == 32 * 8 * 16 * 4


def _dots(data: str, kernel: str, group: int, rows: int) -> Core:
    """64 steps of instructions for dot products over rows of one vector each."""
    k = te.reduce_axis((0, 64 * group), name="k")
    A = te.placeholder((rows, 64 * group), data, name="A")
    W = te.placeholder((1, 64, 16, group), kernel, name="W")
    result = "int32" if group == 4 else "float32"

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        w = W[j // 16, k // group, j % 16, k % group]
        return te.sum(A[i, k].astype(result) * w.astype(result), axis=k)

    C = te.compute((rows, 16), element, name="C")
    s = te.create_schedule(C.op)
    acc, lanes = tile(s, C, rows, 16, group=group)
    s[acc].tensorize(lanes, te.intrinsics.dot_products(data, kernel, 16))
    return _core(s)


@pytest.mark.parametrize(("rows", "longer"), [(4, 6 / 4), (24, 1.0)])
def test_products_of_halves_are_added_later_than_those_of_bytes(rows: int, longer: float) -> None:
    """Six cycles instead of four, which few sums wait for."""
    halves, octets = _dots("bfloat16", "bfloat16", 2, rows), _dots("uint8", "int8", 4, rows)
    assert halves.tile.runs == octets.tile.runs == 64
    assert halves.cycles / octets.cycles == pytest.approx(longer, rel=0.05)
