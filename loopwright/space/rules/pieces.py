"""Pieces that several rules share."""

from __future__ import annotations

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space import registers


def compute_in_vectors(s: Schedule, t: te.Tensor, reader: te.Tensor, task: IterVar | None) -> None:
    """Compute what a kernel reads in vectors along memory, such as a padded input.

    Args:
        s: the schedule.
        t: what is computed.
        reader: the stage that needs it.
        task: the loop of the reader in which it is computed; None: before all of them, in parallel.
    """
    *outer, last = s[t].op.axis
    _, inner = s[t].split(last, factor=registers.lanes(t.dtype))
    s[t].vectorize(inner)
    if task is not None:
        s[t].compute_at(s[reader], task)
    elif outer:
        s[t].parallel(s[t].fuse(*outer[:2]) if len(outer) > 1 else outer[0])
