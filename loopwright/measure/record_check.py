"""Check of one candidate of a log before it is used, if its answer was never compared.

Such are records from before checks were noted, AutoTVM's, and those of a run with ``check=False``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from loopwright.measure.options import MeasureOption, measure_option
from loopwright.measure.result import MeasureError
from loopwright.measure.runner import wrong_answer
from loopwright.measure.session import MeasureSession
from loopwright.measure.workers.protocol import CheckReply
from loopwright.records import Checked, Json, Record, build_hash, new_run
from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Scheduled, Task


@dataclass(eq=False)
class ScheduledTask:
    """A task that makes one schedule whatever the configuration is; see `TaskLike`."""

    name: str
    args: tuple[Json, ...]
    key: str
    target: Target
    reference: Callable[..., Any] | None
    make_inputs: Callable[[], Sequence[npt.ArrayLike]] | None
    scheduled: Scheduled  # the schedule with its tensors in calling order

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        return self.scheduled


#: Result of `_checked`: whether it was checked, the reason why not, the error, the largest error.
_Verdict = tuple[Checked, str, MeasureError | None, float | None]


def recheck(
    task: Task,
    record: Record,
    scheduled: Scheduled,
    option: MeasureOption | None = None,
    announce: Callable[[str], None] | None = None,
) -> Record:
    """Build the candidate of a record, run it once in a process of its own, and compare the answer.

    Returns a record of the phase ``check`` for the same candidate, without times: checked, or with
    the error. Where there can be no reference, not checked, with the reason.

    Args:
        task: the task of the candidate.
        record: the record.
        scheduled: its schedule and arguments, as returned by ``ApplyHistoryBest.choose``.
        option: see `measure_option`; None: its defaults.
        announce: called with one line for a person to read, such as on waiting for the device.

    Raises:
        RunError: a worker process cannot be started.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> choice, scheduled = lw.apply_history_best("matmul.jsonl").choose(task)
        >>> outcome = lw.measure.recheck(task, choice.record, scheduled)
        >>> print(outcome.phase, outcome.checked, outcome.times)
        check yes ()
    """
    recorded = ScheduledTask(
        *(task.name, task.args, task.key, task.target, task.reference, task.make_inputs), scheduled
    )
    session = MeasureSession(recorded, option or measure_option(), announce or (lambda text: None))
    try:
        session.start()
        session.lower_as_here()
        checked, reason, error, worst = _checked(session, task.fallback())
    finally:
        session.close()
    return replace(
        record,
        times=(),
        dropped=False,
        error=None if error is None else {"kind": error.kind, "text": error.text},
        build=build_hash(task.target.canonical, session.passes),
        run=new_run(),
        ts=time.time(),
        max_error=worst if worst is not None and math.isfinite(worst) else None,
        checked=checked,
        check_reason=reason,
        phase="check",
        program="",
        code="",
        same_as="",
        verdict=None,
        extra={},
    )


def _checked(session: MeasureSession, config: ConfigEntity) -> _Verdict:
    candidate = session.instantiate(config)
    if isinstance(candidate, MeasureError):
        return Checked.NO, "it cannot be scheduled", candidate, None
    build = session.builds.add(candidate)
    session.wait_for([build])
    artifact = build.compiled
    if isinstance(artifact, MeasureError):
        return Checked.NO, "it cannot be built", artifact, None
    session.take_devices()
    race = session.runner.load_and_race(artifact, None, race=False)
    if isinstance(race, MeasureError):
        return Checked.NO, "it cannot be run", race, None
    reply = session.check(candidate, artifact)
    if reply is None:
        return Checked.NO, session.why_unchecked, None, None
    error = wrong_answer(reply)
    worst = reply.max_error if isinstance(reply, CheckReply) else None
    if error is not None:
        return Checked.NO, "its answer is wrong", error, worst
    return Checked.YES, "", None, worst
