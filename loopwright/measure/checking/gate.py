"""The check of a result before it becomes the incumbent."""

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
    """Check a candidate that would become the best; the runner holds it in slot 0.

    Returns the result with the outcome: a wrong answer, other times where the calls that were timed
    had skipped their work, or the reason why it could not be checked.
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
