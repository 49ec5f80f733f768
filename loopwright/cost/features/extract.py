"""Rows of features for populations of candidates: what cost models learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loopwright.cost.cpu.machine import Machine, machine_of
from loopwright.cost.features import curve, itervar
from loopwright.cost.features.knob import KnobTable
from loopwright.cost.symbolic.population import Population
from loopwright.cost.symbolic.symbols import Number
from loopwright.errors import UsageError, did_you_mean
from loopwright.schedule.state import State
from loopwright.task import Task

#: Kinds of features, AutoTVM's names.
FEATURE_TYPES = ("itervar", "knob", "curve")
_Derive = Callable[[State, Machine], list[Number]]
#: Names, which are logarithms, and how they are derived from a schedule.
_DERIVED: dict[str, tuple[tuple[str, ...], tuple[bool, ...], _Derive]] = {
    "itervar": (itervar.NAMES, itervar.LOGGED, itervar.itervar),
    "curve": (curve.NAMES, curve.LOGGED, curve.curve),
}


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
        feature_type: ``"itervar"`` (loops, touched bytes, strides, reuse) and ``"curve"`` (touched
            bytes and reuse against iterations) have the same names for every task, so that one
            model learns from many; ``"knob"`` is what the knobs of this one space choose.
        symbolic: False instantiates every candidate; slow, for comparison.

    Attributes:
        names: one name a column.
        logged: for each column whether it is ``log2(1 + x)`` of what its name says.
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
        self._table: KnobTable | None = None
        self._population: Population | None = None
        if feature_type == "knob":
            self._table = KnobTable(task.config_space)
            self.names = self._table.names
            self.logged = (False,) * len(self.names)
            return
        self.names, self.logged, derive = _DERIVED[feature_type]
        machine = machine_of(task.target)
        self._population = Population(
            task, lambda state: derive(state, machine), self.logged, symbolic
        )

    @property
    def derived(self) -> int:
        """How often the template has run for this extractor."""
        return 0 if self._population is None else self._population.derived

    def rows(self, digits: np.ndarray) -> Rows:
        """Features of candidates.

        Args:
            digits: whole numbers (n, knobs): the position of each knob's choice.
        """
        if self._table is not None:
            return Rows(self._table.rows(digits), np.zeros(len(digits), bool))
        assert self._population is not None
        values = self._population.evaluate(digits)
        return Rows(values, np.isnan(values[:, 0]))


def extractor(task: Task, feature_type: str = "itervar") -> Extractor:
    """The `Extractor` of a task."""
    return Extractor(task, feature_type)
