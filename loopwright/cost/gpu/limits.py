"""Candidates that far exceed the limits of their device, found before anything is built.

Resources are estimated from the schedule, so only a large excess counts;
`loopwright.lowering.gpu_limits` checks the lowered program exactly.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from loopwright.cost.gpu.device import Device, device_of
from loopwright.cost.gpu.kernel import Kernel, kernels_of
from loopwright.cost.symbolic.population import Population
from loopwright.cost.symbolic.symbols import Number, most
from loopwright.schedule.state import State
from loopwright.task.sampling import Digits
from loopwright.task.space import Scheduler

#: Limits, and the factor by which a candidate must exceed each. Threads and shared memory are known
#: almost exactly; compilers may need far fewer registers than estimated.
MARGINS = {
    "threads of a block": 1.25,
    "shared memory": 1.25,
    "local memory": 1.25,
    "registers": 2.0,
}


class Excess:
    """Excess of a ``gpu`` task's, or structure's, candidates over the limits of their device."""

    def __init__(self, task: Scheduler) -> None:
        derive = partial(shares, device=device_of(task.target))
        self._population = Population(task, derive, (False,) * len(MARGINS))

    def widely(self, digits: Digits) -> npt.NDArray[np.bool_]:
        """For each limit of `MARGINS`, whether candidates exceed it widely, bool (n, limits).

        ``digits`` (n, knobs) has the position of each knob's choice. A candidate that its template
        refuses exceeds none.
        """
        found = self._population.evaluate(digits)
        return np.asarray(found > np.array(list(MARGINS.values()), np.float32))


def shares(state: State, device: Device) -> list[Number]:
    """Largest use of each limit of `MARGINS` by a schedule's kernels, as share of the limit."""
    out: list[Number] = [0] * len(MARGINS)
    for k in kernels_of(state, device):
        out = [most(a, b) for a, b in zip(out, _shares(k, device), strict=True)]
    return out


def _shares(k: Kernel, device: Device) -> list[Number]:
    registers = k.registers / most(k.register_cap, 1) if device.registers else 0
    return [
        k.threads / device.max_threads,
        k.shared_bytes / device.max_shared,
        k.local_bytes / device.max_local,
        registers,
    ]
