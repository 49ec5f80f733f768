"""What tiles leave over at the edge is written out by itself: results, and which tests are left."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.schedule.state import PARTITION_HINT


def product(
    shape: tuple[int, int, int],
    tile: tuple[int, int],
    block: int = 1,
    multiple: int = 1,
    packed: bool = False,
    at_block: bool = False,
) -> tuple[Schedule, list[te.Tensor]]:
    """A product in register tiles, blocks of them along its rows, whose insides have the hint.

    With ``at_block`` the sums of a whole block of tiles are made at once.
    """
    m, n, depth = shape
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    i1, i2 = s[c].split(i, factor=tile[0])
    i0, i1 = s[c].split(i1, factor=block)
    j1, j2 = s[c].split(j, factor=tile[1])
    s[c].reorder(j1, i0, i1, i2, j2)
    s[acc].compute_at(s[c], i0 if at_block else i1)
    ai, aj = s[acc].op.axis
    if at_block:
        outer, ai = s[acc].split(ai, factor=tile[0])
        s[acc].reorder(outer, *s[acc].op.reduce_axis, ai, aj)
    else:
        s[acc].reorder(*s[acc].op.reduce_axis, ai, aj)
    for t, row, vector in ((c, i2, j2), (acc, ai, aj)):
        s[t].vectorize(vector)
        s[t].pragma(row, PARTITION_HINT)
        s[t].pragma(vector, PARTITION_HINT, multiple)
    if packed:
        copy = s.cache_read(b, "local", [acc])
        s[copy].compute_at(s[c], j1)
        s[copy].transform_layout(lambda x, y: (y // tile[1], x, y % tile[1]))
    return s, [a, b, c]


def check(s: Schedule, args: list[te.Tensor]) -> str:
    """The text of a product that was found to be right; integers are exact in any order."""
    f = lower(s, args)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, t.static_shape).astype("float32") for t in args[:2])
    out = np.full(args[2].static_shape, np.nan, "float32")
    interpret(f, [x, y, out])
    np.testing.assert_array_equal(out, x @ y)
    return str(f)


@given(
    st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4)),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.integers(1, 3),
    st.sampled_from((1, 2, 4)),
    st.booleans(),
    st.booleans(),
)
def test_products_of_any_shape_are_right(
    shape: tuple[int, int, int],
    tile: tuple[int, int],
    block: int,
    multiple: int,
    packed: bool,
    at_block: bool,
) -> None:
    check(*product(shape, tile, block, multiple, packed, at_block))


def tiles_of(text: str, statement: str) -> list[tuple[int, int]]:
    """Iterations of the two loops around each statement that begins so."""
    found = re.findall(
        rf"range\((\d+)\):\n *for \S+ in vectorized\((\d+)\):\n *{re.escape(statement)}", text
    )
    return sorted((int(rows), int(columns)) for rows, columns in found)


def test_the_rest_of_each_axis_has_a_tile_of_its_own() -> None:
    text = check(*product((11, 13, 3), (4, 8)))
    tiles = [(3, 5), (3, 8), (4, 5), (4, 8)]
    assert tiles_of(text, "C.local[i_1, j_1] = C.local[i_1, j_1] + A[") == tiles
    assert tiles_of(text, "C[i.0.0 * 4 + i.1, j.0 * 8 + j.1] = ") == tiles
    assert text.count("else 0.0") == 0


def test_lanes_are_rounded_up_and_masked_where_memory_ends() -> None:
    text = check(*product((8, 11, 3), (4, 8), multiple=4))
    assert tiles_of(text, "C.local[i_1, j_1] = C.local[i_1, j_1] + A[") == [(4, 4), (4, 8)]
    assert text.count("else 0.0") == 1


def test_a_copy_with_room_needs_no_mask() -> None:
    text = check(*product((8, 11, 3), (4, 8), multiple=4, packed=True))
    assert tiles_of(text, "C.local[i_1, j_1] = C.local[i_1, j_1] + A[") == [(4, 4), (4, 8)]
    assert text[text.index("C.local = alloc") :].count("else 0.0") == 0


def test_tiles_that_divide_need_neither_copies_nor_tests() -> None:
    """Blocks over-run, but not the tiles in them: a guard around tells so."""
    text = check(*product((12, 16, 3), (4, 8), block=2))
    assert tiles_of(text, "C.local[i_1, j_1] = C.local[i_1, j_1] + A[") == [(4, 8)]
    assert "else 0.0" not in text


def test_a_tile_that_may_lie_beyond_the_edge_is_tested() -> None:
    """A block of two tiles of which one is beyond the edge, computed as one."""
    s, args = product((9, 8, 3), (4, 8), block=2, at_block=True)
    assert "else 0.0" in check(s, args)


def test_without_the_hint_there_are_two_copies() -> None:
    s, args = product((11, 13, 3), (4, 8))
    bare = create_schedule(args[2])
    for step in s.trace:
        if getattr(step, "key", None) != PARTITION_HINT:
            bare.apply_step(step)
    assert str(lower(bare, args)).count("else 0.0") == 2


def test_what_is_filled_up_has_values_beyond_the_edge() -> None:
    """The hint changes nothing where a copy is filled up with a number."""
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] + 1, name="B")
    c = te.compute((10,), lambda i: b[i] * 2, name="C")
    s = create_schedule(c)
    outer, _ = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    s[b].transform_layout(lambda i: (i // 4, i % 4), pad_value=0)
    before = str(lower(s, [a, c]))
    s[b].pragma(s[b].op.axis[0], PARTITION_HINT)
    assert str(lower(s, [a, c])) == before


@pytest.mark.parametrize("rows", [5, 8, 10])
def test_a_hint_inside_of_a_tensorized_tile(rows: int) -> None:
    """The intrinsic takes eight rows: where the last tile is shorter, the loops stay."""
    a = te.placeholder((8, 5), name="a")
    b = te.compute((8, 5), lambda i, j: a[i, j], name="b")
    intrin = te.decl_tensor_intrin(b.op, lambda ins, outs: moved(ins[0], outs[0]), "move")
    A = te.placeholder((rows, 5), name="A")
    B = te.compute((rows, 5), lambda i, j: A[i, j], name="B")
    s = create_schedule(B)
    _, inner = s[B].split(B.op.axis[0], factor=8)
    middle, lowest = s[B].split(inner, factor=4)
    s[B].pragma(lowest, PARTITION_HINT)
    s[B].tensorize(middle, intrin)
    f, x = lower(s, [A, B]), np.arange(rows * 5, dtype="float32").reshape(rows, 5)
    out = np.full_like(x, np.nan)
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, x)


def moved(source: Any, target: Any) -> Any:
    ib = te.ir_builder()
    with ib.for_range(8, "i") as i, ib.for_range(5, "j") as j:
        ib.emit(target.store((i, j), source[i, j]))
    return ib.get()


def in_blocks(depth: int, step: int, unrolled: int) -> tuple[Schedule, list[te.Tensor]]:
    """A product whose reduction is cut into blocks, of which the last may be shorter."""
    a, b = te.placeholder((7, depth), name="A"), te.placeholder((depth, 10), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((7, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    outer, _ = s[c].split(k, factor=step)
    partial = s.rfactor(c, outer)
    assert isinstance(partial, te.Tensor)
    s[partial].compute_at(s[c], s[c].op.axis[1])
    loop, inner = s[partial].split(s[partial].op.reduce_axis[0], factor=unrolled)
    s[partial].unroll(inner)
    s[partial].pragma(loop, PARTITION_HINT)
    return s, [a, b, c]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4))
def test_sums_in_blocks_of_any_length_are_right(depth: int, step: int, unrolled: int) -> None:
    check(*in_blocks(depth, step, unrolled))


def test_the_last_block_of_a_reduction_ends_without_tests() -> None:
    text = check(*in_blocks(22, 8, 2))
    assert "for k.1.0 in range(4):" in text
    assert "for k.1.0 in range(3):" in text
    assert text.count("if ") == 1


def test_a_last_block_with_an_uneven_rest_is_tested() -> None:
    text = check(*in_blocks(21, 8, 2))
    assert text.count("if ") == 2


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_compiled_products_are_right(target: str) -> None:
    s, args = product((37, 45, 5), (8, 32), block=2, multiple=16)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, t.static_shape).astype("float32") for t in args[:2])
    out = np.full((37, 45), np.nan, "float32")
    lw.build(s, args, target)(x, y, out)
    np.testing.assert_array_equal(out, x @ y)
