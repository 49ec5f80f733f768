"""Models that need no measurements: speed, and excess over the limits of a device."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from loopwright.cost.cpu import cycles as cpu_cycles
from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.gpu import cycles as gpu_cycles
from loopwright.cost.gpu.device import GpuProperties, device_of
from loopwright.cost.gpu.kernel import kernels_of
from loopwright.cost.symbolic.population import Derive, Population, Rows
from loopwright.cost.symbolic.symbols import Number, largest, most
from loopwright.schedule import StageId, State
from loopwright.target import Target
from loopwright.task import Digits, Scheduler


class AnalyticalModel:
    """Predicts the speed of candidates from their schedules, by `cpu.cycles` or `gpu.cycles`."""

    def __init__(self, task: Scheduler) -> None:
        self._population = Population(task, _slowdown(task.target), (False,))

    def predict(self, digits: np.ndarray) -> np.ndarray:
        """Predicted log2 of the speed as a share of the machine's peak, float64 (n,), finite.

        ``digits`` (n, knobs) has the position of each knob's choice. A candidate whose template
        fails gets the lowest value of the others, or 0 where there are none.
        """
        out = _speeds(self._population.evaluate(digits))
        good = np.isfinite(out)
        out[~good] = 0
        if good.any():
            out[~good] = out[good].min()
        return out

    def predict_each(self, digits: np.ndarray) -> np.ndarray:
        """`predict` for few candidates, each of which is derived by itself, without symbols; NaN
        where a template fails."""
        return _speeds(self._population.each(digits))


def _speeds(rows: Rows) -> npt.NDArray[np.float64]:
    """log2 of the speeds of candidates, given those of their times; NaN where there is none."""
    slow = rows[:, 0].astype(np.float64)
    good = np.isfinite(slow) & (slow > 0)
    return np.where(good, -np.log2(slow, where=good, out=np.zeros(len(slow))), np.nan)


def predicted(state: State, target: Target) -> float:
    """Prediction of `AnalyticalModel` for a schedule without unknowns; NaN where there is none."""
    (slow,) = _slowdown(target)(state)
    return -math.log2(float(slow)) if 0 < float(slow) < math.inf else math.nan


def cycles(state: State, target: Target) -> float:
    """Core cycles (on a GPU, of a processor) of one call of a schedule; infinite if unknown."""
    if "gpu" in target.keys:
        found = float(gpu_cycles.cycles(state, device_of(target)))
    else:
        found = float(cpu_cycles.cycles(state, machine_of(target), _constants(state)))
    return found if 0 < found < math.inf else math.inf


def _slowdown(target: Target) -> Derive:
    """Function that derives from a schedule its time over that of its arithmetic at the peak."""
    if "gpu" in target.keys:
        device = device_of(target)
        return lambda state: [gpu_cycles.slowdown(state, device)]
    machine = machine_of(target)
    return lambda state: [cpu_cycles.slowdown(state, machine, _constants(state))]


def _constants(state: State) -> list[StageId]:
    return [sid for sid, stage in state.stages.items() if stage.op.constant]


#: Limits, and the factor by which a candidate must exceed each. Threads and shared memory are known
#: almost exactly; compilers may need far fewer registers than estimated.
MARGINS = {
    "threads of a block": 1.25,
    "shared memory": 1.25,
    "local memory": 1.25,
    "registers": 2.0,
}


# Resources are estimated before anything is built, so only a large excess counts;
# `loopwright.lowering.gpu_limits` checks the lowered program exactly.


class Excess:
    """Excess of a ``gpu`` task's, or structure's, candidates over the limits of their device."""

    def __init__(self, task: Scheduler) -> None:
        derive = partial(shares, device=device_of(task.target))
        self._population = Population(task, derive, (False,) * len(MARGINS))

    def widely(self, digits: Digits) -> npt.NDArray[np.bool_]:
        """For each limit of `MARGINS`, whether candidates exceed it widely, bool (n, limits).

        ``digits`` is as in `AnalyticalModel.predict`. Candidates that a template refuses exceed
        none.
        """
        found = self._population.evaluate(digits)
        return np.asarray(found > np.array(list(MARGINS.values()), np.float32))


def shares(state: State, device: GpuProperties) -> list[Number]:
    """Largest use of each limit of `MARGINS` by a schedule's kernels, as share of the limit."""
    kernels = kernels_of(state, device)
    return [
        largest(k.threads / device.max_threads for k in kernels),
        largest(k.shared_bytes / device.max_shared for k in kernels),
        largest(k.local_bytes / device.max_local for k in kernels),
        largest(k.registers / most(k.register_cap, 1) if device.registers else 0 for k in kernels),
    ]
