"""Selection of records for a task: by task and expression, usable, fitting, checked, replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from loopwright.errors import LoopwrightError, RecordError, TargetError
from loopwright.history.fit import Fit, Here
from loopwright.records import (
    Json,
    Record,
    Verdict,
    canonical_json,
    fields_of,
    grouped,
    latest_verdict,
    once_for_equal,
    top_k,
    vouched,
)
from loopwright.task import (
    TASKS,
    Scheduled,
    TargetLike,
    Task,
    create_task,
    resolve_target,
    say_once,
)

#: Phase of the records of a check alone.
CHECK = "check"


@dataclass
class PassedOver:
    """Reasons why records of a log were not used."""

    #: Number of records for each reason.
    reasons: Counter[str] = field(default_factory=Counter)
    #: Remark on the log as a whole.
    summary: str = ""
    #: The best records that were refused for a difference, field by field.
    near_misses: list[str] = field(default_factory=list)

    def texts(self) -> tuple[str, ...]:
        """The reasons with their counts, most frequent first, then the summary."""
        counted = [f"{count} {reason}" for reason, count in self.reasons.most_common()]
        return (*counted, *filter(None, [self.summary]))


def unusable(record: Record) -> str:
    """Reason why a record has no time to be ranked by; empty where it has one."""
    if record.error is not None:
        return f"failed ({record.error.get('kind')})"
    if record.dropped:
        return "dropped by racing"
    return "" if record.times else "without a time"


def failed_checks(own: Sequence[Record]) -> dict[str, str]:
    """Candidates that failed a later check, such as by a crash, with the reason."""
    (phases,) = fields_of(own, "phase")
    checked = [record for record, phase in zip(own, phases, strict=True) if phase == CHECK]
    checks = sorted(checked, key=lambda r: r.ts)
    latest = {record.candidate: record.error for record in checks}
    return {c: f"failed when checked again ({e.get('kind')})" for c, e in latest.items() if e}


def of_other_hardware(fit: Fit) -> str:
    """Reason why a record is refused for its hardware; empty where it is not."""
    if not fit.refused:
        return ""
    first = fit.refused[0]
    detail = "" if len(str(first.then)) > 40 else f" {first.then}"
    return f"of other hardware ({first.field}{detail})"


def refusal(
    record: Record, fit: Fit, failed: Mapping[str, str], *, any_hardware: bool = False
) -> str:
    """Reason why a record by itself is not applied; empty where it may be."""
    if record.phase == CHECK:
        return "a check alone, which has no time"
    if record.candidate in failed:
        return failed[record.candidate]
    if not record.usable:
        return unusable(record)
    return "" if any_hardware else of_other_hardware(fit)


def is_right(record: Record, right: set[tuple[str, str]], here: Here) -> bool:
    """Whether the answer of the candidate was checked, with its compiler or with that of now."""
    if (record.candidate, record.build) in right:
        return True
    return bool(right) and (record.candidate, here.build) in right


def verdict_of(record: Record, own: Sequence[Record]) -> Verdict | None:
    """The latest verdict of a record's candidate; None where there is none to be read."""
    latest = latest_verdict(record, own)
    if latest is None or latest.verdict is None:
        return None
    try:
        return Verdict.from_json(latest.verdict)
    except RecordError as exc:
        say_once(f"record {latest.id}: {exc}")
        return None


#: Number of records that are tried before the default is used: the template may have changed, and
#: lines that no run has written may stand before those that fit.
_TRIES = 64
#: Number of refused records that are described field by field.
_NEAR_MISSES = 3


class KnownRecords:
    """Records by their task and by what it computes."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}
        self._expressions: dict[tuple[str, str], dict[str, list[Record]]] | None = None

    def add(self, records: Iterable[Record]) -> None:
        records = list(records)
        for name, more in grouped(records, fields_of(records, "task")[0]).items():
            self._records.setdefault(name, []).extend(more)
        self._expressions = None

    def select(
        self, task: Task, here: Here, *, any_hardware: bool
    ) -> tuple[list[Record], PassedOver]:
        """Records to try, best first, and the number that were passed over for each reason."""
        exact, near, elsewhere, refused = [], [], [], []
        passed = PassedOver()
        records = self.of_expression(task)
        failed = failed_checks(records)
        phases, candidates, usable = fields_of(records, "phase", "candidate", "usable")
        rows = zip(records, phases, candidates, usable, here.fits(records), strict=True)
        for record, phase, candidate, is_usable, fit in rows:
            if phase == CHECK:
                continue
            if reason := refusal(record, fit, failed, any_hardware=any_hardware):
                passed.reasons[reason] += 1
                refused += [record] if is_usable and candidate not in failed else []
            elif fit.refused:
                elsewhere.append(record)
            elif fit.same_options:
                exact.append(record)
            else:
                near.append(record)
        if not records:
            passed = self._other_tasks(task)
        for record in top_k(refused, _NEAR_MISSES):
            fields = "; ".join(map(str, here.fit(record).refused))
            passed.near_misses.append(f"record {record.id} was refused: {fields}")
        # Failures are passed on as well: a wrong answer found later takes its candidate out.
        rest = [record for record, is_usable in zip(records, usable, strict=True) if not is_usable]
        groups = filter(None, (exact, near, elsewhere))
        order = [record for group in groups for record in top_k([*group, *rest], _TRIES)]
        right = vouched(records)
        order.sort(key=lambda record: not is_right(record, right, here))
        return order[:_TRIES], passed

    def of_expression(self, task: Task) -> list[Record]:
        """Records of a task, and others of its expression (an automatic space's) and kind of
        target."""
        by_hand = () if task.by_hand is None else task.by_hand.aliases
        names = dict.fromkeys((*task.aliases, task.key, *by_hand))
        named = [record for key in names for record in self._records.get(key, [])]
        if not task.dag_hash:
            return named
        groups = [self._by_expression().get((dag, task.kind), {}) for dag in task.dag_hashes]
        others = chain.from_iterable(group.items() for group in groups)
        return [*named, *chain.from_iterable(g for key, g in others if key not in names)]

    def _by_expression(self) -> Mapping[tuple[str, str], Mapping[str, list[Record]]]:
        """Records by expression and kind of target, and then by task."""
        if self._expressions is None:
            self._expressions = {}
            for key, records in self._records.items():
                kind = records[0].kind  # which the key tells
                for record, dag in zip(records, fields_of(records, "dag")[0], strict=True):
                    group = self._expressions.setdefault((dag, kind), {})
                    group.setdefault(key, []).append(record)
        return self._expressions

    def _other_tasks(self, task: Task) -> PassedOver:
        """Reasons why the log has nothing of this task: its other arguments and targets."""
        reasons: Counter[str] = Counter()
        for records in self._records.values():
            first = records[0]
            if first.op == task.name:
                same = canonical_json(first.args) == canonical_json(list(task.args))
                other = f"target {first.kind!r}" if same else f"arguments {tuple(first.args)}"
                reasons[f"for {other}, not {task.kind if same else task.args}"] += len(records)
        total = sum(map(len, self._records.values()))
        none = f"none of this task among {total} records" if total else "the log is empty"
        return PassedOver(reasons, none)


class Refused(Exception):
    """Error of a record that cannot be applied; the text says why."""


def other_knobs(task: Task, config: Mapping[str, Json]) -> str:
    """Difference between the knobs of a configuration and those of a task; empty where none."""
    knobs = task.config_space.knobs
    unknown = ", ".join(sorted(set(config) - set(knobs)))
    missing = ", ".join(sorted(set(knobs) - set(config)))
    parts = [f"{unknown} too many" if unknown else "", f"{missing} missing" if missing else ""]
    differences = ", ".join(filter(None, parts))
    return f"it has other knobs than the template now ({differences})" if differences else ""


def instantiate(task: Task, record: Record) -> tuple[Scheduled, bool]:
    """The schedule of a record, and whether its trace was replayed in place of the template."""
    by_hand = task.by_hand
    if by_hand is not None and not record.trace and record.task in by_hand.aliases:
        return instantiate(by_hand, record)
    named = record.task in task.aliases
    if task.automatic or not named:
        if record.dag not in task.dag_hashes:
            raise Refused("it is of another tensor expression")
        return _on_expression(task.expression(record.dag), record), not named
    if not record.trace and (differing := other_knobs(task, record.config)):
        raise Refused(f"{differing}, and no trace")
    try:
        schedule, tensors = task.instantiate(record.config)
    except LoopwrightError as exc:
        raise Refused(f"its configuration fails now: {exc}") from exc
    if record.dag and schedule.dag.hash != record.dag:
        raise Refused("the template computes another tensor expression now")
    if not record.dag or not record.trace:
        return (schedule, tensors), False
    if canonical_json(schedule.trace_json()) == canonical_json(record.trace):
        return (schedule, tensors), False
    return _on_expression((schedule, tensors), record), True


def _on_expression(scheduled: Scheduled, record: Record) -> Scheduled:
    """Replay the trace of a record on the expression of another schedule, with its arguments."""
    from loopwright.schedule import replay

    schedule, tensors = scheduled
    try:
        fresh = replay(schedule.dag, record.trace)
        return fresh, [fresh.tensor(a) for a in schedule.arg_ids(tensors)]
    except LoopwrightError as exc:
        raise Refused(f"its trace does not replay: {exc}") from exc


def why_not_applied(
    records: Sequence[Record], target: TargetLike = None, any_hardware: bool = False
) -> list[str]:
    """Give the reason why each record cannot be applied here; empty where it may be.

    Templates run for their knobs alone, not under the records, so one may still refuse a
    configuration when it is built. The best of several records is not chosen either:
    ``apply_history_best(...).explain(task)`` does that.

    ``records`` are those of a log, such as ``loopwright.records.load(path).records``, of loopwright
    or of AutoTVM. Without a target each is judged for the kind that it names, on this machine.
    ``any_hardware`` is as of ``apply_history_best``.
    """
    machines: dict[str, Here | None] = {}

    def hardware(record: Record) -> str:
        if record.kind not in machines:
            try:
                resolved = resolve_target(record.kind if target is None else target)
                machines[record.kind] = Here(resolved.canonical, {})
            except TargetError:  # of an unknown kind, which `_task_of` reports
                machines[record.kind] = None
        here = machines[record.kind]
        return of_other_hardware(here.fit(record)) if here is not None else ""

    tasks = once_for_equal(lambda record: _task_of(record, target), records, ("task",))
    foreign = once_for_equal(hardware, records, ("target", "env", "threads", "build"))
    usable, configs = fields_of(records, "usable", "config")
    reasons = []
    columns = zip(records, tasks, foreign, usable, configs, strict=True)
    for record, task, other, ok, config in columns:
        if not ok:  # the plainest reason first
            reasons.append(unusable(record))
        elif isinstance(task, str):
            reasons.append(task)
        else:
            reasons.append(("" if any_hardware else other) or _misfit(record, task, config))
    return reasons


def _task_of(record: Record, target: TargetLike) -> Task | str:
    """The task that a record would be applied to, or the reason why there is none."""
    if record.op not in TASKS:
        return f"the template {record.op!r} is not registered; import the file that defines it"
    try:
        return create_task(record.op, record.args, target if target is not None else record.kind)
    except LoopwrightError as exc:
        return f"there is no such task: {exc}"


def _misfit(record: Record, task: Task, config: Mapping[str, Json]) -> str:
    """Reason why a record's knobs are not those of the template now; empty where they are."""
    if task.automatic and record.trace and record.dag in task.dag_hashes:
        return ""
    task = task.by_hand or task
    if (differing := other_knobs(task, config)) and not record.trace:
        return f"{differing}, and no trace"
    try:
        task.config_space.entity_of(config)
    except LoopwrightError as exc:
        return f"its configuration fails now: {exc}"
    return ""
