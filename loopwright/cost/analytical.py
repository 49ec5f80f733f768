"""A cost model that needs no measurements."""

from __future__ import annotations

import math

import numpy as np

from loopwright.cost.cpu import cycles as cpu_cycles
from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.gpu import cycles as gpu_cycles
from loopwright.cost.gpu.device import device_of
from loopwright.cost.symbolic.candidates import Derive
from loopwright.cost.symbolic.population import Population
from loopwright.schedule.state import StageId, State
from loopwright.target import Target
from loopwright.task.interfaces import Scheduler


class AnalyticalModel:
    """Predicts how fast candidates are from their schedules alone.

    `loopwright.cost.cpu.cycles` says what goes into it, and for targets of the family ``gpu``
    `loopwright.cost.gpu.cycles`.

    Args:
        task: the task, or a structure of an automatic space.
    """

    def __init__(self, task: Scheduler) -> None:
        self._population = Population(task, _slowdown(task.target), (False,))

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


def predicted(state: State, target: Target) -> float:
    """What `AnalyticalModel` predicts of one schedule, which need be no point of a space.

    Args:
        state: the schedule's state, all of whose numbers are known.
        target: for what it is.

    Returns:
        The predicted log2 of the speed as a share of the machine's peak; NaN where there is none.
    """
    (slow,) = _slowdown(target)(state)
    return -math.log2(float(slow)) if 0 < float(slow) < math.inf else math.nan


def cycles(state: State, target: Target) -> float:
    """The cycles of one call of a schedule, as `AnalyticalModel` has it.

    Args:
        state: the schedule's state, all of whose numbers are known.
        target: for what it is.

    Returns:
        Cycles of a core (a processor of a GPU); infinite where the model has nothing to say.
    """
    if "gpu" in target.keys:
        found = float(gpu_cycles.cycles(state, device_of(target)))
    else:
        found = float(cpu_cycles.cycles(state, machine_of(target), _constants(state)))
    return found if 0 < found < math.inf else math.inf


def _slowdown(target: Target) -> Derive:
    """What derives from a schedule how much longer it takes than its arithmetic at the peak."""
    if "gpu" in target.keys:
        device = device_of(target)
        return lambda state: [gpu_cycles.slowdown(state, device)]
    machine = machine_of(target)
    return lambda state: [cpu_cycles.slowdown(state, machine, _constants(state))]


def _constants(state: State) -> list[StageId]:
    """The inputs that are known before a program is called."""
    return [sid for sid, stage in state.stages.items() if stage.op.constant]
