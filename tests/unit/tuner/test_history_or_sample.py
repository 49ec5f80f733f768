"""A task without a record gets a sampled configuration, or the best of a short search."""

from __future__ import annotations

from typing import ClassVar

import pytest
from loopwright.autotvm.task import ApplyHistoryBestOrSample

from loopwright import te
from loopwright.errors import LoopwrightError, TaskError, UsageError
from loopwright.lowering import lower
from loopwright.measure import MeasureResult
from loopwright.measure.interfaces import played
from loopwright.target import Target
from loopwright.task import Match, create_task, get_config, template


@template("test/or_sample")
def tiled(n):
    cfg = get_config()
    cfg.define_split("i", n)
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] + a[i], name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=cfg["i"].size[-1])
    if cfg["i"].size[-1] == n:
        s[b].vectorize(outer)
        s[b].vectorize(inner)  # two vectorised loops in one another: not a program
    return s, [a, b]


class Counting:
    """A measurer that knows what is fastest: inner sizes of 8."""

    timing: ClassVar[dict[str, float]] = {}

    def __init__(self):
        self.measured = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def measure(self, inputs, incumbent=None):
        for item in inputs:
            self.measured.append(item.config.values["i"][-1])
            yield MeasureResult((self.seconds(item.config),))

    def playoff(self, candidates, plan):
        return played(candidates, plan, lambda config: [self.seconds(config)] * 6)

    def measure_again(self, configs, windows=5):
        return [MeasureResult((self.seconds(config),)) for config in configs]

    def seconds(self, config):
        return 1e-3 * (1 + abs(config.values["i"][-1] - 8))


def factor(scheduled):
    return scheduled[0].trace_json()[0][3]


def test_a_random_configuration_is_sampled_once():
    found = set()
    with Target("llvm -num-threads=1"):
        for seed in range(8):
            with ApplyHistoryBestOrSample(seed=seed) as history:
                found.add(factor(tiled(64)))
                assert factor(tiled(64)) in found
            assert history.report()[0].match is Match.GIVEN
    assert len(found) > 2
    assert 64 not in found  # what cannot be lowered is passed over


def test_a_short_search_is_measured_and_remembered():
    device = Counting()
    with Target("llvm -num-threads=1"):
        task = create_task(tiled, (64,))
        with ApplyHistoryBestOrSample(num_measure=6, measure_option=device) as history:
            config = history.query(task.target, task)
            best = min(device.measured, key=lambda size: abs(size - 8))
            assert config.values["i"][-1] == best
            assert factor(tiled(64)) == best
    assert len(device.measured) == 6
    assert history.report()[0].record is not None


def test_bad_requests():
    with pytest.raises(UsageError, match="num_measure is -1"):
        ApplyHistoryBestOrSample(num_measure=-1)

    with Target("llvm -num-threads=1"), ApplyHistoryBestOrSample():
        with pytest.raises(LoopwrightError):
            lower(*create_task(tiled, (1,)).instantiate(0))
        with pytest.raises(TaskError, match="none of 64 random configurations can be lowered"):
            tiled(1)
