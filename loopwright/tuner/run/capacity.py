"""How many trials a space has room for, so that nobody waits for more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.state import RunState

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace

#: Up to so many configurations a filtered space is counted, and a total is shown.
COUNTED = 20_000
#: Seconds after which counting is given up: a filter may be slow, or never end.
_PATIENCE_S = 2.0


@runtime_checkable
class SearchesRange(Protocol):
    """A tuner that proposes indices of a part of the space only.

    Attributes:
        begin_idx, end_idx: the half-open range of these indices.
    """

    begin_idx: int
    end_idx: int


def capacity(tuner: TunerLike, state: RunState) -> int | None:
    """How many different configurations there can be in the log of a run at most.

    That is the valid ones that the tuner may propose, the default one, and what the log holds.

    Args:
        tuner: of the run.
        state: its trials so far.

    Returns:
        The number; None where there are more than 20 000 or counting would take long.
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
    """What a person should know whose run asks for more trials than there can be; else empty."""
    wanted, room = state.budget.n_trial, state.capacity
    if wanted is None or room is None or wanted <= room:
        return ""
    return (
        f"{wanted} trials were asked for, but there are only {room} valid configurations: "
        "the run ends when these are measured"
    )


def _valid(space: ConfigSpace, lo: int, hi: int) -> int | None:
    """How many indices of a range are valid; None where it takes too long to say."""
    if not space.is_filtered:
        return hi - lo
    until, count = time.monotonic() + _PATIENCE_S, 0
    for index in range(lo, hi):
        count += space.is_valid(index)
        if time.monotonic() > until:
            return None
    return count
