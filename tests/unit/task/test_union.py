"""`SpaceUnion`: several spaces as one, compared with the spaces themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import SpaceError
from loopwright.task import ConfigSpace
from loopwright.task.union import STRUCTURE, SpaceUnion
from loopwright.tuner.run.recorded import RecordedPoints

Sizes = tuple[int, ...]


def space(name: str, sizes: Sizes) -> ConfigSpace:
    made = ConfigSpace()
    for number, size in enumerate(sizes):
        made.define_knob(f"k{number}", list(range(size)))
    made.define_knob(STRUCTURE, [name])
    made.freeze()
    return made


def union(*parts: Sizes) -> SpaceUnion:
    return SpaceUnion(
        [SimpleNamespace(config_space=space(f"p{n}", sizes)) for n, sizes in enumerate(parts)]
    )


PARTS = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=4).map(
    lambda parts: union(*parts)
)


@given(PARTS)
def test_every_point_is_found_where_its_part_has_it(whole: SpaceUnion) -> None:
    expected = [
        (name, local)
        for name, part in zip(whole.names, whole.parts, strict=True)
        for local in range(len(part.config_space))
    ]
    assert len(whole) == len(expected)
    points = RecordedPoints(whole)
    for index, (name, local) in enumerate(expected):
        config = whole.get(index)
        number, own = whole.place_of(config)
        assert (config[STRUCTURE].val, own.index) == (name, local)
        assert whole.find(config) == whole.index_of(config.values) == index
        assert whole.place(index) == (number, local)
        assert whole.entity_of(config.values) == config
        assert points.find(config.values) == config
        assert whole.hash_of(config) == whole.space_hashes[number]


@given(PARTS, st.integers(0, 60), st.integers(0, 3))
def test_samples_are_different_valid_and_even(whole: SpaceUnion, count: int, seed: int) -> None:
    drawn = whole.sample_ints(count, seed)
    assert len(set(drawn)) == len(drawn) == min(count, len(whole))
    assert drawn == whole.sample_ints(count, seed)
    if len(drawn) < len(whole):
        per_part = [sum(whole.place(i)[0] == n for i in drawn) for n in range(len(whole.parts))]
        sizes = [len(part.config_space) for part in whole.parts]
        left = [n for n, size in zip(per_part, sizes, strict=True) if n < size]
        assert max(left) - min(left) <= 1
        assert max(per_part) <= max(left) + 1


def test_a_walk_stays_in_its_part_and_changes_one_knob() -> None:
    whole = union((3, 3), (4,))
    for index in range(len(whole)):
        moved = whole.random_walk(index, 1)
        assert whole.place(moved)[0] == whole.place(index)[0]
        here, there = whole.get(index).values, whole.get(moved).values
        assert sum(here[name] != there[name] for name in here) == 1


def test_the_default_is_chosen_when_it_is_first_asked_for() -> None:
    asked: list[int] = []

    def choose() -> int:
        asked.append(1)
        return 7

    parts = union((3, 3), (4,)).parts
    whole = SpaceUnion(parts, choose)
    assert not asked
    assert (whole.default_index, whole.default_index, len(asked)) == (7, 7, 1)
    assert SpaceUnion(parts).default_index == parts[0].config_space.default_index


def test_further_parts_are_found_when_the_space_is_first_looked_at() -> None:
    def more() -> list[SimpleNamespace]:
        asked.append(1)
        return [SimpleNamespace(config_space=space("late", (5,)))]

    asked: list[int] = []
    given = union((3, 3), (4,)).parts
    whole = SpaceUnion(given, more=more)
    assert (whole.given, asked) == (given, [])
    assert (len(whole), whole.names) == (9 + 4 + 5, ("p0", "p1", "late"))
    assert whole.place(13) == (2, 0)
    assert whole.find(whole.get(17).values) == 17
    assert len(whole.space_hashes) == 3
    assert asked == [1]
    twice = SpaceUnion(given, more=lambda: given[:1])
    with pytest.raises(SpaceError, match="two structures are called 'p0'"):
        len(twice)


def test_knobs_that_are_added_to_a_space_change_no_index() -> None:
    whole = space("p", (3, 4))
    before = [whole.get(n).values for n in range(12)]
    whole.set_default(7)
    whole.extend(lambda: whole.define_knob("more", ["only"]))
    assert [{**values, "more": "only"} for values in before] == [
        whole.get(n).values for n in range(12)
    ]


def test_filters_of_a_part_are_kept_and_counted() -> None:
    whole = union((3, 3), (4,))
    whole.parts[1].config_space.multi_filter(lambda c: c["k0"].val % 2 == 0)
    assert whole.is_filtered
    assert [whole.is_valid(i) for i in range(9, 13)] == [True, False, True, False]
    assert not whole.is_valid(13)
    assert not whole.is_valid(-1)
    assert (whole.valid_count().count, whole.valid_count().total) == (11, 13)
    assert set(whole.sample_ints(20)) == {*range(9), 9, 11}
    assert whole.get_rand_index(0, to_exclude=range(11)) == 11
    with pytest.raises(SpaceError, match="no valid point found among 13, 12 being excluded"):
        whole.get_rand_index(0, to_exclude=range(12))


def test_what_is_no_point_is_said() -> None:
    whole = union((3, 3), (4,))
    assert whole.find({"k0": 1}) is None
    assert whole.find({STRUCTURE: "p1", "k0": 9}) is None
    assert RecordedPoints(whole).find({STRUCTURE: "p7", "k0": 1}) is None
    with pytest.raises(SpaceError, match="there is no value for 'structure'"):
        whole.index_of({"k0": 1})
    with pytest.raises(SpaceError, match=r"there is no structure 'p2'.*there are: p0; p1"):
        whole.entity_of({STRUCTURE: "p2"})
    with pytest.raises(SpaceError, match="9 is not among the 4 candidates of knob 'k0'"):
        whole.index_of({STRUCTURE: "p1", "k0": 9})
    assert whole.entity_of({STRUCTURE: "p1", "k0": 9}).index is None
    with pytest.raises(SpaceError, match="outside"):
        whole.get(13)
    with pytest.raises(SpaceError, match="two structures are called 'same'"):
        SpaceUnion([SimpleNamespace(config_space=space("same", (2,))) for _ in range(2)])
    with pytest.raises(SpaceError, match="at least one part"):
        SpaceUnion([])
    bare = ConfigSpace()
    bare.freeze()
    with pytest.raises(SpaceError, match="needs the knob 'structure'"):
        SpaceUnion([SimpleNamespace(config_space=bare)])


def test_it_is_shown_by_its_parts() -> None:
    whole = union((3, 3), ())
    assert str(whole).splitlines() == [
        "2 structures, 10 points (S1, S2, ... of a log count what it holds, in its order):",
        "  1  p0",
        "  2  p1",
        "knobs and their number of values:",
        "  1: 9 points: k0 3, k1 3",
        "  2: 1 point: no knob",
    ]
    long = union(*[(2,) * 40] * 30)
    assert max(map(len, str(long).splitlines())) <= 100
    assert len(str(long).splitlines()) < 40  # the knobs are alike, and said once
    assert "2 structures" in whole._repr_html_()
    assert whole.lines_of(whole.get(4)) == ["k0=1 k1=1", "structure 1 of 2: p0"]
    assert whole.lines_of(whole.get(9)) == ["structure 2 of 2: p1"]
