"""``apply_history_best``: build with the best record of a log, and say which one it was."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from loopwright.errors import RecordError, UsageError
from loopwright.history.call_overhead import AsCalled, time_as_called
from loopwright.history.choice import Choice, Match, Report
from loopwright.history.contexts import Source, Workload, logs_of
from loopwright.history.fit import Here
from loopwright.history.selection import (
    KnownRecords,
    PassedOver,
    Refused,
    instantiate,
    is_right,
    verdict_of,
)
from loopwright.presenting import duration
from loopwright.records import (
    Checked,
    Record,
    canonical_json,
    default_record,
    ratios,
    vouched,
    without_collector,
)
from loopwright.task import (
    ConfigEntity,
    DispatchContext,
    Scheduled,
    TargetLike,
    Task,
    fallback,
    say_once,
    task_of,
)
from loopwright.te import call_work, index_spans, read_arg_id

if TYPE_CHECKING:
    from loopwright.runtime import Module


log = logging.getLogger("loopwright")


def apply_history_best(
    records: Source | Iterable[Any] | None,
    *,
    any_hardware: bool = False,
    strict: bool = False,
    verdicts: bool = True,
) -> ApplyHistoryBest:
    """Build templates with the best records: ``with apply_history_best("log.jsonl"): ...``.

    ``print(history.report())`` says what each task was built from, and why.

    Args:
        records: The path of a log, a folder of ``*.jsonl``, an open file, lines, records, a `Log`,
            a `Store`, or any nesting of lists of these.
        any_hardware: Accept records of other hardware, too.
        strict: Raise where no record fits, or where the best one was never checked, instead of
            building the default configuration or the unchecked one.
        verdicts: Build the default configuration where the best record says that this is as fast,
            and where the record of a kernel of a model was not compared with it.

    Raises:
        RecordError: a log is missing or cannot be read.
        UsageError: ``records`` is something else.

    Example:
        >>> with lw.apply_history_best("matmul.jsonl") as history, lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...     f = lw.build(s, args, name="matmul")
        ...
        >>> print(len(history.report()), history.report()[0].record is not None)
        1 True
    """
    return ApplyHistoryBest(records, any_hardware=any_hardware, strict=strict, verdicts=verdicts)


class ApplyHistoryBest(DispatchContext):
    """The dispatch context of :func:`apply_history_best`.

    A record is used for a task of its template, arguments (default ones may be left out) and kind
    of target, on its hardware: CPU and board (``-mcpu``, ``-mattr``, ``-mtriple``, ``-model``) are
    compared where both sides name them. So a target without a model takes records of any board, and
    one with a model those of its own and of none (AutoTVM's ``best_by_model``, then
    ``best_by_targetkey``). Candidates whose answer was checked go before all others; then records
    of the same board, threads, keys and target options; with ``any_hardware`` those of other
    hardware come last; among equals the lowest median time. Failed and dropped ones never.
    The template runs with the record's configuration. Where it makes the same tensor expression
    with another schedule than was measured, the recorded trace is replayed; where it makes another
    expression, the record is refused.

    Where the record's verdict says that the default configuration is as fast, or faster, the
    default is built. A record that no playoff has compared with the default is called unverified
    (as all records of AutoTVM are); it is applied, but for a kernel of a model, which is then built
    by default. A record whose answer was never checked is applied with a warning, and refused
    when ``strict``.

    Example:
        >>> history = lw.apply_history_best("matmul.jsonl")
        >>> with history, lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print([choice.checked.value for choice in history.report()])
        ['yes']
    """

    def __init__(
        self,
        records: Source | Iterable[Any] | None,
        *,
        any_hardware: bool = False,
        strict: bool = False,
        verdicts: bool = True,
    ) -> None:
        self.any_hardware, self.strict, self.verdicts = any_hardware, strict, verdicts
        self.skipped = 0
        self._choices: dict[tuple[str, str], Choice] = {}
        self._given: dict[tuple[str, str], ConfigEntity] = {}
        self._known = KnownRecords()
        self._known.add(self._read(records))

    def load(self, records: Source | Iterable[Any]) -> None:
        """Take in more records; errors as of :func:`apply_history_best`."""
        self._known.add(self._read(records))
        self._choices.clear()

    def update(self, target: TargetLike, workload: Workload, cfg: ConfigEntity) -> None:
        """Use a configuration for a workload from now on, whatever the records say (AutoTVM)."""
        task = task_of(target, workload)
        self._given[_name(task)] = task.config(cfg)

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule of the best record for the task, or None.

        RecordError where the context is strict, and no record fits, or the best is not checked.
        """
        if _name(task) in self._given:
            self._choices[_name(task)] = Choice(str(task), task.key, None, match=Match.GIVEN)
            return task.instantiate(self._given[_name(task)])
        choice, scheduled = self.choose(task)
        self._choices[_name(task)] = choice
        if self.strict:
            self._insist(task, choice)
        log.info("%s", choice)
        if choice.record is not None and choice.match is Match.DEFAULT:
            scheduled = fallback(task)
        elif choice.record is not None and scheduled is not None:
            record = f"{task}: record {choice.record.id} is"
            if choice.checked is not Checked.YES:
                say_once(f"{record} applied, and its answer was not checked")
            if problem := _out_of_reach(task, choice.record, scheduled):
                say_once(f"{record} implausible: {problem}")
        if scheduled is not None:
            scheduled[0].origin = _Applied(self, task)
        return scheduled

    def config_for(self, task: Task) -> ConfigEntity | None:
        """The configuration of the best record for the task, or None; see `query`."""
        if _name(task) in self._given:
            return self._given[_name(task)]
        choice, scheduled = self.choose(task)
        if choice.record is None or scheduled is None:
            return None
        return (
            task.fallback() if choice.match is Match.DEFAULT else task.config(choice.record.config)
        )

    def why_not(self, task: Task) -> str:
        """Reasons why no record was used."""
        return "; ".join(self.explain(task).reasons)

    def explain(self, task: Task) -> Choice:
        """The record that the task got, or would get, with reasons why others were passed over."""
        return self._choices.get(_name(task)) or self.choose(task)[0]

    def report(self) -> Report:
        """One choice per task that was built so far, in order; printed, a table."""
        return Report(self._choices.values())

    def verify(self, task: Task, module: Module) -> AsCalled:
        """Time what was built for a task as users call it; the report shows the time from then on.

        RunError where a call failed. UsageError where an operand is used as an index, the template
        makes no inputs, and there is no telling which values keep it inside.
        """
        choice = self.explain(task)
        if task.make_inputs is None:
            s, tensors = task.expression()
            ranges = index_spans(s.dag)  # of arguments that are used as indices
            spans = [ranges.get(read_arg_id(i)[0]) for i in s.arg_ids(tensors)]
            actual = time_as_called(module, choice.expected, spans=spans)
        else:
            actual = time_as_called(module, choice.expected, task.make_inputs())
        self._choices[_name(task)] = replace(choice, actual=actual)
        if actual.causes:
            took = duration(actual.seconds)
            say_once(f"{task}: a call takes {took}, more than it should; the report says why")
        return actual

    def _read(self, source: Source | Iterable[Any] | None) -> Iterator[Record]:
        for part in logs_of(source):
            self.skipped += len(part.skipped)
            if part.skipped:
                say_once(part.complaint())
            yield from part.records

    def choose(self, task: Task) -> tuple[Choice, Scheduled | None]:
        """The record that the task would get, and its schedule, whatever the verdict says of it.

        Nothing is entered in the report, and nothing is refused.
        """
        choices, passed = self._chosen(task, needs_playoff=task.of_model)
        first = next(choices, None)
        if first is not None:
            return first
        near = tuple(passed.near_misses)
        return Choice(str(task), task.key, None, passed.texts(), near_misses=near), None

    def finalists(self, task: Task, count: int) -> list[tuple[Choice, Scheduled]]:
        """The best ``count`` records that can be built here and whose answers are right, fastest
        first, with schedules; verdicts are not considered."""
        candidates = self._chosen(task, needs_playoff=False)[0]
        return list(islice((c for c in candidates if c[0].checked is Checked.YES), count))

    def _chosen(
        self, task: Task, *, needs_playoff: bool
    ) -> tuple[Iterator[tuple[Choice, Scheduled]], PassedOver]:
        """Choices for a task with their schedules, best first, and what was passed over so far."""
        from loopwright.lowering import PassContext  # templates of pretence need no compiler

        try:
            passes = PassContext.current().to_json()
        except UsageError:  # its passes live in this process alone: no record was made with them
            passes = {"local": True}
        here = Here(task.target.canonical, passes)
        with without_collector():  # it takes a third of the time among 100 000 records
            fitting, passed = self._known.select(task, here, any_hardware=self.any_hardware)

        def choices() -> Iterator[tuple[Choice, Scheduled]]:
            for record in fitting:
                try:
                    scheduled, replayed = instantiate(task, record)
                except Refused as exc:
                    passed.reasons[str(exc)] += 1
                    continue
                choice = self._choice(task, record, here, passed, replayed)
                if needs_playoff and self.verdicts and choice.unverified:
                    choice = replace(choice, match=Match.DEFAULT)
                yield choice, scheduled

        return choices(), passed

    def _choice(
        self, task: Task, record: Record, here: Here, passed: PassedOver, replayed: bool
    ) -> Choice:
        records = self._known.of_expression(task)
        fit = here.fit(record)
        right = is_right(record, vouched(records), here)
        comparable = fit.same_options and not fit.refused and record.task in task.aliases
        verdict = verdict_of(record, records) if comparable else None
        ratio = ratios(records).get(record.candidate) if comparable else None
        match = Match.EXACT if fit.exact else Match.COMPATIBLE
        no_faster = ratio is not None and ratio >= 1.0
        if verdict is not None and verdict.is_compared:
            no_faster = verdict.nothing_faster
        if self.verdicts and no_faster:
            match = Match.DEFAULT
        default = default_record(records) if ratio is None else None
        return Choice(
            str(task),
            task.key,
            record,
            passed.texts(),
            fit.hardware,
            replayed,
            "; ".join(map(str, (*fit.refused, *fit.others))),
            match,
            Checked.YES if right else Checked.NO,
            "" if right else record.check_reason,
            verdict,
            tuple(passed.near_misses),
            ratio=ratio,
            default_seconds=None if default is None else default.median,
        )

    def _insist(self, task: Task, choice: Choice) -> None:
        """Refuse what a strict context does not build, see `apply`."""
        if choice.record is None:
            why = "; ".join([*choice.reasons, *choice.near_misses])
            raise RecordError(
                f"no record of {task} for {task.target} can be used here ({why}); tune it here, or "
                "take the default configuration: --allow-default, in Python strict=False"
            )
        if choice.match is not Match.DEFAULT and choice.checked is not Checked.YES:
            reason = f" ({choice.check_reason})" if choice.check_reason else ""
            raise RecordError(
                f"the best record of {task}, {choice.record.id}, is not checked{reason}; "
                "`loopwright build --history` checks it and notes that in the log, --allow-default "
                "(in Python strict=False) takes it unchecked"
            )


def _out_of_reach(task: Task, record: Record, scheduled: Scheduled) -> str:
    """Reason why no CPU can be as fast as a record says; empty where one can, and for devices."""
    from loopwright.runtime import (
        assumed_peak,
        get_num_threads,  # not at the top: what lists logs needs neither
        out_of_reach,
    )

    s, args = scheduled
    unit = task.target.vector_unit
    if record.median is None or unit is None or s.dag.sizes:
        return ""
    threads = task.target.canonical.get("num_threads") or get_num_threads()
    work = call_work(s.dag, s.arg_ids(args))
    peak = assumed_peak(threads, unit)
    return out_of_reach(record.median, work.stored, work.flop, work.shortest, peak)


class _Applied:
    """Origin of a schedule, which `loopwright.build` asks to verify the kernel."""

    def __init__(self, history: ApplyHistoryBest, task: Task) -> None:
        self._history, self._task = history, task

    def verify(self, module: Module) -> None:
        self._history.verify(self._task, module)


def _name(task: Task) -> tuple[str, str]:
    """Key of a task in a report: its name and all options of the target."""
    return task.alias, canonical_json(task.target.canonical)
