"""Validation of a log: the kind of each line, and the damaged ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from loopwright.errors import RecordError
from loopwright.records.foreign import origin_of
from loopwright.records.line import (
    DamagedLineError,
    TornLineError,
    UnknownVersionError,
    is_own_line,
)
from loopwright.records.log import raw_lines, read_line
from loopwright.records.own_lines import SharedValues, own_record
from loopwright.records.record import Expression, Record


class LineKind(StrEnum):
    RECORD = "record"
    HEADER = "header"
    EXPRESSION = "expression"
    COMMENT = "comment"  # a blank line, or one that begins with ``#``
    #: Of other tuners, which are read.
    AUTOTVM = "AutoTVM record"
    ANSOR = "Ansor record"
    KERNEL_TUNER = "Kernel Tuner record"
    T4 = "T4 record"
    KTT = "KTT record"
    #: Of a newer version of loopwright, or of another version of TVM: whole, but ignored.
    UNKNOWN_VERSION = "unknown version"
    TORN = "torn"  # cut off, as by a crash in the middle of writing
    DAMAGED = "damaged"  # does not fit its checksum
    #: No line of a log: not JSON, or an object with a field missing or malformed.
    MALFORMED = "malformed"


#: Kinds that an undamaged log does not have.
BAD = frozenset({LineKind.TORN, LineKind.DAMAGED, LineKind.MALFORMED})


@dataclass(frozen=True)
class LineReport:
    number: int  # from 1
    kind: LineKind
    detail: str = ""  # the record's id, or what is wrong; may be empty

    @property
    def is_bad(self) -> bool:
        return self.kind in BAD

    @property
    def is_read(self) -> bool:
        """Whether a reader takes the line."""
        return not self.is_bad and self.kind is not LineKind.UNKNOWN_VERSION


@dataclass(frozen=True)
class Validation:
    lines: Counter[LineKind]
    #: Number of records and expressions without a checksum, in which damage may go unnoticed: an
    #: earlier version wrote them.
    unsealed: int
    notable: tuple[LineReport, ...]  # lines that are bad or not read

    @property
    def sound(self) -> int:
        """Number of whole lines of kinds that only a log has."""
        no_proof = {*BAD, LineKind.UNKNOWN_VERSION, LineKind.COMMENT}
        return sum(count for kind, count in self.lines.items() if kind not in no_proof)

    @property
    def bad(self) -> int:
        """Number of damaged lines."""
        return sum(self.lines[kind] for kind in BAD)


def validate(path: str | os.PathLike[str]) -> Validation:
    """Count the lines of a log by kind, and report the damaged ones; errors as of `load`.

    Example:
        >>> from loopwright.records.validation import validate
        >>> report = validate("matmul.jsonl")
        >>> print(report.bad, report.unsealed, report.sound > 6)
        0 0 True
    """
    counts: Counter[LineKind] = Counter()
    notable = []
    unsealed = 0
    for line, sealed in _judged(path):
        counts[line.kind] += 1
        unsealed += not sealed
        if not line.is_read:
            notable.append(line)
    return Validation(counts, unsealed, tuple(notable))


def line_reports(path: str | os.PathLike[str]) -> Iterator[LineReport]:
    """The kind of each line of a log, in order; errors as of `load`.

    Example:
        >>> from loopwright.records.validation import line_reports
        >>> print({str(line.kind) for line in line_reports("matmul.jsonl")} >= {"record", "header"})
        True
    """
    return (line for line, _ in _judged(path, ids=True))


def _judged(path: str | os.PathLike[str], ids: bool = False) -> Iterator[tuple[LineReport, bool]]:
    """Each line, and whether it has a checksum or needs none."""
    shared = SharedValues()
    for number, raw in enumerate(raw_lines(path), 1):
        line = raw.rstrip(b"\r\n")
        if not ids and own_record(line, shared) is not None:
            yield LineReport(number, LineKind.RECORD), True
            continue
        report = _report(number, raw)
        sealable = report.kind in (LineKind.RECORD, LineKind.EXPRESSION)
        yield report, not sealable or is_own_line(line)


def _report(number: int, raw: bytes) -> LineReport:
    try:
        line = read_line(raw)
    except TornLineError:
        return LineReport(number, LineKind.TORN, "cut off in the middle")
    except DamagedLineError:
        return LineReport(number, LineKind.DAMAGED, "does not fit its checksum")
    except UnknownVersionError as exc:
        return LineReport(number, LineKind.UNKNOWN_VERSION, str(exc))
    except RecordError as exc:
        return LineReport(number, LineKind.MALFORMED, str(exc))
    match line:
        case None:
            return LineReport(number, LineKind.COMMENT)
        case Expression():
            return LineReport(number, LineKind.EXPRESSION, line.hash)
        case Record():
            kind = f"{origin} record" if (origin := origin_of(line)) else LineKind.RECORD
            return LineReport(number, LineKind(kind), line.id)
    return LineReport(number, LineKind.HEADER, str(line.get("run", "")))
