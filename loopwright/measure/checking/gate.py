"""The gate before the incumbent: what a result is worth once its kernel was checked."""

from __future__ import annotations

from dataclasses import replace

from loopwright.measure.building import Candidate
from loopwright.measure.equipment import Equipment
from loopwright.measure.result import MeasureError, MeasureResult
from loopwright.records import Checked, ErrorKind
from loopwright.runtime import Artifact


def checked_result(
    equipment: Equipment, candidate: Candidate, artifact: Artifact, result: MeasureResult
) -> MeasureResult:
    """Check a candidate that would become the best.

    Args:
        equipment: its runner holds the candidate in slot 0.
        candidate: what was built.
        artifact: what came of it.
        result: its times.

    Returns:
        The result with what the check gave: a wrong answer, other times where these were of calls
        that skipped their work, or why it could not be checked.
    """
    reply = equipment.check(candidate, artifact, seconds=result.median)
    if isinstance(reply, MeasureError):
        return MeasureResult(error=reply)
    if reply is None:
        return replace(result, checked=Checked.NO, check_reason=equipment.why_unchecked)
    if reply.problem is not None:
        error = MeasureError(ErrorKind.WRONG_ANSWER, reply.problem)
        return MeasureResult(error=error, max_error=reply.max_error)
    times = reply.times or result.times
    return replace(result, times=times, max_error=reply.max_error, checked=Checked.YES)
