"""A cost model that needs no measurements."""

from __future__ import annotations

import numpy as np

from loopwright.cost.cpu.cycles import slowdown
from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.symbolic.population import Population
from loopwright.task import Task


class AnalyticalModel:
    """Predicts how fast candidates are from their schedules alone.

    `loopwright.cost.cpu.cycles` says what goes into it.

    Args:
        task: the task.
    """

    def __init__(self, task: Task) -> None:
        machine = machine_of(task.target)
        self._population = Population(task, lambda state: [slowdown(state, machine)], (False,))

    def predict(self, digits: np.ndarray) -> np.ndarray:
        """The predicted log2 of the speed as a share of the machine's peak; higher is better.

        Args:
            digits: whole numbers (n, knobs): the position of each knob's choice.

        Returns:
            float64 (n,), finite. A candidate whose template fails gets the lowest value of the
            others, 0 where there is none.
        """
        slow = self._population.evaluate(digits)[:, 0].astype(np.float64)
        good = np.isfinite(slow) & (slow > 0)
        out = np.zeros(len(slow))
        out[good] = -np.log2(slow[good])
        if good.any():
            out[~good] = out[good].min()
        return out
