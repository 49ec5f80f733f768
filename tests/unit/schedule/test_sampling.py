"""Sampling primitives: what they draw, what a trace keeps of it, and other decisions."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.errors import ScheduleError, SpaceError
from loopwright.schedule import Schedule, replay
from loopwright.schedule.primitives import (
    SampleCategorical,
    SampleComputeLocation,
    SamplePerfectTile,
    Split,
)
from loopwright.schedule.primitives.sampling import perfect_tiles
from loopwright.schedule.state import Sampled
from loopwright.space import structure_of
from tests.unit.schedule.programs import Chain, chain


def checked(s: Schedule, args: list[Any]) -> None:
    """The interpreter gives what NumPy gives for D = (2 A + 1) * 2 A."""
    a = np.arange(math.prod(args[0].shape), dtype="float32").reshape(args[0].shape)
    d = np.full(a.shape, np.nan, "float32")
    lw.build(s, args, "interp")(a, d)
    np.testing.assert_array_equal(d, (2 * a + 1) * (2 * a))


def sampled_chain(seed: int = 0) -> Chain:
    """A tile of D, a hint to it, and places for B and C."""
    p = chain(24, 6)
    p.s.seed(seed)
    i, j = p.d.op.axis
    _, middle, inner = p.s[p.d].sample_perfect_tile(i, 3, max_innermost_factor=8)
    rest, _ = p.s[p.d].split(i, factor=inner)
    outer, _ = p.s[p.d].split(rest, factor=middle)
    p.s[p.d].split(j, nparts=p.s[p.d].sample_categorical([1, 2, 3]))
    steps = p.s[p.d].sample_categorical([0, 4, 16], probs=[1, 1, 2])
    p.s[p.d].pragma(outer, "auto_unroll_max_step", steps)
    p.s[p.c].sample_compute_location()
    p.s[p.b].sample_compute_location()
    return p


@pytest.mark.parametrize("seed", range(12))
def test_a_trace_replays_with_the_same_decisions(seed: int) -> None:
    p = sampled_chain(seed)
    checked(p.s, [p.a, p.d])
    for again in (replay(p.s.dag, p.s.trace_json()), replay(p.s.dag, p.s.trace)):
        assert again.trace == p.s.trace
        assert again.trace_json() == p.s.trace_json()
    assert sampled_chain(seed).s.trace_json() == p.s.trace_json()


def test_other_seeds_choose_otherwise() -> None:
    assert len({str(sampled_chain(seed).s.trace_json()) for seed in range(12)}) > 6


def test_python_text_makes_the_trace_again() -> None:
    p = sampled_chain(3)
    text = p.s.as_python()
    assert "v0_0, v0_1, v0_2 = s[D].sample_perfect_tile(i, 3, 8, decision=" in text
    assert ".split(i, factor=v0_2)" in text
    assert ".split(j, nparts=v3_0)" in text
    assert "'auto_unroll_max_step', v5_0)" in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    fresh = replay(p.s.dag, [])
    made = scope["schedule"](fresh, *fresh.tensors)
    assert made.trace_json() == p.s.trace_json()


def test_another_decision_is_followed() -> None:
    p = sampled_chain()
    trace = p.s.trace_json()
    for tile in ([24, 1, 1], [2, 3, 4], [1, 12, 2]):
        trace[0][5] = tile
        s = replay(p.s.dag, trace)
        extents = [x.extent for x in s[s.tensors[3]].leaf_iter_vars]
        assert extents[:3] == tile
        assert s.trace_json() == trace
        # Places were chosen for other tiles, and may be illegal now; what is left must be right.
        t = replay(p.s.dag, [x for x in trace if x[0] != "sample_compute_location"])
        checked(t, [t.tensor(0), t.tensor(3)])


@given(st.integers(1, 200), st.integers(1, 4), st.integers(1, 40))
def test_tiles_are_all_there_are(extent: int, n: int, largest: int) -> None:
    """Against trying everything."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    every = {
        (extent // math.prod(rest), *rest)
        for rest in itertools.product(divisors, repeat=n - 1)
        if extent % math.prod(rest) == 0
    }
    found = list(perfect_tiles(extent, n, largest))
    assert len(found) == len(set(found))
    assert set(found) == {tile for tile in every if tile[-1] <= largest}


def test_tiles_and_numbers_are_drawn_alike() -> None:
    p = chain(12, 6)
    i = p.d.op.axis[0]
    tiles = Counter(tuple(p.s[p.d].sample_perfect_tile(i, 2, 6)) for _ in range(600))
    assert set(tiles) == set(perfect_tiles(12, 2, 6))
    assert min(tiles.values()) > 60
    p = chain(12, 6)
    drawn = Counter(p.s[p.d].sample_categorical([7, 8, 9], [0, 1, 3]) for _ in range(600))
    assert set(drawn) == {8, 9}
    assert 1.5 < drawn[9] / drawn[8] < 6


def test_every_legal_place_is_drawn() -> None:
    found = set()
    for seed in range(60):
        p = chain(4, 4)
        p.s[p.d].split(p.d.op.axis[0], factor=2)
        p.s.seed(seed)
        p.s[p.c].sample_compute_location()
        found.add(p.s.trace[-1].decision)
        checked(p.s, [p.a, p.d])
    inside = {("at", 3, x) for x in ("0.0", "0.1", "a1")}
    assert found == {("root",), ("inline",), *inside}


def test_arithmetic_gives_plain_numbers() -> None:
    p = chain(12, 6)
    number = p.s[p.d].sample_categorical([4], decision=4)
    assert (type(number), number, number.step) == (Sampled, 4, 0)
    p.s[p.d].split(p.d.op.axis[0], factor=number // 2)
    assert p.s.trace_json()[1] == ["split", 3, "a0", 2, None]


def test_a_number_is_copied_with_what_it_knows() -> None:
    number = pickle.loads(pickle.dumps(copy.deepcopy(Sampled(4, 2, 1))))
    assert (number, number.step, number.part, number.name) == (4, 2, 1, "v2_1")


def test_where_a_number_cannot_be_kept_it_is_a_number() -> None:
    p = chain(12, 6)
    number = p.s[p.d].sample_categorical([4], decision=4)
    p.s[p.b].storage_align(p.b.op.axis[0], number, 0)
    assert p.s.trace_json()[1] == ["storage_align", 1, 0, 4, 0]


def test_knobs_of_a_structure_are_the_decisions() -> None:
    p = chain(24, 6)
    i, j = p.d.op.axis
    _, inner = p.s[p.d].sample_perfect_tile(i, 2, max_innermost_factor=8, decision=[6, 4])
    p.s[p.d].split(i, factor=inner)
    width = p.s[p.d].sample_categorical([2, 3, 6], decision=3)
    p.s[p.d].split(j, factor=width)
    p.s[p.b].follow_split(p.b.op.axis[0], i)
    structure = structure_of(p.s, [p.a, p.d], "mine")
    space = structure.config_space
    assert (structure.name, space.range_length) == ("mine", 6 * 3)
    default = space.get(space.default_index)
    assert structure.instantiate(default)[0].trace_json() == p.s.trace_json()
    seen = set()
    for config in map(space.get, range(space.range_length)):
        s, args = structure.instantiate(config)
        tile, number = config["v0"].val, config["v2"].val
        loops = [x.extent for x in s[args[1]].leaf_iter_vars]
        assert loops == [*tile, 6 // number, number]
        assert s[s.tensors[1]].leaf_iter_vars[1].extent == tile[1]
        seen.add((tile, number))
        checked(s, args)
    assert len(seen) == 18


def test_the_model_ranks_such_a_structure() -> None:
    """Symbols take the place of decisions for whole populations."""
    p = chain(64, 64)
    i, _ = p.d.op.axis
    _, inner = p.s[p.d].sample_perfect_tile(i, 2)
    p.s[p.d].split(i, factor=inner)
    with lw.Target("llvm -mcpu=x86-64-v3"):
        structure = structure_of(p.s, [p.a, p.d])
        best = lw.space.ranked([structure])
    assert best
    assert best[0].structure is structure


def test_a_tile_of_a_sampled_loop_is_no_knob() -> None:
    p = chain(24, 6)
    i = p.d.op.axis[0]
    _, rest = p.s[p.d].split(i, factor=p.s[p.d].sample_categorical([4, 12]))
    p.s[p.d].sample_perfect_tile(rest, 2)
    with pytest.raises(SpaceError, match=r"step 2 samples a tile of 'D\.i\.1', whose extent dep"):
        structure_of(p.s, [p.a, p.d])


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            SampleCategorical(3, (2, 4), 3),
            r"sample_categorical \(step 0\): 3 is none of the candidates; they are 2, 4",
        ),
        (SampleCategorical(3, (), 3), "3 is none of the candidates; they are none"),
        (SampleCategorical(3, (2, 4), 2, (1.0,)), "2 candidates have 1 probabilities; give one"),
        (SampleCategorical(0, (2,), 2), "'A' is an input"),
        (
            SamplePerfectTile(3, "a0", 2, 16, (4, 5)),
            r"\[4, 5\] is no tile of 'D\.i', which has 24 iterations: the product must be that",
        ),
        (SamplePerfectTile(3, "a0", 2, 4, (2, 12)), "the last factor at most 4"),
        (SamplePerfectTile(3, "a0", 2, 16, (-2, -12)), "is no tile of"),
        (SamplePerfectTile(3, "a0", 2, 16, (24,)), "n is 2, and the decision has 1 factors"),
        (SamplePerfectTile(3, "a0", 0, 16, ()), "n and max_innermost_factor are at least 1"),
        (SamplePerfectTile(3, "a9", 2, 16, (4, 6)), "has no loop 'a9'"),
        (SampleComputeLocation(3, ("inline",)), r"compute_inline \(step 0\): "),
        (SampleComputeLocation(2, ("at", 1, "a0")), r"compute_at \(step 0\): "),
        (
            Split(3, "a0", Sampled(4, 0, 0), None),
            r"split \(step 0\): factor is number 0 that step 0 chose, and that step chose 0; a",
        ),
    ],
)
def test_refusals(step: Any, text: str) -> None:
    p = chain(24, 6)
    with pytest.raises(ScheduleError, match=text):
        p.s.apply_step(step)
    assert p.s.trace == ()


def test_calls_that_are_refused() -> None:
    p = chain(24, 6)
    stage, i = p.s[p.d], p.d.op.axis[0]
    with pytest.raises(ScheduleError, match=r"candidates are whole numbers, got \['a'\]"):
        stage.sample_categorical(["a"])  # type: ignore[list-item]
    with pytest.raises(ScheduleError, match="probs are 2 numbers that are not negative"):
        stage.sample_categorical([1, 2], probs=[0, 0])
    with pytest.raises(ScheduleError, match="1 to 16 factors and a largest one of at least 1"):
        stage.sample_perfect_tile(i, 17)
    with pytest.raises(ScheduleError, match="24 has no tile of 1 factors, the last at most 16"):
        stage.sample_perfect_tile(i, 1)
    with pytest.raises(ScheduleError, match=r"compute_root .*'D' is an output|cannot be moved"):
        stage.sample_compute_location()
    with pytest.raises(ScheduleError, match="a place is 'root', 'inline' or a stage with its loop"):
        p.s[p.b].sample_compute_location(decision="here")
    assert p.s.trace == ()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (["split", 3, "a0", {"sampled": [0]}, None], r"a sampled number is \[step, which of its"),
        (["split", 3, "a0", {"sampled": ["0", 0]}, None], "a sampled number is"),
        (["split", 3, "a0", {"other": [0, 0]}, None], "field 'factor' of split"),
        (["storage_align", 1, 0, {"sampled": [0, 0]}, 0], "field 'factor' of storage_align"),
        (["sample_compute_location", 1, ["at", 2]], "field 'decision' of sample_compute_location"),
        (["sample_perfect_tile", 3, "a0", 2, 16, [4, "6"]], "field 'decision' of sample_perfect_"),
        (["sample_categorical", 3, [1, True], 1], "field 'candidates' of sample_categorical"),
    ],
)
def test_damaged_json(data: list[Any], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        replay(chain(24, 6).s.dag, [data])
