"""Ansor's cost models: predictions which programs are fast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loopwright.compat.measuring import RecordReader
from loopwright.compat.states import State
from loopwright.cost import AnalyticalModel
from loopwright.errors import RecordError, UsageError
from loopwright.files import Output, write
from loopwright.records import LOG, Record
from loopwright.space import AutomaticTask
from loopwright.task import Digits, digits_of
from loopwright.tuner import (
    CandidateBatches,
    Measurements,
    SampleOutcome,
    StructureTask,
    XGBCostModel,
    point,
    results_of,
    speed_of,
    union_of,
)

if TYPE_CHECKING:
    from loopwright.compat.measuring import MeasureInput, MeasureResult
    from loopwright.measure import MeasureResult as TrialResult
    from loopwright.task import ConfigEntity


Floats = npt.NDArray[np.float64]
Scorer = Callable[[Digits], Floats]
#: Trials of a structure that a model learns from at least.
_FIRST = 8


class CostModel(ABC):
    """The base of the cost models `XGBModel` and `RandomModel`."""

    @abstractmethod
    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from trials."""

    @abstractmethod
    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        """A function that scores points of one structure, float64 ``(n,)``; higher is faster."""

    def predict(self, task: Any, states: Sequence[State]) -> Floats:
        """Scores of states, float64 ``(n,)``; higher is faster.

        Raises:
            UsageError: a state is no point of a structure of the `SearchTask`, as a `SketchPolicy`
                makes them.
        """
        union = union_of(task.automatic_task)
        scores = np.empty(len(states))
        for number, places in placed(task.automatic_task, states).items():
            digits = digits_of(union.parts[number].config_space, [local for _, local in places])
            at = [position for position, _ in places]
            scores[at] = self.scorer(task.automatic_task, number)(digits)
        return scores


def placed(task: AutomaticTask, states: Sequence[State]) -> dict[int, list[tuple[int, int]]]:
    """Positions in ``states`` and indices in the structure, by structure."""
    union = union_of(task)
    positions: dict[int, list[tuple[int, int]]] = {}
    for position, state in enumerate(states):
        index = None if state.config is None else union.find(state.config)
        if index is None:
            raise UsageError(
                f"state {position} is no point of a structure of {task}; take those of a "
                "SketchPolicy without further steps"
            )
        number, local = union.place(index)
        positions.setdefault(number, []).append((position, local))
    return positions


class RandomModel(CostModel):
    """Random scores, from a seed: a search with it draws points at random.

    Example:
        >>> X = te.placeholder((64, 256), name="X")
        >>> Y = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="Y")
        >>> dag, model = lw.auto_scheduler.ComputeDAG(Y), lw.auto_scheduler.RandomModel()
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> states = lw.auto_scheduler.SketchPolicy(task, model).sample_initial_population()
        >>> scores = model.predict(task, states)
        >>> print(len(scores) == len(states), bool((0 <= scores).all() and (scores < 1).all()))
        True True
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn nothing."""

    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        return lambda digits: self._rng.random(len(digits))


class XGBModel(CostModel):
    """Boosted trees over an analytical model of the machine, as in `loopwright.tuner.XGBTuner`.

    It is trained when it is used, on the trials given to it; a structure with fewer than 8 trials
    is scored by the analytical model alone. The tuner of a search learns from its measurements,
    too.

    Args:
        verbose_eval: accepted: the summary of a search reports the model's quality.
        num_warmup_sample: accepted: the analytical model needs none.
        seed: accepted: predictions follow from the trials.
        model_file: keep trials in this file, and begin with those that it holds.
        adaptive_training: accepted.

    Example:
        >>> X = te.placeholder((64, 256), name="X")
        >>> Y = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="Y")
        >>> dag, model = lw.auto_scheduler.ComputeDAG(Y), lw.auto_scheduler.XGBModel()
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> states = lw.auto_scheduler.SketchPolicy(task, model).generate_sketches()
        >>> print(model.predict(task, states).shape == (len(states),))
        True
        >>> model.update_from_file("matmul.jsonl", n_lines=4)
        >>> print(len(model.records))
        4
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.records: list[Record] = []
        self.model_file = model_file
        if model_file is not None and Path(model_file).exists():
            self.load(model_file)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from trials of logs, as `RecordReader` returns them; the results of the records
        count. UsageError where an input is not from a log.
        """
        records = [item.record for item in inputs]
        if None in records:
            raise UsageError("XGBModel.update takes inputs of a log, see RecordReader")
        self._take([record for record in records if record is not None])

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from the first ``n_lines`` trials of a log, or from all; see `RecordReader`."""
        inputs, _ = RecordReader(file_name).read_lines(n_lines)
        self._take([item.record for item in inputs if item.record is not None])

    def save(self, file_name: str) -> None:
        """Write the trials that it learned from to a log, from which `load` trains the model again.

        RecordError where it cannot be written, UsageError where the file exists and is no log.
        """
        lines = "".join(f"{record.to_line()}\n" for record in self.records)
        write(Output(Path(file_name), lines.encode(), LOG), force=None, error=RecordError)

    def load(self, file_name: str) -> None:
        """Learn from a file of `save`; errors as of `update_from_file`."""
        inputs, _ = RecordReader(file_name).read_lines()
        self.records += [item.record for item in inputs if item.record is not None]

    def _take(self, found: Sequence[Record]) -> None:
        self.records += found
        if self.model_file is not None:
            self.save(self.model_file)

    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        """Log2 of calls per second of a measured task, else of the share of the machine's peak."""
        structure: Any = StructureTask(task, number)
        measured = Measurements()
        measured.add(self._trials(structure))
        if measured.ran < _FIRST:
            analytical, distance = AnalyticalModel(structure), self._distance(task)
            return lambda digits: analytical.predict(digits) + distance
        candidates = CandidateBatches(structure, "itervar", analytical=True)
        model = XGBCostModel(candidates.names)
        samples = measured.samples(candidates, len(measured))
        model.fit(samples)
        # Trees predict up to a constant, which is set by what ran.
        ran = samples.outcome != SampleOutcome.FAILED
        constant = float(np.mean(samples.score[ran] - model.predict(samples.batch)[ran]))
        return lambda digits: model.predict(candidates.batch(digits, len(measured))) + constant

    def _distance(self, task: AutomaticTask) -> float:
        """Offset from predicted shares of the peak to the unit of the task's measurements, or 0."""
        apart: list[float] = []
        for number in range(len(union_of(task).parts)):
            structure: Any = StructureTask(task, number)
            ran = [(config, speed_of(result)) for config, result in self._trials(structure)]
            ran = [(config, speed) for config, speed in ran if speed]
            if not ran:
                continue
            digits = digits_of(structure.config_space, [point(config) for config, _ in ran])
            speeds = np.log2([speed for _, speed in ran])
            apart += (speeds - AnalyticalModel(structure).predict(digits)).tolist()
        return float(np.mean(apart)) if apart else 0.0

    def _trials(self, own: StructureTask) -> list[tuple[ConfigEntity, TrialResult]]:
        space = own.config_space
        mine = [r for r in self.records if r.task == own.key and not r.phase]
        indices = [space.find(record.config) for record in mine]
        pairs = zip(indices, results_of(mine), strict=True)
        return [(space.get(n), result) for n, result in pairs if n is not None]
