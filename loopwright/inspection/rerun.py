"""New measurement of a record's kernel: rebuilt from its log, checked, and timed here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from loopwright.env import load_average, usable_cpus
from loopwright.errors import LoopwrightError
from loopwright.history import Here, Rebuilt, expression_of, rebuild
from loopwright.inspection.choosing import LogLike, choose, log_of, title
from loopwright.inspection.schedules import task_of
from loopwright.inspection.speed import seed_of, work_of
from loopwright.inspection.ties import Change, change, median_interval
from loopwright.presenting import duration
from loopwright.records import Checked, Json, Record
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult, ScheduledTask
    from loopwright.task import Task


#: Samples of a new timing, each a window of so many milliseconds at least.
SAMPLES = 20
_WINDOW_MS = 10.0
#: Seconds that the new timing may take.
TIMEOUT_S = 10.0
#: Load for each core, as an average over the last minute, from which on a timing is disturbed.
_BUSY = 0.5

_log = logging.getLogger("loopwright.inspection")


@dataclass(frozen=True)
class Rerun:
    """Record beside a new measurement of its kernel."""

    record: Record
    #: The new measurement: seconds per call of each sample, whether the answer is right, or the
    #: error.
    result: MeasureResult
    reference: str  #: the reference of the answer, in words
    #: Changes since then (CPU, threads, compiler), in words, and whether other programs use the
    #: machine.
    differences: tuple[str, ...] = ()
    flop: int = 0  #: arithmetic operations of a call; 0 where there are none to count

    @property
    def change(self) -> Change | None:
        """Change of the time; None where one of both has none, or too few samples."""
        comparable = self.record.usable and self.result.usable
        return change(self.record.times, self.result.times) if comparable else None

    def lines(self) -> list[str]:
        r = self.record
        rows = [
            ("record", f"{r.id}, {title(r)}"),
            ("trial", f"{r.trial} of run {r.run or 'unknown'}"),
            ("answer", self._answer()),
            ("time", self._time()),
            ("recorded", self._recorded()),
            *(("differs", text) for text in self.differences),
        ]
        return [f"{name + ':':9} {text}" for name, text in rows]

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_table

        rows = [line.split(":", 1) for line in self.lines()]
        return html_block("A kernel once more", html_table(rows))

    def to_json(self) -> dict[str, Json]:
        result, changed = self.result, self.change
        interval = median_interval(result.times)
        error = result.error
        return {
            "record": self.record.id,
            "times": list(result.times),
            "median_s": result.median,
            "interval_s": None if interval is None else list(interval),
            "recorded_s": self.record.median,
            "gain": None if changed is None else changed.gain,
            "gain_interval": None if changed is None else [changed.low, changed.high],
            "outcome": None if changed is None else str(changed.outcome),
            "checked": str(result.checked),
            "check_reason": result.check_reason,
            "max_error": result.max_error,
            "error": None if error is None else {"kind": error.kind, "text": error.text},
            "differences": list(self.differences),
        }

    def _answer(self) -> str:
        if self.result.error is not None:
            return f"none, it failed: {self.result.error}"
        if self.result.checked is not Checked.YES:
            return f"not checked: {self.result.check_reason or 'no reason is known'}"
        within = f" within {self.result.max_error:.3g}" if self.result.max_error else ""
        return f"right, equal to {self.reference}{within}"

    def _time(self) -> str:
        median = self.result.median
        if median is None:
            return "none"
        speed = f", {self.flop / median / 1e9:.4g} GFLOP/s" if self.flop else ""
        interval = median_interval(self.result.times)
        if interval is None:
            between = f"{len(self.result.times)} samples, too few for an interval"
        else:
            low, high = map(duration, interval)
            unit = low.rpartition(" ")[2]
            low = low.removesuffix(f" {unit}") if high.endswith(f" {unit}") else low
            between = f"95 %: {low} to {high}"
        return f"{duration(median)} per call ({between}){speed}"

    def _recorded(self) -> str:
        r = self.record
        if r.error is not None:
            return f"it failed: {r.error.get('kind')}: {r.error.get('text')}"
        if r.median is None:
            return "no time"
        if r.dropped:
            return f"{duration(r.median)} in one run, after which it was dropped as too slow"
        changed = self.change
        if changed is None:
            return f"{duration(r.median)}"
        return f"{duration(r.median)}; now {changed.text()}"


def rerun(
    log: LogLike,
    record: Record | str | None = None,
    *,
    trial: int | None = None,
    run: str | None = None,
    timeout: float = TIMEOUT_S,
    announce: Callable[[str], None] | None = None,
    device: str = "",
) -> Rerun:
    """Build the kernel of a record from its log, check its answer and time it, in another process.

    The kernel is replayed from the expression and the schedule in the log; the template is not
    needed. Where this process knows it and it still makes the expression of the record, its NumPy
    reference and its inputs are used; else the answer is compared with the naive schedule.

    Args:
        log: the log, or its path.
        record: a record of it, an id or the beginning of one, ``"best"`` or ``"default"``.
        trial: the number of a trial instead, where one task and one run make it unique.
        run: the run of that trial, or the beginning of its name.
        timeout: seconds that building, and that running, may take.
        announce: called with messages for the user, such as waiting for the device; None: a warning
            of the logger ``loopwright.inspection``.
        device: the device, such as ``"opencl:1"``; empty: the first of its target's kind.

    Raises:
        RecordError: there is no such record, or it cannot be rebuilt from its log.
        UsageError: several records match, or none is named; or ``timeout`` is not above 0.
        RunError: a worker process cannot be started.

    Example:
        >>> again = lw.inspection.rerun("matmul.jsonl", "best")
        >>> print(again.record.op, again.result.checked, again.reference)
        matmul yes the NumPy reference
    """
    opened = log_of(log)
    if not isinstance(record, Record):
        record = choose(opened, record, trial=trial, run=run)
    rebuilt = rebuild(opened, record)
    task, reference = _task(record, rebuilt)
    busy = _busy()
    seed = seed_of(expression_of(opened, record))
    with rebuilt.passes:
        result = _measured(task, seed, timeout, announce or _log.warning, device)
        here = Here(rebuilt.target.canonical, rebuilt.passes.to_json())
    fit = here.fit(record)
    work = work_of(opened, record)
    differences = (*map(str, (*fit.refused, *fit.others)), *busy)
    return Rerun(record, result, reference, differences, 0 if work is None else work.flop)


def _busy() -> list[str]:
    load, cores = load_average(), len(usable_cpus())
    if load is None or load < _BUSY * cores:
        return []
    return [f"load: {load:.1f} on {cores} cores before it was timed; other programs disturb it"]


def _task(record: Record, rebuilt: Rebuilt) -> tuple[ScheduledTask, str]:
    from loopwright.measure import ScheduledTask

    template_task = _known_task(record, rebuilt)
    reference = None if template_task is None else template_task.reference
    task = ScheduledTask(
        name=record.op,
        args=tuple(record.args),
        key=record.task,
        target=rebuilt.target,
        reference=reference,
        make_inputs=None if template_task is None else template_task.make_inputs,
        scheduled=(rebuilt.schedule, rebuilt.args),
    )
    return task, "the naive schedule" if reference is None else "the NumPy reference"


def _known_task(record: Record, rebuilt: Rebuilt) -> Task | None:
    """Task of a record, where its template is here and makes the expression of the record."""
    import loopwright.ops  # noqa: F401  (importing it does not count for the limit of a template)

    def made() -> Task | None:
        task = task_of(record, rebuilt.target)
        if task is None:
            return None
        schedule, args = task.expression()
        same = schedule.dag.hash == rebuilt.schedule.dag.hash
        ids = rebuilt.schedule.arg_ids(rebuilt.args)
        return task if same and schedule.arg_ids(args) == ids else None

    try:
        return limited(TEMPLATE_S, f"the template {record.op}", made)
    except LoopwrightError:
        return None  # the template has changed, and the log has what is needed


def _measured(
    task: ScheduledTask, seed: int, timeout: float, announce: Callable[[str], None], device: str
) -> MeasureResult:
    from loopwright.measure import LocalBuilder, LocalRunner, MeasureInput, Measurer, measure_option
    from loopwright.task import ConfigSpace

    option = measure_option(
        LocalBuilder(timeout=timeout, n_parallel=1),
        LocalRunner(*(timeout, 1, SAMPLES, _WINDOW_MS), seed=seed, device=device),
    )
    space = ConfigSpace()
    space.freeze()
    with Measurer(task, option, announce) as measurer:
        # A measurer asks no more of a task than `TaskLike` says.
        (result,) = measurer.measure([MeasureInput(cast("Task", task), space.get(0))])
    return result
