"""``follow_split`` and ``follow_fused_split``: tiles of other stages, by number and by symbol."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import Schedule, replay
from loopwright.schedule.primitives import FollowFusedSplit, FollowSplit
from loopwright.space import Sketch
from tests.unit.schedule.programs import Chain, chain


def extents(s: Schedule, t: te.Tensor) -> list[int]:
    """Extents of the loops of a stage, outermost first."""
    return [x.extent for x in s[t].leaf_iter_vars]


def checked(s: Schedule, args: list[te.Tensor]) -> None:
    """The interpreter gives what NumPy gives for D = (2 A + 1) * 2 A."""
    a = np.arange(math.prod(args[0].shape), dtype="float32").reshape(args[0].shape)
    d = np.full(a.shape, np.nan, "float32")
    lw.build(s, args, "interp")(a, d)
    np.testing.assert_array_equal(d, (2 * a + 1) * (2 * a))


def split_into(p: Chain, axis: te.IterVar, sizes: list[int], outward: bool) -> None:
    """Split a loop of D so that the inner loops have these sizes, in one of two orders."""
    if outward:
        for size in reversed(sizes):
            axis, _ = p.s[p.d].split(axis, factor=size)
        return
    for k in range(len(sizes)):
        _, axis = p.s[p.d].split(axis, factor=math.prod(sizes[k:]))


@pytest.mark.parametrize("outward", [False, True])
@pytest.mark.parametrize(
    ("n_split", "expected"),
    [(1, [2, 24]), (2, [2, 2, 12]), (3, [2, 2, 3, 4]), (None, [2, 2, 3, 4])],
)
def test_tiles_from_the_outside_in(outward: bool, n_split: Any, expected: list[int]) -> None:
    """What is inside the last split that is followed stays in one piece, as in Ansor."""
    p = chain(48, 3)
    split_into(p, p.d.op.axis[0], [2, 3, 4], outward)
    loops = p.s[p.b].follow_split(p.b.op.axis[0], p.d.op.axis[0], n_split)
    assert [x.extent for x in loops] == expected
    assert extents(p.s, p.b) == [*expected, 3]
    checked(p.s, [p.a, p.d])


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 60),
    st.data(),
)
def test_sizes_that_do_not_divide(sizes: list[int], outward: bool, n: int, data: Any) -> None:
    """A simple model: an index runs through the same places in the followed and following loops."""
    p = chain(n, 2)
    split_into(p, p.d.op.axis[0], sizes, outward)
    many = data.draw(st.integers(1, len(sizes)))
    loops = p.s[p.c].follow_split(p.c.op.axis[0], p.d.op.axis[0], many)
    tiles = [math.prod(sizes[k:]) for k in range(many)]
    rest, expected = n, []
    for tile in tiles:
        expected.append(math.ceil(rest / tile))
        rest = min(rest, tile)
    assert [x.extent for x in loops] == [*expected, rest]
    checked(p.s, [p.a, p.d])


def test_what_is_split_further_in_the_middle_of_a_tree() -> None:
    p = chain(96, 2)
    outer, inner = p.s[p.d].split(p.d.op.axis[0], factor=24)
    p.s[p.d].split(inner, factor=4)
    p.s[p.d].split(outer, factor=2)
    p.s[p.b].follow_split(p.b.op.axis[0], p.d.op.axis[0])
    assert extents(p.s, p.b) == [2, 2, 6, 4, 2]
    p.s[p.c].follow_split(p.c.op.axis[0], inner)
    assert extents(p.s, p.c) == [24, 4, 2]


@pytest.mark.parametrize(("level", "product"), [(0, 3 * 2), (1, 4 * 5)])
@pytest.mark.parametrize("inner", [True, False])
def test_the_loops_of_one_level_together(level: int, product: int, inner: bool) -> None:
    p = chain(24, 30)
    x, y = p.d.op.axis
    split_into(p, x, [3, 4], outward=True)
    split_into(p, y, [2, 5], outward=False)
    fused = p.s[p.b].fuse(*p.b.op.axis)
    p.s[p.b].follow_fused_split(fused, [x, y], level, inner)
    rest = 720 // product
    assert extents(p.s, p.b) == ([rest, product] if inner else [product, rest])
    checked(p.s, [p.a, p.d])


def test_another_number_is_followed_on_replay() -> None:
    p = chain(48, 3)
    p.s[p.d].split(p.d.op.axis[0], factor=8)
    p.s[p.b].follow_split(p.b.op.axis[0], p.d.op.axis[0])
    fused = p.s[p.c].fuse(*p.c.op.axis)
    p.s[p.c].follow_fused_split(fused, [p.d.op.axis[0]], level=0)
    trace = p.s.trace_json()
    assert trace[1] == ["follow_split", 1, "a0", 3, "a0", 1]
    assert trace[3] == ["follow_fused_split", 2, "2.0", [[3, "a0"]], 0]
    for factor in (1, 5, 16, 48):
        trace[0][3] = factor
        s = replay(p.s.dag, trace)
        _, b, c, _ = s.tensors
        assert extents(s, b)[1] == extents(s, c)[1] == factor
        checked(s, [s.tensor(0), s.tensor(3)])


def test_symbols_are_followed() -> None:
    """A structure whose one knob is in two stages."""
    p = chain(48, 4)
    sketch = Sketch([p.d], [p.a, p.d])
    s = sketch.s
    size, width = sketch.numbers("tile", list(itertools.product([2, 3, 16], [1, 4])))
    x, y = p.d.op.axis
    s[p.d].split(x, factor=size)
    s[p.d].split(y, factor=width)
    s[p.b].follow_split(p.b.op.axis[0], x)
    s[p.c].follow_fused_split(s[p.c].fuse(*p.c.op.axis), [x, y], level=0)
    structure = sketch.finished("followed")
    space = structure.config_space
    for config in map(space.get, range(space.range_length)):
        made, args = structure.instantiate(config)
        n, m = config["tile"].val
        assert extents(made, made.tensors[1])[1] == n
        assert extents(made, made.tensors[2])[1] == n * m
        checked(made, args)


def test_a_split_that_follows_is_followed() -> None:
    p = chain(48, 4)
    p.s[p.d].split(p.d.op.axis[0], factor=6)
    p.s[p.c].follow_split(p.c.op.axis[0], p.d.op.axis[0])
    p.s[p.b].follow_split(p.b.op.axis[0], p.c.op.axis[0])
    assert extents(p.s, p.b) == [8, 6, 4]


def test_python_text_makes_the_trace_again() -> None:
    p = chain(48, 30)
    x, y = p.d.op.axis
    split_into(p, x, [3, 4], outward=True)
    split_into(p, y, [2, 5], outward=False)
    p.s[p.b].follow_split(p.b.op.axis[0], x, n_split=2)
    p.s[p.b].follow_split(p.b.op.axis[1], y, n_split=1)
    fused = p.s[p.c].fuse(*p.c.op.axis)
    p.s[p.c].follow_fused_split(fused, [x, y], level=1, factor_or_nparts=False)
    text = p.s.as_python()
    assert ".follow_split(i_2, i, n_split=2)" in text
    assert ".follow_fused_split(i_j, [i, j], level=1, factor_or_nparts=False)" in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    fresh = replay(p.s.dag, [])
    assert scope["schedule"](fresh, *fresh.tensors).trace == p.s.trace


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            FollowSplit(1, "a0", 3, "a1", 1),
            r"follow_split \(step 3\): 'D\.j' has not been split; split it first, by factor",
        ),
        (
            FollowSplit(1, "a0", 3, "a0", 3),
            r"follow_split .*n_split is 3, and 'D\.i' is split 2 time\(s\); take 1 to 2",
        ),
        (FollowSplit(1, "a0", 3, "a0", 0), "n_split is 0"),
        (FollowSplit(1, "a7", 3, "a0", 1), "stage 'B' has no loop 'a7'"),
        (FollowSplit(1, "a0", 3, "a7", 1), "stage 'D' has no loop 'a7'"),
        (FollowSplit(1, "a0", 9, "a0", 1), "there is no stage 9"),
        (FollowSplit(0, "a0", 3, "a0", 1), "'A' is an input and has no loops"),
        (
            FollowSplit(1, "a0", 2, "a0", 1),
            r"'C\.i' was split by nparts \(step 2\), whose tiles have no fixed size; split it by",
        ),
        (FollowSplit(3, "0.1", 3, "a0", 1), r"loop 'D\.i\.1' no longer exists"),
        (FollowFusedSplit(1, "a0", (), 0), "expected at least one loop to follow"),
        (
            FollowFusedSplit(1, "a0", ((3, "a0"), (3, "0.1")), 1),
            r"follow_fused_split .*level is 1, and 'D\.i\.1' is split 1 time\(s\); take 0 to 0",
        ),
        (FollowFusedSplit(1, "a0", ((3, "a0"),), -1), "level is -1"),
        (
            FollowFusedSplit(1, "a0", ((3, "a0"),) * 21, 0),
            r"the splits that are followed come to \d+ iterations; at most 2\^40",
        ),
    ],
)
def test_refusals(step: Any, text: str) -> None:
    p = chain(48, 4)
    _, inner = p.s[p.d].split(p.d.op.axis[0], factor=12)
    p.s[p.d].split(inner, factor=3)
    p.s[p.c].split(p.c.op.axis[0], nparts=4)
    before = p.s.state
    with pytest.raises(ScheduleError, match=text):
        p.s.apply_step(step)
    assert p.s.state is before


@pytest.mark.parametrize("name", ["follow_split", "follow_fused_split"])
def test_a_loop_that_is_used_is_not_split(name: str) -> None:
    p = chain(48, 4)
    p.s[p.d].split(p.d.op.axis[0], factor=12)
    i, source = p.b.op.axis[0], p.d.op.axis[0]
    p.s[p.b].parallel(i)
    stage = p.s[p.b]
    calls = {
        "follow_split": lambda: stage.follow_split(i, source),
        "follow_fused_split": lambda: stage.follow_fused_split(i, [source], 0),
    }
    text = rf"{name} \(step 2\): loop 'B\.i' is already parallel \(step 1\); split it before that"
    with pytest.raises(ScheduleError, match=text):
        calls[name]()


def test_what_is_no_axis() -> None:
    p = chain(48, 4)
    i = p.b.op.axis[0]
    for source in (None, chain().d.op.axis[0]):
        with pytest.raises(ScheduleError, match=r"follow_split .*no loop of this schedule"):
            p.s[p.b].follow_split(i, source)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"expected a list of axes, got .*follow_split follows"):
        p.s[p.b].follow_fused_split(i, p.d.op.axis[0], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (["follow_split", 1, "a0", 3, "a0", "1"], "field 'n_split' of follow_split is '1'"),
        (["follow_fused_split", 1, "a0", [["a0"]], 0], "field 'sources' of follow_fused_split"),
        (["follow_fused_split", 1, "a0", [[3, 0]], 0], "field 'sources' of follow_fused_split"),
        (["follow_fused_split", 1, "a0", [[3, "a0"]], 0, 1], "field 'factor_or_nparts'"),
    ],
)
def test_damaged_json(data: list[Any], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        replay(chain().s.dag, [data])


def test_a_long_chain_is_followed_in_reasonable_time() -> None:
    """A trace may come from anybody: no recursion, and no product without end."""
    p = chain(1 << 20, 1)
    axis = p.d.op.axis[0]
    for _ in range(900):
        axis, _ = p.s[p.d].split(axis, factor=1)
    assert len(p.s[p.b].follow_split(p.b.op.axis[0], p.d.op.axis[0], n_split=2)) == 3
