"""Bounds of values inside a stage that follow from the guards of the loops around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loopwright.ir.affine import Affine, Ranges
from loopwright.schedule.bounds.infer import attach_position
from loopwright.schedule.bounds.results import Bounds, Guard, StageBounds
from loopwright.schedule.state import State


def guards_around(state: State, bounds: Bounds, sb: StageBounds) -> Iterator[Guard]:
    """Guards of the stages around that hold wherever an attached stage is computed."""
    while sb.padded:
        host, position = attach_position(state, sb.stage, bounds)
        visible = host.visible(position)
        yield from (g for g in host.guards if set(g.value.terms) <= visible)
        sb = host


def largest(form: Affine, guards: Iterable[Guard], ranges: Ranges) -> int:
    """The largest value of a form where guards hold, as far as one of them tells."""
    most = form.bounds(ranges)[1]
    for g in guards:
        found = _in_multiples(form, g.value)
        if found is not None and isinstance(g.below, int):
            times, rest = found
            most = min(most, times * (g.below - 1) + rest.bounds(ranges)[1])
    return most


def _in_multiples(form: Affine, part: Affine) -> tuple[int, Affine] | None:
    """``form = times * part + rest`` where the rest has none of the part's variables; else None."""
    shared = next((v for v in part.terms if v in form.terms), None)
    if shared is None or form.terms[shared] % part.terms[shared]:
        return None
    times = form.terms[shared] // part.terms[shared]
    rest = form - part * times
    return None if times < 0 or any(rest.terms.get(v) for v in part.terms) else (times, rest)
