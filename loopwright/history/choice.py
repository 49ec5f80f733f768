"""The record that a task was built from, and why: a `Choice` a task, and the `Report` of all of
them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from loopwright.history.call_overhead import AsCalled
from loopwright.presenting import counted, duration
from loopwright.records import FACTOR, NOT_COMPARED, Checked, Outcome, Record, Verdict


class Match(StrEnum):
    """Relation of what was built to the log."""

    #: A record of this target, these threads, this hardware and this compiler.
    EXACT = "exact"
    #: A record that fits, and differs in something that may change its time.
    COMPATIBLE = "compatible"
    #: The default configuration.
    DEFAULT = "default"
    #: A configuration that was given by ``update``.
    GIVEN = "given"


@dataclass(frozen=True)
class Choice:
    """The record that a task got, or the reasons why it got none.

    Attributes:
        record: None where none fits, and the default configuration is built. Where the record's
            verdict says that the default is as fast, that is built, and this is the record that
            says so.
        reasons: Reasons why records were passed over, most frequent first.
        hardware: ``"same"``, ``"unknown"`` (the record does not say) or ``"other"``.
        replayed: True when the recorded trace was replayed, since the template makes another
            schedule of the record's configuration now.
        note: Other differences, such as the number of threads.
        checked: Whether the answer of the record's kernel was compared with the reference.
        check_reason: Reason why it was not.
        verdict: Comparison of the record with the default configuration; None: it won no playoff.
        near_misses: The best records that were refused, each with what differs, field by field.
        actual: Times that `loopwright.build` with ``verify=True`` measured, else None.
        ratio: The time of the record by that of the default in the rounds of a playoff; None: they
            were not compared.
        default_seconds: Seconds per call of the default in the search; None where that is not
            known, or not needed.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> choice = lw.apply_history_best("matmul.jsonl").explain(task)
        >>> print(choice.task, choice.checked.value)
        matmul(64, 64, 64, False, False, 'float32') yes
    """

    task: str
    key: str
    record: Record | None
    reasons: tuple[str, ...] = ()
    hardware: str = ""
    replayed: bool = False
    note: str = ""
    match: Match = Match.DEFAULT
    checked: Checked = Checked.NO
    check_reason: str = ""
    verdict: Verdict | None = None
    near_misses: tuple[str, ...] = ()
    actual: AsCalled | None = None
    ratio: float | None = None
    default_seconds: float | None = None

    @property
    def unverified(self) -> bool:
        """True where there is a record that no playoff has compared with the default."""
        return self.record is not None and self.ratio is None

    @property
    def expected(self) -> float | None:
        """Seconds per call of what is built, as far as records tell."""
        if self.record is None or self.record.median is None:
            return None
        if self.match is not Match.DEFAULT:
            return self.record.median
        if self.verdict is not None and self.verdict.is_compared:
            return self.record.median * (1 + self.verdict.gain)
        return self.default_seconds if self.ratio is None else self.record.median / self.ratio

    @property
    def age(self) -> float | None:
        """Seconds since the record was made; None when it does not say."""
        return max(0.0, time.time() - self.record.ts) if self.record and self.record.ts else None

    @property
    def against_default(self) -> str:
        """Comparison of the record with the default configuration, in words."""
        if self.ratio is None:
            return "unverified: not compared with the default"
        verdict = NOT_COMPARED if self.verdict is None else self.verdict
        percent = f"{abs(verdict.gain):.1%} +- {verdict.margin:.1%}"
        match verdict.outcome:
            case Outcome.FASTER if verdict.gain >= FACTOR:
                return (
                    f"{1 + verdict.gain:.2f} +- {verdict.margin:.2f} times as fast as the default"
                )
            case Outcome.FASTER:
                return f"{percent} faster than the default"
            case Outcome.SLOWER:
                return f"{percent} slower than the default"
            case Outcome.TIE:
                return f"as fast as the default (within {verdict.margin:.1%})"
            case Outcome.NOT_COMPARED:  # another one won the playoff
                return f"{1 / self.ratio:.2f} times as fast as the default in a playoff"

    def __str__(self) -> str:
        if self.match is Match.GIVEN:
            return f"{self.task}: the configuration that was given{self._verified}"
        if self.record is None:
            why = "; ".join([*self.reasons, *self.near_misses])
            return f"{self.task}: no record ({why}); default configuration{self._verified}"
        expected = (
            "time unknown" if self.expected is None else f"{duration(self.expected)} per call"
        )
        parts = [expected, f"{self.hardware} hardware"]
        if self.age is not None:
            parts.append(f"{span(self.age)} old")
        parts += [f"{self.match} match"] if self.match is not Match.DEFAULT else []
        unchecked = "not checked" + (f": {self.check_reason}" if self.check_reason else "")
        parts.append("checked" if self.checked is Checked.YES else unchecked)
        parts.append(self.against_default)
        if self.replayed:
            parts.append("its trace replayed, the template has changed")
        if self.note:
            parts.append(self.note)
        if self.reasons:
            parts.append(f"passed over: {'; '.join(self.reasons)}")
        parts += self.near_misses
        if self.match is Match.DEFAULT:
            by = "since it is not verified:" if self.unverified else "by the verdict of"
            source = f"default configuration, {by} record {self.record.id}"
        else:
            source = f"record {self.record.id}"
        return f"{self.task}: {source} ({', '.join(parts)}){self._verified}"

    @property
    def _verified(self) -> str:
        return "" if self.actual is None else f"; {self.actual}"


_TITLES = ("task", "built from", "match", "age", "hardware", "expected", "actual", "checked")


class Report(tuple[Choice, ...]):
    """The choices of a context, in the order of the builds; its text is a table.

    Example:
        >>> with lw.apply_history_best("matmul.jsonl") as history, lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print([choice.task for choice in history.report()])
        ["matmul(64, 64, 64, False, False, 'float32')"]
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_table

        remarks = ["; ".join(_remarks(choice)) for choice in self]
        rows = [(*_row(choice), text) for choice, text in zip(self, remarks, strict=True)]
        table = html_table(rows, (*_TITLES, "remarks")) if rows else ""
        title = "Built under this history" if rows else "Nothing was built under this history"
        return html_block(title, table)

    def __str__(self) -> str:
        if not self:
            return "nothing was built under this history"
        rows: list[tuple[str, ...]] = [_TITLES]
        rows += [_row(choice) for choice in self]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_aligned(rows[0], widths)]
        for row, choice in zip(rows[1:], self, strict=True):
            lines.append(_aligned(row, widths))
            lines += [f"  {line}" for line in _remarks(choice)]
        return "\n".join(lines)


def _row(choice: Choice) -> tuple[str, ...]:
    record, actual = choice.record, choice.actual
    taken = record if choice.match is not Match.DEFAULT else None
    return (
        choice.task,
        f"record {taken.id}" if taken else "update" if choice.match is Match.GIVEN else "default",
        str(choice.match),
        span(choice.age) if taken and choice.age is not None else "-",
        choice.hardware if taken else "-",
        "-" if choice.expected is None else duration(choice.expected),
        "-" if actual is None else duration(actual.seconds),
        str(choice.checked) if taken else "-",
    )


def _remarks(choice: Choice) -> Iterable[str]:
    """Lines below the row of a task."""
    if choice.record is not None:
        yield f"record {choice.record.id}: {choice.against_default}"
        if choice.checked is not Checked.YES:
            yield f"not checked{f': {choice.check_reason}' if choice.check_reason else ''}"
    if choice.replayed:
        yield "its trace was replayed, since another space or template made it"
    if choice.note:
        yield choice.note
    if choice.reasons:
        yield f"passed over: {'; '.join(choice.reasons)}"
    yield from choice.near_misses
    if choice.actual is not None:
        yield str(choice.actual)


def _aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(f"{cell:{w}}" for cell, w in zip(cells, widths, strict=True)).rstrip()


def span(seconds: float) -> str:
    """An age for people, such as ``2 hours``."""
    for name, size in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= size:
            return counted(int(seconds / size), name)
    return f"{int(seconds)} seconds"
