"""Indices, filters, sampling and identity of spaces, small and huge."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import InstantiationError, SpaceError
from loopwright.task import ConfigSpace, SplitEntity

ROOT = Path(__file__).parents[3]


def small(**kwargs):
    space = ConfigSpace(**kwargs)
    space.define_split("i", 12)  # 6 candidates
    space.define_knob("mode", ["a", "b", "c"])
    space.define_annotate("ann", [1, 2], "try_unroll_vec")  # 6 candidates
    return space


def huge():
    space = ConfigSpace()
    for number in range(12):
        space.define_knob(f"k{number}", list(range(10)))
    return space


def test_mixed_radix_with_the_first_knob_least_significant():
    space = small()
    assert space.dims == (6, 3, 6)
    assert len(space) == space.range_length == 108
    vectors = [tuple(reversed(v)) for v in product(range(6), range(3), range(6))]
    for index, vector in enumerate(vectors):
        assert space.point2knob(index) == vector
        assert space.knob2point(vector) == index


def test_entities_and_indices_are_inverse():
    space = small()
    for index in range(len(space)):
        config = space.get(index)
        assert config.index == index
        assert space.index_of(config.values) == space.index_of(config) == index
    config = space.get(7)
    assert config.values == {"i": [-1, 2], "mode": "b", "ann": ["none", "none"]}
    assert config["i"].size == (-1, 2)
    assert config["mode"].val == "b"
    assert str(config) == "i=[-1, 2] mode='b' ann=['none', 'none']"
    assert config == space.get(7) != space.get(8)
    assert len({space.get(7), space.get(7), space.get(8)}) == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_any_index_of_any_space_survives(dims, rng):
    space = ConfigSpace()
    for number, dim in enumerate(dims):
        space.define_knob(f"k{number}", list(range(dim)))
    index = rng.randrange(space.range_length)
    assert space.knob2point(space.point2knob(index)) == index
    assert space.find(space.get(index).values) == index


def test_what_is_outside_is_refused():
    space = small()
    for index in (-1, 108):
        assert not space.is_valid(index)
        with pytest.raises(SpaceError, match="outside of the space of 108"):
            space.get(index)
    with pytest.raises(SpaceError, match="2 choices for 3 knobs"):
        space.knob2point([0, 0])
    with pytest.raises(SpaceError, match="no candidate number 3"):
        space.knob2point([0, 3, 0])
    values = space.get(0).values
    for change, words in [
        ({"mode": "z"}, "'z' is not among the 3 candidates of knob 'mode'"),
        ({"extra": 1}, "unknown knobs 'extra'"),
    ]:
        assert space.find(values | change) is None
        with pytest.raises(SpaceError, match=words):
            space.index_of(values | change)
    with pytest.raises(SpaceError, match="no value for knob 'i'"):
        space.index_of({"mode": "a", "ann": ["none", "none"]})
    with pytest.raises(SpaceError, match="did you mean 'mode'"):
        space["mod"]
    with pytest.raises(SpaceError, match="there are: i, mode, ann"):
        space.get(0)["zzz"]


def test_recorded_values_need_not_be_candidates():
    space = small()
    config = space.entity_of({"i": [-1, 5], "mode": "b", "gone": 3})
    assert config.index is None
    assert config["i"] == SplitEntity([-1, 5])
    assert config["ann"] == space["ann"]
    assert space.entity_of(space.get(9).values).index == 9
    with pytest.raises(SpaceError, match="'i'"):
        space.entity_of({"i": 5})


def test_one_name_one_meaning():
    space = ConfigSpace()
    space.define_knob("k", [1, 2])
    space.define_knob("k", [1, 2])
    assert len(space) == 2
    with pytest.raises(SpaceError, match="'k' is defined twice"):
        space.define_knob("k", [1, 3])
    with pytest.raises(SpaceError, match="'k' is defined twice"):
        space.define_split("k", 2)
    space.freeze()
    with pytest.raises(SpaceError, match="complete"):
        space.define_knob("l", [1])


def test_filters_are_lazy():
    space = huge()
    asked = []
    space.multi_filter(lambda c: asked.append(c.index) or c["k0"].val + c["k1"].val == 9)
    assert len(space) == 10**12
    assert asked == []
    index = space.knob2point([4, 5, *[0] * 10])
    assert space.is_valid(index)
    assert not space.is_valid(index + 1)
    assert asked == [index, index + 1]
    found = space.sample_ints(20, 3)
    assert len(set(found)) == 20
    assert all(space.get(i)["k0"].val + space.get(i)["k1"].val == 9 for i in found)
    assert len(asked) < 1000


def test_a_filter_that_fails_is_named():
    space = small()
    space.multi_filter(lambda c: c["mode"].val > 3)
    with pytest.raises(SpaceError, match=r"filter failed on configuration 5 .*TypeError"):
        space.is_valid(5)


def test_valid_count_is_exact_or_says_that_it_is_not():
    space = small()
    assert space.valid_count().count == 108
    space.multi_filter(lambda c: c["mode"].val != "a")
    space.multi_filter(lambda c: c["i"].size[-1] < 4)
    count = space.valid_count()
    assert (count.count, count.exact) == (3 * 2 * 6, True)
    assert str(count) == "36 of 108"
    big = huge()
    assert big.valid_count().exact
    big.multi_filter(lambda c: c["k0"].val < 5)
    count = big.valid_count()
    assert not count.exact
    assert abs(count.count / 1e12 - 0.5) < 0.05
    assert str(count).endswith("of 1000000000000, judging by 4000 drawn at random")
    assert count == big.valid_count()


@pytest.mark.parametrize("rng", [None, 5, random.Random(5), np.random.default_rng(5)])
def test_samples_are_distinct_and_complete(rng):
    space = small()
    assert sorted(space.sample_ints(1000, rng)) == list(range(108))
    space.multi_filter(lambda c: c["mode"].val == "b")
    assert sorted(space.sample_ints(1000, rng)) == [i for i in range(108) if i // 6 % 3 == 1]
    assert len(space.sample_ints(10, rng)) == 10


def test_samples_depend_on_the_seed_alone():
    space = huge()
    assert space.sample_ints(50, 1) == space.sample_ints(50, np.random.default_rng(1))
    assert space.sample_ints(50, 1) != space.sample_ints(50, 2)
    wide = ConfigSpace()
    for number in range(40):
        wide.define_knob(f"k{number}", list(range(10)))
    assert wide.range_length == 10**40
    found = wide.sample_ints(100, 1)
    assert len(set(found)) == 100
    assert max(found) > 10**38
    assert wide.knob2point(wide.point2knob(found[0])) == found[0]


def test_sampling_ends_where_nothing_is_valid():
    space = huge()
    space.multi_filter(lambda c: False)
    assert space.sample_ints(3, 0) == []
    assert space.get_next_index(10**12 - 50) is None
    with pytest.raises(SpaceError, match="no valid point"):
        space.get_rand_index(0)
    with pytest.raises(SpaceError, match="no valid configuration"):
        _ = space.default_index
    tiny = small()
    assert tiny.get_rand_index(0, to_exclude=[i for i in range(108) if i != 17]) == 17
    with pytest.raises(SpaceError, match="108 being excluded"):
        tiny.get_rand_index(0, to_exclude=range(108))


def test_random_walk_changes_one_knob():
    space = small()
    rng = np.random.default_rng(0)
    for index in range(108):
        other = space.random_walk(index, rng)
        pairs = zip(space.point2knob(index), space.point2knob(other), strict=True)
        assert sum(a != b for a, b in pairs) == 1
    reached = {space.random_walk(0, rng) for _ in range(500)}
    assert len(reached) == 5 + 2 + 5
    space.multi_filter(lambda c: c.index in (0, 3))
    assert space.random_walk(0, rng) == 3
    assert space.random_walk(3, rng) == 0
    assert space.random_walk(6, rng) == 0
    point = ConfigSpace()
    point.define_knob("k", [1])
    assert point.random_walk(0) == 0
    assert ConfigSpace().range_length == 1


def test_next_index():
    space = small()
    space.multi_filter(lambda c: c.index % 10 == 3)
    assert space.get_next_index(-1) == 3
    assert space.get_next_index(3) == 13
    assert space.get_next_index(3, step=2) == 23
    assert space.get_next_index(103) is None
    with pytest.raises(SpaceError, match="step"):
        space.get_next_index(0, 0)


def test_default_index():
    space = small()
    # 12 is nearer to 16 than 4 is, though it pays for not being a power of two.
    assert space.get(space.default_index).values == {
        "i": [-1, 12],
        "mode": "a",
        "ann": ["none", "none"],
    }
    chosen = small(defaults={"mode": "c", "i": [-1, 3]})
    chosen.freeze()
    assert chosen["mode"].val == "c"
    assert chosen.get(chosen.default_index)["i"].size == (-1, 3)
    wrong = small(defaults={"nope": 1})
    with pytest.raises(SpaceError, match="'nope' is not defined"):
        wrong.freeze()


def test_a_refused_default_moves_as_little_as_can_be():
    space = small()
    before = space.point2knob(space.default_index)
    space = small()
    space.multi_filter(lambda c: c["mode"].val == "b")
    after = space.point2knob(space.default_index)
    assert after == (before[0], 1, before[2])
    far = small()
    far.multi_filter(lambda c: c["mode"].val == "b" and c["i"].size[-1] == 1)
    assert far.point2knob(far.default_index)[:2] == (0, 1)
    assert far.is_valid(far.default_index)
    assert far.default_index == far.default_index
    far.set_default(6)
    assert far.default_index == 6


def test_space_hash_is_that_of_ordered_knobs_and_candidates():
    assert small().space_hash == small().space_hash
    assert small(defaults={"mode": "c"}).space_hash == small().space_hash
    more, order = small(), ConfigSpace()
    more.define_knob("z", [1])
    order.define_knob("mode", ["a", "b", "c"])
    order.define_split("i", 12)
    order.define_annotate("ann", [1, 2], "try_unroll_vec")
    assert len({small().space_hash, more.space_hash, order.space_hash}) == 3
    code = (
        "from loopwright.task import ConfigSpace\n"
        "s = ConfigSpace(); s.define_split('i', 12); s.define_knob('mode', ['a', 'b', 'c'])\n"
        "s.define_annotate('ann', [1, 2], 'try_unroll_vec')\n"
        "print(s.space_hash, s.sample_ints(5, 3), s.default_index)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    space = small()
    here = f"{space.space_hash} {space.sample_ints(5, 3)} {space.default_index}"
    assert done.stdout.strip() == here


def test_a_configuration_knows_no_other_knobs_and_may_be_refused():
    config = small().get(0)
    config.define_knob("mode", ["a", "b", "c"])
    with pytest.raises(InstantiationError, match="for some configurations only"):
        config.define_knob("new", [1])
    with pytest.raises(InstantiationError, match="too big"):
        config.raise_error("too big")
    assert config.valid()
    assert not config.is_fallback


def test_a_filter_that_does_not_end_refuses_the_point(monkeypatch, caplog):
    monkeypatch.setattr("loopwright.task.space.TEMPLATE_S", 0.05)
    space = small()

    def accepts(config):
        while config.index == 5:
            pass
        return config.index != 7

    space.multi_filter(accepts)
    assert [space.is_valid(i) for i in (4, 5, 5, 6, 7)] == [True, False, False, True, False]
    (record,) = caplog.records
    assert "a filter took longer than 0.05 s on configuration 5 (i=" in record.getMessage()


def test_a_filter_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr("loopwright.task.space.TEMPLATE_S", 0.05)
    space = small()

    def accepts(config):
        while True:
            pass

    space.multi_filter(accepts)
    assert not space.is_valid(1)
    with pytest.raises(
        SpaceError, match=r"longer than .* the 3rd such point; correct the multi_filter"
    ):
        space.sample_ints(10)


def test_a_space_is_printed_with_its_knobs():
    space = ConfigSpace()
    space.define_split("tile", 64, num_outputs=2)
    space.define_reorder("order", [1, 2, 3], "all")
    space.define_annotate("ann", [1, 2], "try_unroll_vec")
    space.define_annotate("at", [1, 2], "locate_cache", num_anchor=1)
    space.define_knob("unroll", list(range(0, 90, 10)))
    space.define_knob("one", ["a"])
    assert str(space).splitlines() == [
        "ConfigSpace(6 knobs, 4536 points):",
        "  0 tile: split of 64 into 2 loops, 7 candidates, default [-1, 16]",
        "  1 order: order of 3 loops, 6 candidates, default [0, 1, 2]",
        "  2 ann: annotation of 2 loops, 6 candidates, default ['none', 'none']",
        "  3 at: places of caches, 2 candidates, default [0]",
        "  4 unroll: one of 0, 10, 20, 30, 40, 50, 60, 70, ..., 9 candidates, default 0",
        "  5 one: one of 'a', 1 candidate, default 'a'",
    ]
    space.multi_filter(lambda c: c["tile"].size[-1] <= 8)
    assert str(space).endswith("\n  its filters accept 2592 of 4536 points")
    assert str(ConfigSpace()) == "ConfigSpace(0 knobs, 1 points)"


def test_a_space_read_by_a_number_says_how_configurations_are_read():
    space = ConfigSpace()
    space.define_knob("unroll", [1, 2])
    space.freeze()
    with pytest.raises(
        SpaceError, match=r"by name, got 0; there are: unroll; .* space\.get\(index"
    ):
        list(space)
