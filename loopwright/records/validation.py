"""Is a log whole: what each of its lines is, and which of them are damaged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from loopwright.errors import RecordError
from loopwright.records.expression import Expression
from loopwright.records.index.open import known_records
from loopwright.records.line import (
    DamagedLineError,
    TornLineError,
    UnknownVersionError,
    is_own_line,
)
from loopwright.records.log import raw_lines, read_line
from loopwright.records.record import Record


class LineKind(StrEnum):
    """What a line of a log is."""

    RECORD = "record"
    HEADER = "header"
    EXPRESSION = "expression"
    #: A blank line, or one that begins with ``#``.
    COMMENT = "comment"
    #: A record of AutoTVM, which is read.
    FOREIGN = "AutoTVM record"
    #: Of a newer version of loopwright, or of another version of TVM: whole, and passed over.
    UNKNOWN_VERSION = "unknown version"
    #: Cut off, as by a crash in the middle of writing.
    TORN = "torn"
    #: Does not fit its checksum.
    DAMAGED = "damaged"
    #: No line of a log: not JSON, or an object with a field missing or malformed.
    MALFORMED = "malformed"


#: What a whole log does not have.
BAD = frozenset({LineKind.TORN, LineKind.DAMAGED, LineKind.MALFORMED})
#: What a reader takes nothing from, though it is whole.
_PASSED_OVER = frozenset({LineKind.UNKNOWN_VERSION})


@dataclass(frozen=True)
class LineReport:
    """What one line is.

    Attributes:
        number: its number, from 1.
        kind: what it is.
        detail: the record's id, or what is wrong with the line; empty where there is nothing to
            say.
    """

    number: int
    kind: LineKind
    detail: str = ""

    @property
    def is_bad(self) -> bool:
        """True where the line is damaged."""
        return self.kind in BAD

    @property
    def is_read(self) -> bool:
        """True where a reader takes the line."""
        return not self.is_bad and self.kind not in _PASSED_OVER


@dataclass(frozen=True)
class Validation:
    """What the lines of a log are.

    Attributes:
        lines: how many lines there are of each kind.
        unsealed: how many of the records and expressions have no checksum, so that damage to them
            may go unnoticed: an earlier version wrote them.
        notable: the lines that are bad or not read.
    """

    lines: Counter[LineKind]
    unsealed: int
    notable: tuple[LineReport, ...]

    @property
    def sound(self) -> int:
        """How many lines are such as only a log has, and whole."""
        return sum(
            count
            for kind, count in self.lines.items()
            if kind not in BAD and kind not in _PASSED_OVER and kind is not LineKind.COMMENT
        )

    @property
    def bad(self) -> int:
        """How many lines are damaged."""
        return sum(self.lines[kind] for kind in BAD)


def validate(path: str | os.PathLike[str]) -> Validation:
    """Say what the lines of a log are.

    Args:
        path: The file.

    Raises:
        RecordError: it does not exist or cannot be read.

    Example:
        >>> from loopwright.records.validation import validate
        >>> found = validate("matmul.jsonl")
        >>> print(found.bad, found.unsealed, found.sound > 6)
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
    """What each line of a log is, in order.

    Args:
        path: The file.

    Raises:
        RecordError: it does not exist or cannot be read.

    Example:
        >>> from loopwright.records.validation import line_reports
        >>> print({str(line.kind) for line in line_reports("matmul.jsonl")} >= {"record", "header"})
        True
    """
    return (line for line, _ in _judged(path, ids=True))


def _judged(path: str | os.PathLike[str], ids: bool = False) -> Iterator[tuple[LineReport, bool]]:
    """Each line, and whether it needs no checksum or has one."""
    known = set() if ids else known_records(path)
    for number, raw in enumerate(raw_lines(path), 1):
        line = raw.rstrip(b"\r\n")
        # The index says that the line was read before; the checksum, that it is as it was written.
        if number in known and is_own_line(line):
            yield LineReport(number, LineKind.RECORD), True
            continue
        report = _report(number, raw)
        own = report.kind in (LineKind.RECORD, LineKind.EXPRESSION)
        yield report, not own or is_own_line(line)


def _report(number: int, raw: bytes) -> LineReport:
    """What a line is, by reading it."""
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
            kind = LineKind.FOREIGN if "autotvm" in line.extra else LineKind.RECORD
            return LineReport(number, kind, line.id)
    return LineReport(number, LineKind.HEADER, str(line.get("run", "")))
