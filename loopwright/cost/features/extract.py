"""Feature rows for populations of candidates, the input of cost models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.features import itervar, kernel, per_store
from loopwright.cost.features.feature import FeatureColumn, FeatureType
from loopwright.cost.gpu.device import device_of
from loopwright.cost.symbolic.evaluation import constant_row
from loopwright.cost.symbolic.population import Population
from loopwright.cost.symbolic.symbols import Number
from loopwright.errors import UsageError, did_you_mean
from loopwright.schedule import State
from loopwright.target import Target
from loopwright.task import ConfigSpace, Digits, Scheduler


class KnobTable:
    """Columns of all candidates of knobs, such as ``tile_i.2`` (innermost size) or ``order``."""

    def __init__(self, space: ConfigSpace) -> None:
        named = [
            (name, k, np.array(values, np.float32))
            for k, knob in enumerate(space.knobs.values())
            for name, values in knob.columns()
        ]
        self.columns = tuple(FeatureColumn(name) for name, _, _ in named)
        self._values = [(k, values) for _, k, values in named]

    def rows(self, digits: Digits) -> npt.NDArray[np.float32]:
        """Columns, float32 (n, columns), of int64 (n, knobs), the positions of choices."""
        out = np.empty((len(digits), len(self.columns)), np.float32)
        for column, (knob, values) in enumerate(self._values):
            out[:, column] = values[digits[:, knob]]
        return out


#: Kinds of features, by the names of AutoTVM and of Ansor.
FEATURE_TYPES = ("itervar", "knob", "curve", "per_store")
#: Kinds of features derived from schedules.
_DERIVED = {
    "itervar": itervar.FEATURES,
    "curve": itervar.CURVE_FEATURES,
    "per_store": per_store.FEATURES,
}
#: The same for targets of the family ``gpu``. Caches and threads of the host that tunes, and the
#: register tile of one of its cores, say nothing of a kernel: they are left out.
_OF_KERNELS = {
    name: FeatureType([*kernel.SLOTS, *(slot.without_host() for slot in features.slots)])
    for name, features in _DERIVED.items()
}


@dataclass(frozen=True)
class FeatureRows:
    #: float32 (n, features), finite, but all NaN in rows that failed
    values: npt.NDArray[np.float32]
    failed: npt.NDArray[np.bool_]  # bool (n,): the template refuses the candidate, or raised


class StateFeatures:
    """Features of single schedules, points of a space or not; ``"knob"`` is no type of them."""

    def __init__(self, target: Target, feature_type: str) -> None:
        self._machine = machine_of(target)
        self._device = device_of(target) if "gpu" in target.keys else None
        self._features = (_DERIVED if self._device is None else _OF_KERNELS)[feature_type]
        self.columns: tuple[FeatureColumn, ...] = self._features.columns
        self._logged = np.array([column.logged for column in self.columns], bool)

    def values(self, state: State) -> list[Number]:
        """Number for each column, before taking logarithms; split factors may be `Sym`."""
        return self._features.values(state, self._machine, self._device)

    def row(self, state: State) -> npt.NDArray[np.float32]:
        """Features of a schedule without unknown numbers, float32 (columns,)."""
        return constant_row([float(x) for x in self.values(state)], self._logged)


class Extractor:
    """Features of a task's candidates, for whole populations at once.

    The types ``"itervar"`` (loops, touched bytes, strides, reuse), ``"curve"`` (touched bytes and
    reuse against iterations) and ``"per_store"`` (Ansor's 164 numbers of every statement) have the
    same columns for every task; ``"knob"`` has the choices of the knobs of one space. Rows of the
    family ``gpu`` begin with features of kernels and have none of a CPU's cores and caches.
    ``symbolic=False`` instantiates every candidate: slow, for comparison.
    """

    def __init__(
        self, task: Scheduler, feature_type: str = "itervar", symbolic: bool = True
    ) -> None:
        if feature_type not in FEATURE_TYPES:
            raise UsageError(
                f"unknown feature type {feature_type!r}{did_you_mean(feature_type, FEATURE_TYPES)}"
                f"; there are {', '.join(FEATURE_TYPES)}"
            )
        self.task, self.feature_type = task, feature_type
        self.columns: tuple[FeatureColumn, ...]
        self._table: KnobTable | None = None
        self._population: Population | None = None
        if feature_type == "knob":
            self._table = KnobTable(task.config_space)
            self.columns = self._table.columns
            return
        described = StateFeatures(task.target, feature_type)
        self.columns = described.columns
        self._population = Population(task, described.values, self.logged, symbolic)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def logged(self) -> tuple[bool, ...]:
        """For each column, whether it is ``log2(1 + x)`` of the named quantity."""
        return tuple(column.logged for column in self.columns)

    @property
    def derived(self) -> int:
        """Number of times that the template has run for this extractor."""
        return 0 if self._population is None else self._population.derived

    def rows(self, digits: Digits) -> FeatureRows:
        """Features of candidates; ``digits`` is int64 (n, knobs), the positions of choices."""
        if self._table is not None:
            return FeatureRows(self._table.rows(digits), np.zeros(len(digits), bool))
        assert self._population is not None
        values = self._population.evaluate(digits)
        return FeatureRows(values, np.isnan(values[:, 0]))
