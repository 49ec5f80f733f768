"""The contract of tuners, as a test class to subclass, and a device that needs no compiler.

A test module derives from `TunerContract` and sets ``tuner`` to a class or factory::

    class TestRandom(TunerContract):
        tuner = RandomTuner

`FakeTask` and `FakeMeasurer` stand for a workload and a machine: times are a function of the index
alone, so that every run is repeatable to the digit.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from loopwright.measure import (
    ErrorKind,
    MeasureError,
    MeasureInput,
    MeasureResult,
    PlayoffPlan,
    PlayoffResult,
    played,
)
from loopwright.task import ConfigEntity, ConfigSpace
from loopwright.tuner import Summary, Tuner, point


class FakeSpace(ConfigSpace):
    """A space of the given extents, with knobs ``k0``, ``k1``, ... of the numbers below them."""

    def __init__(
        self, extents: Sequence[int], valid: Callable[[int], bool] | None = None, default: int = 0
    ) -> None:
        super().__init__()
        for number, extent in enumerate(extents):
            self.define_knob(f"k{number}", range(extent))
        self.freeze()
        #: Number of queries about the validity of a point.
        self.asked = 0
        self._valid = valid
        self._trial_0 = default

    @property
    def default_index(self) -> int:
        return self._trial_0

    @property
    def is_filtered(self) -> bool:
        return self._valid is not None

    def is_valid(self, index: int) -> bool:
        """Whether the filters accept a point; counts the queries."""
        self.asked += 1
        return self._valid is None or self._valid(index)


class FakeTask:
    """A task whose candidates are never built."""

    def __init__(self, space: FakeSpace | None = None, name: str = "fake") -> None:
        self.name, self.args = name, (8,)
        self.key = f'["{name}",[8],"llvm"]'
        self.alias = self.key
        self.flop, self.dag_hash, self.automatic = 1_000_000, "", False
        self.config_space = FakeSpace((8, 8)) if space is None else space
        self.target = SimpleNamespace(
            keys=("cpu",),
            kind="llvm",
            canonical={"kind": "llvm", "num_threads": 1},
            options={"num_threads": 1},
            vector_bytes=64,
            vector_registers=32,
        )

    def instantiate(self, config: ConfigEntity) -> tuple[Any, list[Any]]:
        """A schedule that has a hash and a trace, and nothing else."""
        dag = SimpleNamespace(hash="fakedag")
        return SimpleNamespace(dag=dag, trace_json=lambda: [["Fake", config.index]]), []


class FakeMeasurer:
    """Gives each index a fixed time in seconds, or the error kind of ``fails``.

    ``interrupt_after`` raises KeyboardInterrupt in place of this result, counted from 0;
    ``on_trial`` is called with the index before each result.
    """

    def __init__(
        self,
        time: Callable[[int], float] = lambda index: 1e-3 * (1 + index * 7919 % 101),
        fails: Callable[[int], str | None] = lambda index: None,
        interrupt_after: int | None = None,
        on_trial: Callable[[int], object] = lambda index: None,
    ) -> None:
        self.time, self.fails, self.on_trial = time, fails, on_trial
        self.interrupt_after = interrupt_after
        self.measured: list[int] = []
        self.incumbents: list[float | None] = []
        self.playoffs: list[list[int | None]] = []
        self.timing = {"build": 0.25, "run": 0.5}

    def __enter__(self) -> FakeMeasurer:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        for item in inputs:
            index = point(item.config)
            self.on_trial(index)
            if len(self.measured) == self.interrupt_after:
                raise KeyboardInterrupt
            self.measured.append(index)
            self.incumbents.append(incumbent)
            yield self.result(index)

    def result(self, index: int) -> MeasureResult:
        kind = self.fails(index)
        if kind is not None:
            return MeasureResult(error=MeasureError(kind, f"index {index} failed"), ts=1.0)
        seconds = self.time(index)
        return MeasureResult(times=(seconds, seconds * 1.01, seconds * 0.99), ts=1.0)

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        return [self.result(point(config)) for config in configs]

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        result = played(candidates, plan, self.times_again)
        self.playoffs.append([point(finalist.config) for finalist in result.finalists])
        return result

    def times_again(self, config: ConfigEntity) -> list[float]:
        return [self.time(point(config))] * 20


#: Times by index, equal in every process; what is minimal is neither first nor last.
def bowl(index: int) -> float:
    return 1e-3 * (1 + abs(index - 37))


_OTHER_PROCESS = """
import json, sys
from loopwright.testing import tuner_contract as contract
module, name, extents, seed, options = json.loads(sys.argv[1])
make = getattr(__import__(module, fromlist=[name]), name)
print(json.dumps(contract.proposals(make, extents, seed, 40, **options)))
"""


def proposals(
    make: Callable[..., Tuner], extents: Sequence[int], seed: int, n_trial: int, **options: Any
) -> list[int]:
    """The indices that a run of ``n_trial`` trials measures, in order."""
    measurer = FakeMeasurer(bowl)
    tuner = make(FakeTask(FakeSpace(extents)), seed=seed, **options)
    tuner.tune(n_trial=n_trial, measure_option=measurer)
    return measurer.measured


class TunerContract:
    """Subclass, and set ``tuner`` to the class under test."""

    tuner: ClassVar[Callable[..., Tuner]]
    options: ClassVar[dict[str, Any]] = {}  # of the constructor, beside task and seed
    random: ClassVar[bool] = True  # whether other seeds give other proposals

    def make(self, space: FakeSpace | None = None, seed: int = 0) -> Any:
        return type(self).tuner(FakeTask(space), seed=seed, **self.options)

    def run(
        self, space: FakeSpace | None = None, seed: int = 0, **budget: Any
    ) -> tuple[FakeMeasurer, Summary]:
        measurer = FakeMeasurer(bowl)
        summary = self.make(space, seed).tune(measure_option=measurer, **budget)
        return measurer, summary

    def test_ask_returns_distinct_points_of_the_space(self) -> None:
        tuner = self.make()
        first = [c.index for c in tuner.ask(10)]
        second = [c.index for c in tuner.ask(10)]
        assert len(first) == len(second) == 10
        assert len({*first, *second}) == 20
        assert all(0 <= index < 64 for index in (*first, *second))

    def test_ask_for_nothing_gives_nothing(self) -> None:
        assert self.make().ask(0) == []

    def test_told_points_are_never_proposed(self) -> None:
        tuner = self.make()
        told = [tuner.space.get(index) for index in range(0, 64, 2)]
        tuner.tell([(config, FakeMeasurer(bowl).result(config.index)) for config in told])
        rest = [c.index for c in tuner.ask(64)]
        assert sorted(rest) == list(range(1, 64, 2))

    def test_a_space_is_covered_exactly_once_and_then_exhausted(self) -> None:
        measurer, summary = self.run(FakeSpace((5, 7)))
        assert sorted(measurer.measured) == list(range(35))
        assert summary.stopped == "exhausted"
        assert summary.trials == 35

    @pytest.mark.parametrize("extents", [(), (1,), (2,), (1, 1, 3)])
    def test_tiny_spaces(self, extents: tuple[int, ...]) -> None:
        measurer, summary = self.run(FakeSpace(extents), n_trial=100)
        assert sorted(measurer.measured) == list(range(math.prod(extents)))
        assert summary.stopped == "exhausted"

    def test_a_space_of_a_million_million_points(self) -> None:
        space = FakeSpace((100,) * 6)
        measurer, _ = self.run(space, n_trial=100)
        assert len(set(measurer.measured)) == 100
        assert space.asked < 20_000

    def test_invalid_points_are_skipped(self) -> None:
        measurer, summary = self.run(FakeSpace((8, 8), valid=lambda i: i % 5 == 2, default=2))
        assert sorted(measurer.measured) == list(range(2, 64, 5))
        assert summary.stopped == "exhausted"

    def test_validity_is_asked_lazily(self) -> None:
        space = FakeSpace((64, 64), valid=lambda i: i % 2 == 0)
        self.make(space).ask(8)
        assert space.asked < 1000

    def test_a_space_without_valid_points_ends(self) -> None:
        space = FakeSpace((8, 8), valid=lambda i: False)
        tuner = self.make(space)
        assert tuner.ask(4) == []
        assert not tuner.has_next()
        assert "64" in tuner.why_empty

    def test_a_budget_is_kept(self) -> None:
        measurer, summary = self.run(n_trial=21)
        assert len(measurer.measured) == 21
        assert summary.stopped == "n_trial"

    def test_the_default_is_trial_0(self) -> None:
        measurer, _ = self.run(FakeSpace((8, 8), default=29), n_trial=20)
        assert measurer.measured[0] == 29
        assert len(set(measurer.measured)) == 20

    def test_one_seed_one_sequence(self) -> None:
        args = (type(self).tuner, (8, 8))
        assert proposals(*args, 3, 40, **self.options) == proposals(*args, 3, 40, **self.options)

    def test_other_seeds_other_sequences(self) -> None:
        sequences = {
            tuple(proposals(type(self).tuner, (8, 8), seed, 40, **self.options))
            for seed in range(4)
        }
        assert len(sequences) == (4 if self.random else 1)

    def test_one_seed_one_sequence_in_another_process(self) -> None:
        make: Any = type(self).tuner
        question = [make.__module__, make.__qualname__, [8, 8], 3, self.options]
        root = str(Path(__file__).parents[2])
        answer = subprocess.run(
            [sys.executable, "-c", _OTHER_PROCESS, json.dumps(question)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "12345"},
        )
        assert json.loads(answer.stdout) == proposals(make, (8, 8), 3, 40, **self.options)

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls) -> list[int]:
        return proposals(cls.tuner, (8, 8), 5, 48, **cls.options)

    @pytest.mark.parametrize("cut", [0, 1, 5, 15, 16, 17, 31, 32, 40])
    def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
        self, tmp_path: Path, whole: list[int], cut: int
    ) -> None:
        from loopwright.tuner import TuningInterrupted, log_to_file

        log = log_to_file(tmp_path / "log.jsonl")
        first = FakeMeasurer(bowl, interrupt_after=cut)
        with pytest.raises(TuningInterrupted) as stopped:
            self.make(seed=5).tune(n_trial=48, measure_option=first, callbacks=[log])
        assert stopped.value.summary.measured == cut
        second = FakeMeasurer(bowl)
        summary = self.make(seed=5).tune(n_trial=48, measure_option=second, callbacks=[log])
        assert first.measured + second.measured == whole
        assert summary.from_log == cut

    def test_best_is_the_lowest_median(self) -> None:
        tuner = self.make()
        tuner.tune(measure_option=FakeMeasurer(bowl))
        assert tuner.best is not None
        assert tuner.best_config is tuner.best[0]
        assert tuner.best[0].index == 37
        assert tuner.best_measure_pair is not None
        inp, result = tuner.best_measure_pair
        assert (inp.config, inp.task, result) == (tuner.best_config, tuner.task, tuner.best[1])
        assert inp.trial == tuner.best_iter
        assert tuner.best_flops == pytest.approx(tuner.task.flop / bowl(37))

    def test_failures_are_told_and_never_best(self) -> None:
        measurer = FakeMeasurer(bowl, fails=lambda i: ErrorKind.COMPILE if i == 37 else None)
        tuner = self.make()
        summary = tuner.tune(measure_option=measurer)
        assert tuner.best_config is not None
        assert tuner.best_config.index in (36, 38)
        assert summary.failures[ErrorKind.COMPILE].count == 1

    def test_the_old_names_are_the_new_ones(self) -> None:
        tuner = self.make()
        batch = tuner.next_batch(4)
        inputs = [MeasureInput(tuner.task, config, i) for i, config in enumerate(batch)]
        tuner.update(inputs, [FakeMeasurer(bowl).result(c.index) for c in batch])
        assert tuner.trials == 4
        assert tuner.best is not None
        assert tuner.best[0].index == min((c.index for c in batch), key=bowl)
        tuner.reset()
        assert (tuner.trials, tuner.best, tuner.visited) == (0, None, set())
