"""The features of curves: what is touched while so many iterations run, whatever the loops are.

For the store and the first loads of the stage with the most arithmetic, the bytes that are touched
by the innermost loops that have at most 1, 4, 16, ... iterations together, and how often each
element is used then. The shape of these curves does not depend on how loops are named or numbered,
so that they compare programs of different structure (AutoTVM, NeurIPS 2018, context relation
features). Before them stand the sums of `loopwright.cost.features.itervar`.
"""

from __future__ import annotations

from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.features import itervar
from loopwright.cost.symbolic.symbols import Number, at_most, where
from loopwright.schedule.state import State

#: Points of a curve: 1, 4, 16, ... iterations.
SAMPLES = 12
_KINDS = ("bytes", "reuse")
_SLOTS = ("store", *(f"load{k}" for k in range(itervar.READS)))
#: Names of the features, the same for every task.
NAMES = (
    *itervar.SUMS,
    *(f"{a}.at{4**k}.{x}" for a in _SLOTS for k in range(SAMPLES) for x in _KINDS),
)
#: Whether the logarithm of a feature is taken.
LOGGED = tuple(itervar.is_logged(n) for n in NAMES)


def curve(state: State, machine: Machine) -> list[Number]:
    """The features `NAMES` of a schedule; see the text of this module.

    Args:
        state: the schedule's state; split factors may be `Sym`.
        machine: what it runs on.
    """
    touches = [Touches(n, machine) for n in itervar.ranked(state)]
    return [*itervar.sums(touches), *_curves(touches[0])]


def _curves(t: Touches) -> list[Number]:
    depths = range(len(t.nest.loops), -1, -1)
    out: list[Number] = []
    for slot in range(len(_SLOTS)):
        if slot >= len(t.accesses):
            out += [0] * (SAMPLES * len(_KINDS))
            continue
        a = t.accesses[slot]
        size = a.access.buffer.itemsize
        for k in range(SAMPLES):
            touched: Number = 1
            inner: Number = 1
            for d in depths:
                fits = at_most(t.inner[d], 4**k)
                touched = where(fits, a.elements[d], touched)
                inner = where(fits, t.inner[d], inner)
            out += [touched * size, inner / touched]
    return out
