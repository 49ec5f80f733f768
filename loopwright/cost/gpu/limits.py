"""Which candidates take far more than their device has: known before anything is built.

What a candidate takes is estimated from its schedule, so only what exceeds a limit widely is told;
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
from loopwright.task.interfaces import Scheduler
from loopwright.task.vectors import Digits

#: Limits, and how many times each a candidate must take. Threads and shared memory are known almost
#: exactly; compilers may do with far fewer registers than were counted.
MARGINS = {
    "threads of a block": 1.25,
    "shared memory": 1.25,
    "local memory": 1.25,
    "registers": 2.0,
}


class Excess:
    """How far candidates exceed the limits of their device.

    Args:
        task: a task of a target of the family ``gpu``, or a structure for one.
    """

    def __init__(self, task: Scheduler) -> None:
        derive = partial(shares, device=device_of(task.target))
        self._population = Population(task, derive, (False,) * len(MARGINS))

    def widely(self, digits: Digits) -> npt.NDArray[np.bool_]:
        """For each limit of `MARGINS` whether candidates exceed it widely, bool (n, limits).

        A candidate of which nothing is known, since its template refuses it, exceeds none.

        Args:
            digits: whole numbers (n, knobs): the position of each knob's choice.
        """
        found = self._population.evaluate(digits)
        return np.asarray(found > np.array(list(MARGINS.values()), np.float32))


def shares(state: State, device: Device) -> list[Number]:
    """What the kernels of a schedule take at most of each limit of `MARGINS`, as shares of it."""
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
