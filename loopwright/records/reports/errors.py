"""Failures of trials: their kinds and shares, an example of each, and the knobs that go with them.

Whether a value of a knob goes with failure is tested by Fisher's exact test, one-sided ("On the
interpretation of chi-squared from contingency tables, and the calculation of P", J. R. Stat. Soc.
85, 1922), and corrected by Bonferroni for the number of values that could have been named: this
number depends on how often each value occurs, and not on how often it failed, so that the
correction holds (Tarone, "A modified Bonferroni method for discrete data", Biometrics 46, 1990).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from loopwright.records.bulk import fields_of
from loopwright.records.query import measured
from loopwright.records.record import Record
from loopwright.records.reports.knobs import KnobColumn, knobs_of

#: A value is named when chance gives a link as strong with less than this probability.
SIGNIFICANT = 0.01
FEWEST = 5  # a value is named when so many failures have it, at least


@dataclass(frozen=True)
class FailingValue:
    knob: str
    value: str  # as text
    failed: int  # number of records with this value that failed in this way
    trials: int  # number of records with this value
    overall: float  # share of all records that failed in this way
    #: Probability of so many failures if the value made no difference, corrected for the number of
    #: values that could have so many.
    p: float

    @property
    def share(self) -> float:
        return self.failed / self.trials


@dataclass(frozen=True)
class Failures:
    """Failures of one kind: of trials, and of further measurements of a candidate."""

    kind: str  # name of the kind, as in records
    count: int  # number of records
    share: float  # share of all records that were looked at
    first: Record
    text: str  # error text of ``first`` in one line
    values: tuple[FailingValue, ...]  # values of knobs that go with it, the strongest link first


@dataclass(frozen=True)
class FailureReport:
    trials: int  # number of trials looked at
    failed: int  # number of them that failed
    dropped: int  # number that racing stopped early, which is no failure
    again: int  # number of failed further measurements, such as of a playoff
    #: The kinds of failures, the most frequent first; they include those of further measurements.
    kinds: tuple[Failures, ...]


def failures(records: Iterable[Record], significant: float = SIGNIFICANT) -> FailureReport:
    """Count failures by kind, and find the values of knobs that go with them.

    Records of several tasks may be given; knobs are then compared within all of them. Copies of a
    program are no trials. A value is named below the probability ``significant`` of chance.

    Example:
        >>> from loopwright.records.reports.errors import failures
        >>> report = failures(lw.records.load("matmul.jsonl").records)
        >>> print(report.trials, report.failed, report.kinds)
        6 0 ()
    """
    records = measured(records)
    errors, phases, dropped = fields_of(records, "error", "phase", "dropped")
    kinds = [None if error is None else str(error.get("kind", "")) for error in errors]
    is_trial = [not phase for phase in phases]
    trials = sum(is_trial)
    failed = sum(kind is not None and own for kind, own in zip(kinds, is_trial, strict=True))
    counts = Counter(kind for kind in kinds if kind is not None)
    reports = []
    # Without a failure nothing is asked of the knobs.
    knobs = knobs_of(records) if counts else []
    for kind, count in counts.most_common():
        first = kinds.index(kind)
        has = np.array([kind == other for other in kinds], dtype=np.bool_)
        text = " ".join(str((errors[first] or {}).get("text", "")).split())
        values = _failing_values(knobs, has, significant)
        reports.append(Failures(kind, count, count / len(records), records[first], text, values))
    again = sum(counts.values()) - failed
    return FailureReport(trials, failed, sum(dropped), again, tuple(reports))


def _failing_values(
    knobs: Sequence[KnobColumn], has: npt.NDArray[np.bool_], significant: float
) -> tuple[FailingValue, ...]:
    """Values that go with failure, among records of which some failed in one way."""
    values: list[FailingValue] = []
    total, bad, looked_at = len(has), int(has.sum()), 0
    for name, texts, codes in _parts(knobs):
        trials = np.bincount(codes, minlength=len(texts))
        failed = np.bincount(codes[has], minlength=len(texts))
        possible = (np.minimum(trials, bad) >= FEWEST) & (trials < total)
        looked_at += int(possible.sum())
        for row in np.flatnonzero(possible & (failed >= FEWEST)).tolist():
            n, k = int(trials[row]), int(failed[row])
            p = _probability(k, n, bad, total)
            values.append(FailingValue(name, texts[row], k, n, bad / total, p))
    corrected = [replace(value, p=min(1.0, value.p * looked_at)) for value in values]
    strong = [value for value in corrected if value.p < significant]
    return tuple(sorted(strong, key=lambda value: (value.p, -value.share)))


def _parts(knobs: Sequence[KnobColumn]) -> Iterator[tuple[str, list[str], npt.NDArray[np.int64]]]:
    """Each part of each knob: its name, the texts of its values, and each record's index."""
    for knob in knobs:
        for name, values in knob.parts().items():
            rows = {text: row for row, text in enumerate(dict.fromkeys(t for t, _ in values))}
            yield name, list(rows), np.array([rows[text] for text, _ in values])[knob.codes]


def _probability(k: int, n: int, bad: int, total: int) -> float:
    """P(X >= k) for X ~ Hypergeometric(total, bad, n)."""
    from scipy.special import gammaln

    def log_choose(of: int, some: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        logs: npt.NDArray[np.float64] = gammaln(of + 1) - gammaln(some + 1) - gammaln(of - some + 1)
        return logs

    counts = np.arange(k, min(n, bad) + 1)
    logs = log_choose(bad, counts) + log_choose(total - bad, n - counts)
    logs -= log_choose(total, np.array([n]))
    return float(min(1.0, np.exp(logs[n - counts <= total - bad]).sum()))
