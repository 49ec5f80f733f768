"""A model of what a log holds of one task."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from loopwright import ops
from loopwright.cost.features import Extractor
from loopwright.errors import UsageError
from loopwright.records import Record
from loopwright.task import Task, create_task
from loopwright.tuner import learn
from loopwright.tuner.model.cost_model import Batch


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task(ops.matmul, args=(128, 128, 128), target="llvm -mcpu=skylake-avx512")


def seconds(task: Task, index: int) -> float:
    """A made-up time that a knob decides."""
    return 1e-3 * 2.0 ** -(task.config_space.point2knob(index)[0] / 4)


def record(task: Task, index: int, **fields: object) -> Record:
    given = {
        "task": task.alias, "op": task.name, "args": list(task.args), "target": {"kind": "llvm"},
        "config": task.config_space.get(index).values, "times": (seconds(task, index),),
    }  # fmt: skip
    return Record(**{**given, **fields})  # type: ignore[arg-type]


def points(task: Task, count: int, seed: int) -> list[int]:
    size = task.config_space.range_length
    return [int(i) for i in np.random.default_rng(seed).choice(size, count, replace=False)]


def scores(task: Task, model, indices: list[int], kind: str = "itervar"):
    digits = np.array([task.config_space.point2knob(i) for i in indices])
    return model.predict(Batch.plain(Extractor(task, kind).rows(digits).values))


@pytest.mark.parametrize("kind", ["itervar", "knob"])
def test_it_orders_what_it_has_not_seen(task: Task, kind: str) -> None:
    model = learn(task, [record(task, i) for i in points(task, 150, 0)], kind)
    unseen = points(task, 100, 1)
    truth = [1 / seconds(task, i) for i in unseen]
    assert spearmanr(scores(task, model, unseen, kind), truth).statistic > 0.9


def test_other_machines_are_not_compared(task: Task) -> None:
    some = points(task, 160, 0)
    here = [record(task, i) for i in some[:80]]
    there = [
        dataclasses.replace(record(task, i), times=(1000 * seconds(task, i),), env={"cpu": "old"})
        for i in some[80:]
    ]
    model = learn(task, here + there)
    found = scores(task, model, some)
    # 1000 times slower would be ten powers of two.
    assert abs(found[:80].mean() - found[80:].mean()) < 1


def test_the_later_measurement_counts(task: Task) -> None:
    some = points(task, 40, 0)
    wrong = [dataclasses.replace(record(task, i), times=(1e-3 * (i % 7 + 1),)) for i in some]
    right = [record(task, i) for i in some]
    assert len(learn(task, wrong + right).samples) == 40
    assert scores(task, learn(task, wrong + right), some) == pytest.approx(
        scores(task, learn(task, right), some)
    )


def test_what_is_of_no_use_is_passed_over(task: Task) -> None:
    other = create_task(ops.matmul, args=(64, 64, 64), target="llvm -mcpu=skylake-avx512")
    failed = {"times": (), "error": {"kind": "COMPILE", "text": "no"}}
    useless = [
        record(other, 0),
        record(task, 0, config={"tile_i": [-1, 7]}),
        record(task, 0, config={**task.config_space.get(0).values, "unroll_k": "x"}),
        record(task, 1, **failed),
    ]
    assert not learn(task, useless).ready
    assert not learn(task, []).ready
    known = [record(task, i) for i in points(task, 30, 0)]
    assert len(learn(task, known + useless).samples) == 31  # a failure teaches


def test_options_are_checked(task: Task) -> None:
    with pytest.raises(UsageError, match="unknown feature type 'itrevar'"):
        learn(task, [], "itrevar")
    with pytest.raises(UsageError, match="unknown loss_type 'rnak'"):
        learn(task, [], loss_type="rnak")
