"""Judgement of a record: usable or not, checked or not, and compared with the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopwright.errors import RecordError
from loopwright.records import Record, Verdict, fields_of
from loopwright.records.query import latest_verdict
from loopwright.task.applying.fit import Fit, Here
from loopwright.task.dispatch import say_once

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
    found = [record for record, phase in zip(own, phases, strict=True) if phase == CHECK]
    checks = sorted(found, key=lambda r: r.ts)
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
