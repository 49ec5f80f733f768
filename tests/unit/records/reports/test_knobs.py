from __future__ import annotations

import numpy as np
import pytest

from loopwright.records.reports.knobs import (
    config_text,
    config_texts,
    knobs_of,
    structure_ids,
    structure_legend,
    value_text,
    varying_knobs,
)
from loopwright.records.reports.spread import spread, spreads
from tests.unit.records.reports.made_logs import record


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([-1, 8], "[-1,8]"),
        ("vec", "vec"),
        ("true", '"true"'),
        ("absent", '"absent"'),
        (True, "true"),
        (None, "null"),
        ("a b", '"a b"'),
        ("8", '"8"'),
        (["none", "vec"], '["none","vec"]'),
        ("\x1b[31m", '"\\u001b[31m"'),
    ],
)
def test_texts_of_values(value, text):
    assert value_text(value) == text


def test_knobs_that_vary_and_texts_with_only_those():
    records = [
        record(config={"tile": [-1, 8], "order": "ij", "same": 1}),
        record(config={"tile": [-1, 4], "order": "ij", "same": 1}),
        record(config={"tile": [-1, 8], "order": "ij", "same": 1, "more": True}),
    ]
    names = varying_knobs(records)
    assert names == ["tile", "more"]
    assert config_texts(records, names) == ["tile=[-1,8]", "tile=[-1,4]", "tile=[-1,8] more=true"]
    assert config_texts(records) == [config_text(r.config) for r in records]
    assert varying_knobs(records[:1]) == []
    assert varying_knobs([]) == []


def test_ids_of_structures_are_by_appearance_and_only_for_long_names():
    long = [f'x{n}: rows in cache, "W" packed at panel' for n in range(3)]
    records = [record(n, config={"tile": n, "structure": long[n % 3]}) for n in (2, 0, 1, 2)]
    ids = structure_ids(records)
    assert ids == {value_text(long[n]): f"S{k}" for k, n in enumerate((2, 0, 1), 1)}
    assert config_texts(records, ["tile", "structure"], ids) == [
        "structure=S1 tile=2", "structure=S2 tile=0", "structure=S3 tile=1", "structure=S1 tile=2",
    ]  # fmt: skip
    assert config_text(records[1].config, ids=ids) == "structure=S2 tile=0"
    assert list(structure_legend(ids, {value_text(long[2])})) == [("S1", long[2])]
    assert config_text({"structure": "another, longer than a table", "b": 1}, ids=ids) == (
        'structure="another, longer than a table" b=1'
    )
    assert structure_ids([record(0, config={"structure": "rows in cache"})]) == {}
    assert structure_ids([record(0, config={"tile": 3})]) == {}
    no_name = {"rows": "in a cache that is large", "columns": 8}  # of a log that is damaged
    assert structure_ids([record(0, config={"structure": no_name})]) == {value_text(no_name): "S1"}


def test_one_and_true_are_two_values():
    assert varying_knobs([record(config={"a": 1}), record(config={"a": True})]) == ["a"]


def test_values_and_parts_of_knobs():
    records = [
        record(config={"tile": [-1, 8], "order": "ij"}),
        record(config={"tile": [-1, 8, 2]}),
        record(config={"tile": [-1, 8], "order": ["x"]}),
    ]
    tile, order = knobs_of(records)
    assert tile.texts == ("[-1,8]", "[-1,8,2]")
    assert tile.codes.tolist() == [0, 1, 0]
    assert tile.parts() == {
        "tile[0]": [("-1", -1), ("-1", -1)],
        "tile[1]": [("8", 8), ("8", 8)],
        "tile[2]": [("absent", None), ("2", 2)],
    }
    assert list(order.parts()) == ["order"]
    assert order.texts == ("ij", "absent", '["x"]')


def test_the_spread_is_the_distance_of_the_quartiles():
    times = [[1.0], [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.0], (), [5.0, 4.0, 3.0, 2.0, 1.0]]
    assert spreads(times) == [spread(own) for own in times] == [None, 2 / 3, 0.0, None, 2 / 3]
    rng = np.random.default_rng(0)
    own = rng.uniform(1, 2, 12)
    q = np.percentile(own, [25, 50, 75])
    assert spread(own.tolist()) == pytest.approx((q[2] - q[0]) / q[1])
