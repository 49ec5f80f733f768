"""What each kind of knob says of itself: columns for cost models, parts for symbols, old values."""

from __future__ import annotations

import pytest

from loopwright.errors import InternalError
from loopwright.task import ConfigSpace


def knob_of(define):
    space = ConfigSpace()
    define(space)
    (knob,) = space.knobs.values()
    return knob


SPLIT = knob_of(lambda c: c.define_split("t", 12, num_outputs=3))
ORDER = knob_of(lambda c: c.define_reorder("o", [2, 3], "all"))
MARKS = knob_of(lambda c: c.define_annotate("a", [2, 3], "try_vec"))
NUMBER = knob_of(lambda c: c.define_knob("n", [4, 2, 8]))
WORDS = knob_of(lambda c: c.define_knob("w", ["x", (1, 2), None]))


@pytest.mark.parametrize(
    ("knob", "names"),
    [
        (SPLIT, ["t.1", "t.2"]),
        (ORDER, ["o.0", "o.1"]),
        (MARKS, ["a.0", "a.1"]),
        (NUMBER, ["n"]),
        (WORDS, ["w"]),
        (knob_of(lambda c: c.define_split("t", 12)), ["t.1"]),
        (knob_of(lambda c: c.define_split("t", 12, num_outputs=1)), []),
        (knob_of(lambda c: c.define_annotate("a", [4], "try_vec")), ["a"]),
    ],
)
def test_columns_have_a_name_and_a_number_for_each_candidate(knob, names):
    assert [name for name, _ in knob.columns()] == names
    assert all(len(values) == len(knob) for _, values in knob.columns())


def test_columns_are_the_choices():
    assert dict(NUMBER.columns()) == {"n": [4.0, 2.0, 8.0]}
    assert dict(WORDS.columns()) == {"w": [0.0, 1.0, 2.0]}
    assert dict(MARKS.columns())["a.1"] == [-1.0, -3.0]
    inner = [tuple(row) for row in zip(*(values for _, values in SPLIT.columns()), strict=True)]
    assert inner == [entity.size[1:] for entity in SPLIT.entities]


def test_only_numbers_have_parts():
    assert NUMBER.parts() == [(4, 2, 8)]
    assert len(SPLIT.parts()) == 2
    assert SPLIT.from_parts([2, 3]).size == (-1, 2, 3)
    assert NUMBER.from_parts([2]).val == 2
    assert ORDER.parts() == MARKS.parts() == WORDS.parts() == []
    assert knob_of(lambda c: c.define_knob("f", [1, 2.5])).parts() == []
    assert knob_of(lambda c: c.define_knob("b", [True, False])).parts() == []
    with pytest.raises(InternalError, match="has no parts"):
        ORDER.from_parts([1])


def test_values_of_another_shape_are_adapted():
    assert SPLIT.adapted([-1, 2, 3]) == ([-1, 2, 3], 2)
    assert SPLIT.adapted([-1, 5, 3]) == ([-1, 4, 3], 1)
    assert SPLIT.adapted([-1, 3]) is None
    assert NUMBER.adapted(8) == (8, 0)
    assert NUMBER.adapted(16) is None
    assert ORDER.adapted([1, 0]) == ([1, 0], 0)
