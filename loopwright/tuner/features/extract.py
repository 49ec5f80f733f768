"""Rows of features for populations of candidates: what cost models learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loopwright.errors import UsageError, did_you_mean
from loopwright.task import Task
from loopwright.tuner.features import itervar
from loopwright.tuner.features.knob import KnobTable
from loopwright.tuner.features.machine import machine_of
from loopwright.tuner.features.population import Population

#: Kinds of features, AutoTVM's names.
FEATURE_TYPES = ("itervar", "knob")


@dataclass(frozen=True)
class Rows:
    """Features of n candidates.

    Attributes:
        values: float32 (n, features), finite, but for rows that failed, which are all NaN.
        failed: bool (n,): the template refuses the candidate, or raised.
    """

    values: np.ndarray
    failed: np.ndarray


class Extractor:
    """Features of a task's candidates, for whole populations at once.

    Args:
        task: the task.
        feature_type: ``"itervar"`` (loops, touched bytes, strides, reuse: the same names for every
            task, so that one model learns from many) or ``"knob"`` (what the knobs choose).
        symbolic: False instantiates every candidate; slow, for comparison.

    Attributes:
        names: one name a column.
        feature_type: as given.

    Raises:
        UsageError: unknown feature type.
    """

    def __init__(self, task: Task, feature_type: str = "itervar", symbolic: bool = True) -> None:
        if feature_type not in FEATURE_TYPES:
            raise UsageError(
                f"unknown feature type {feature_type!r}{did_you_mean(feature_type, FEATURE_TYPES)}"
                f"; there are {', '.join(FEATURE_TYPES)}"
            )
        self.task, self.feature_type = task, feature_type
        self._table = KnobTable(task.config_space) if feature_type == "knob" else None
        self.names = itervar.NAMES if self._table is None else self._table.names
        machine = machine_of(task.target)
        self._population = Population(
            task, lambda state: itervar.itervar(state, machine), itervar.LOGGED, symbolic
        )

    @property
    def derived(self) -> int:
        """How often the template has run for this extractor."""
        return self._population.derived

    def rows(self, digits: np.ndarray) -> Rows:
        """Features of candidates.

        Args:
            digits: whole numbers (n, knobs): the position of each knob's choice.
        """
        if self._table is not None:
            return Rows(self._table.rows(digits), np.zeros(len(digits), bool))
        values = self._population.evaluate(digits)
        return Rows(values, np.isnan(values[:, 0]))


def extractor(task: Task, feature_type: str = "itervar") -> Extractor:
    """The `Extractor` of a task."""
    return Extractor(task, feature_type)
