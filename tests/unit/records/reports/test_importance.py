from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from loopwright.errors import RecordError
from loopwright.records.reports.importance import importance, rank_correlation
from tests.unit.records.reports.made_logs import record


def made(function, **values):
    """A record for each combination, with exp(function) milliseconds."""
    names = list(values)
    return [
        record(i, 1e-3 * math.exp(function(*point)), config=dict(zip(names, point, strict=True)))
        for i, point in enumerate(itertools.product(*values.values()))
    ]


def test_shares_of_a_function_whose_variance_is_known():
    # Independent knobs: the variances add up. tile: 0.5^2 * var(0..7) = 1.3125; unroll: 0.25;
    # order: var(0, 0, 0.9) = 0.18; idle: none.
    records = made(
        lambda tile, unroll, order, idle: 0.5 * math.log2(tile[1]) + unroll + 0.9 * (order == "ji"),
        tile=[[-1, 2**k] for k in range(8)],
        unroll=[False, True],
        order=["ij", "kj", "ji"],
        idle=[1, 2, 3],
    )
    found = importance(records)
    total = 1.3125 + 0.25 + 0.18
    shares = {effect.knob: effect.share for effect in found.knobs}
    assert list(shares)[:3] == ["tile", "unroll", "order"]
    assert shares["tile"] == pytest.approx(1.3125 / total, abs=0.03)
    assert shares["unroll"] == pytest.approx(0.25 / total, abs=0.03)
    assert shares["order"] == pytest.approx(0.18 / total, abs=0.03)
    assert shares["idle"] < 0.01
    assert found.together < 0.04
    assert (found.records, found.learned, found.dropped) == (144, 144, 0)
    assert found.rank_correlation > 0.9


def test_the_best_and_the_worst_value_and_what_they_cost():
    records = (
        made(
            lambda tile, order: 0.5 * tile + math.log(3) * (order == "ji"),
            tile=[1, 2, 3, 4, 5],
            order=["ij", "ji"],
        )
        * 3
    )
    tile, order = sorted(importance(records).knobs, key=lambda effect: effect.knob, reverse=True)
    assert (tile.best.value, tile.worst.value) == (1, 5)
    assert tile.worst.slower == pytest.approx(math.exp(2.0), rel=0.1)
    assert (order.best.text, order.worst.text) == ("ij", "ji")
    assert order.best.slower == 1.0
    assert order.worst.slower == pytest.approx(3.0, rel=0.1)
    assert order.worst.count == 15
    assert order.worst.fastest == pytest.approx(3e-3 * math.exp(0.5))
    assert order.of("ji") == order.worst
    assert order.of("no such") is None


def test_what_only_combinations_explain_is_not_given_to_a_knob():
    # x * y of -1 and 1: both marginals are flat.
    records = made(lambda x, y: 0.5 * x * y, x=[-1, 1], y=[-1, 1]) * 10
    found = importance(records)
    assert max(effect.share for effect in found.knobs) < 0.02
    assert found.together > 0.96


def test_knobs_of_different_structures_and_odd_values():
    records = [
        record(i, 1e-3 * (1 + (i % 2)), config={"a": 10**30 if i % 2 else None, "n": i % 3})
        for i in range(30)
    ]
    records += [record(i, 8e-3, config={"b": [[1, 2], "x"], "n": i % 3}) for i in range(30)]
    shares = {effect.knob: effect for effect in importance(records).knobs}
    assert set(shares) == {"a", "b", "n"}
    assert shares["b"].best.text == "absent"
    assert shares["n"].share < 0.05


def test_the_same_records_give_the_same_answer():
    rng = np.random.default_rng(2)
    records = [
        record(i, float(rng.uniform(1, 2)), config={"a": i % 7, "b": i % 5}) for i in range(60)
    ]
    assert importance(records) == importance(records)
    assert importance(records).rank_correlation < 0.5  # there is nothing to learn


def test_too_little_to_learn_from():
    few = [record(i, 1e-3 + i) for i in range(19)] + [record(i, None) for i in range(30)]
    with pytest.raises(RecordError, match="from 19 records with a time; tune until there are 20"):
        importance(few)
    with pytest.raises(RecordError, match="no knob varies among the 25 records"):
        importance([record(i, 1e-3 + i, config={"a": 1}) for i in range(25)])
    with pytest.raises(RecordError, match="have the same time"):
        importance([record(i) for i in range(25)])


def test_the_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, 200), rng.normal(size=200) + np.arange(200) / 50
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) == 0.0
