"""Columns of features: saved models name them, so their names and order never change."""

from __future__ import annotations

import hashlib

import pytest

from loopwright.cost.features import itervar, per_store
from loopwright.cost.features.feature import FeatureType, Slot

#: Names of the version that first had them, with ``+`` where a column is a logarithm, joined by
#: line breaks.
RECORDED = {
    "itervar": (312, "9bdc0b60907c035a"),
    "curve": (168, "58563a8f99a500f4"),
    "per_store": (656, "28e0de751e0cbefb"),
}
TYPES = {
    "itervar": itervar.FEATURES,
    "curve": itervar.CURVE_FEATURES,
    "per_store": per_store.FEATURES,
}


@pytest.mark.parametrize("kind", RECORDED)
def test_names_order_and_scales_are_those_of_saved_models(kind: str) -> None:
    columns = TYPES[kind].columns
    text = "\n".join(f"{c.name}{'+' if c.logged else ''}" for c in columns)
    assert (len(columns), hashlib.sha256(text.encode()).hexdigest()[:16]) == RECORDED[kind]


@pytest.mark.parametrize("kind", TYPES)
def test_no_name_and_no_meaning_stands_for_two_columns(kind: str) -> None:
    columns = TYPES[kind].columns
    assert len({c.name for c in columns}) == len({c.meaning for c in columns}) == len(columns)


def test_a_slot_names_its_columns() -> None:
    assert [c.name for c in itervar.SUMS[0].columns()] == [
        "flop",
        "bytes",
        "stages",
        "copied",
        "threads",
        "lanes",
    ]
    last = TYPES["itervar"].columns[-1]
    assert last.name == "load2.loop11.reuse"
    assert last.meaning == "load 3, loop 11 from the inside, uses of each element"


def test_what_a_schedule_lacks_is_zero() -> None:
    absent = Slot("ghost", "nothing", itervar.LOOP_FEATURES, lambda schedule: None)
    assert absent.values(None) == [0] * len(itervar.LOOP_FEATURES)
    assert len(FeatureType([absent]).columns) == len(itervar.LOOP_FEATURES)
