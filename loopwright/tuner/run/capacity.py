"""Number of trials that a space has room for, so that nobody waits for more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.state import RunState

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace

#: Largest number of configurations that are counted, so that a total is shown.
COUNTED = 20_000
#: Seconds after which counting is given up: a filter may be slow, or never end.
_PATIENCE_S = 2.0


@runtime_checkable
class SearchesRange(Protocol):
    """A tuner that proposes only indices from ``begin_idx`` on, below ``end_idx``."""

    begin_idx: int
    end_idx: int


def capacity(tuner: TunerLike, state: RunState) -> int | None:
    """Largest number of configurations in the log of a run; None above 20 000 or for slow filters.

    These are the valid ones that the tuner may propose, the default one, and those of the log.
    """
    space = tuner.space
    lo, hi = 0, space.range_length
    if isinstance(tuner, SearchesRange):
        lo, hi = tuner.begin_idx, tuner.end_idx
    if hi - lo > COUNTED:
        return None
    inside = _valid(space, lo, hi)
    if inside is None:
        return None
    known = {trial.index for trial in (*state.trials, *state.duplicates)}
    known |= set() if state.default_index is None else {state.default_index}
    outside = sum(not (lo <= index < hi and space.is_valid(index)) for index in known)
    return inside + outside


def shortage(state: RunState) -> str:
    """Warning that a run asks for more trials than there can be; else empty."""
    wanted, room = state.budget.n_trial, state.capacity
    if wanted is None or room is None or wanted <= room:
        return ""
    return (
        f"{wanted} trials were asked for, but there are only {room} valid configurations: "
        "the run ends when these are measured"
    )


def _valid(space: ConfigSpace, lo: int, hi: int) -> int | None:
    """Number of valid indices in a range; None where counting takes too long."""
    if not space.is_filtered:
        return hi - lo
    until, count = time.monotonic() + _PATIENCE_S, 0
    for index in range(lo, hi):
        count += space.is_valid(index)
        if time.monotonic() > until:
            return None
    return count
