"""Searches among recorded points: what is left out, and what a teacher is worth where it knows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.transfer import pools as pools_module
from benchmarks.transfer.pools import RECORDS, WAYS, Pool, pools, read, run, search, teach
from benchmarks.transfer.workloads import WORKLOADS
from loopwright import te
from tests.unit.tuner.samples import samples_of


def pool(name, seed, sign=1.0):
    """Points whose speed follows from their first two features."""
    rng = np.random.default_rng(seed)
    features = rng.random((96, 5)).astype(np.float32)
    score = sign * (4 * features[:, 0] - 3 * features[:, 1]).astype(np.float64)
    samples = samples_of(features, score, task=np.full(96, seed))
    return Pool(name, samples, np.exp2(score - score.max()))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_a_search_picks_every_point_at_most_once(way):
    own, other = pool("a", 0), pool("b", 1)
    asked = search(own, way, teach([other], way.analytical), seed=3, trials=40)
    assert len(asked) == len(set(asked)) == 40
    assert search(own, way, teach([other], way.analytical), seed=3, trials=40) == asked


def test_what_others_teach_is_found_at_once():
    found = [pool("a", 0), pool("b", 1), pool("c", 2)]
    alone, taught = (
        next(w for w in WAYS if w.label == f"learned{t}") for t in ("", ", pretrained")
    )
    best = {way.label: np.median(run(found, way, 0, 5, 32)[:, 7]) for way in (alone, taught)}
    assert best["learned, pretrained"] > best["learned"]
    assert best["learned, pretrained"] > 0.9


def test_a_workload_does_not_teach_itself(monkeypatch):
    heard = []
    monkeypatch.setattr(
        pools_module, "teach", lambda others, analytical: heard.extend(others) or None
    )
    found = [pool("a", 0), pool("b", 1), pool("a", 2)]
    run(found, WAYS[2], 0, 1, 16)
    assert [other.name for other in heard] == ["b"]


@pytest.mark.slow
def test_the_records_that_come_along_can_be_described():
    log = read(RECORDS)
    names = {te.Dag.from_ops([make()[-1].op])[0].hash: name for name, make in WORKLOADS.items()}
    few = [r for r in log if r.dag == next(iter(names))]
    log.records[:] = few[:48]
    (first, *_) = pools(log, names, "itervar")
    assert first.name == "product 512x512x512"
    assert not first.samples.batch.failed.any()
    assert first.share.max() == 1.0
