"""The best candidates of a task on a machine, with ratios to the best and the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from loopwright.records.bulk import fields_of
from loopwright.records.query import verdict_on
from loopwright.records.ranking import playoffs, ranked, ratios, vouched
from loopwright.records.record import Checked, Record
from loopwright.records.reports.differences import Ratio, time_ratio
from loopwright.records.reports.setups import Setup, by_setup
from loopwright.records.verdict import Verdict


@dataclass(frozen=True)
class Standing:
    place: int  # from 1
    record: Record  # the measurement by which it is judged
    checked: bool  # whether its answer was found right
    to_best: Ratio  # its time by that of the best: 1.02 takes 2 % longer
    to_default: Ratio | None  # its time by that of the default; None: not known


@dataclass(frozen=True)
class Standings:
    setup: Setup
    candidates: int  # number of candidates that may be best
    places: tuple[Standing, ...]
    default: Record | None  # None where the log has no record of the default configuration
    #: The best against the default in the playoff, whose interval counts more than that of any two
    #: records; None where there was none.
    verdict: Verdict | None


def standings(records: Iterable[Record], count: int = 10) -> list[Standings]:
    """The best candidates of each setup, by the one rule (:func:`loopwright.records.ranked`).

    Setups are in order of first appearance; without places where no record may be best.

    Example:
        >>> from loopwright.records.reports.standings import standings
        >>> [first] = standings(lw.records.load("matmul.jsonl").records, 3)
        >>> print([s.place for s in first.places][:1], first.places[0].to_best.value)
        [1] 1.0
    """
    return [_standings(setup, group, count) for setup, group in by_setup(records).items()]


def _standings(setup: Setup, records: Sequence[Record], count: int) -> Standings:
    everyone = ranked(records)
    best = everyone[:count]
    if not best:
        return Standings(setup, 0, (), None, None)
    right = vouched(records)
    verdict = verdict_on(best[0], records)
    default = default_record(records, verdict)
    together = _Together(records)
    places = []
    for place, record in enumerate(best, 1):
        to_best = together.ratio(best[0], record)
        to_default = None if default is None else together.ratio(default, record)
        assert to_best is not None  # both have times
        checked = record.checked is Checked.YES or (record.candidate, record.build) in right
        places.append(Standing(place, record, checked, to_best, to_default))
    return Standings(setup, len(everyone), tuple(places), default, verdict)


class _Together:
    """Ratios of times within one playoff or one search, where playoffs ran."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._ratios = ratios(records)
        self._playoffs: dict[str, dict[object, Record]] = {}
        self._searches: dict[str, dict[object, Record]] = {}
        numbers = playoffs(records) if self._ratios else {}
        for record in records if numbers else ():
            number = numbers.get(record.id)
            groups = self._searches if number is None else self._playoffs
            if record.usable and not record.same_as:
                groups.setdefault(record.candidate, {})[number or record.run] = record

    def ratio(self, base: Record, other: Record) -> Ratio | None:
        """Time of the other by that of the base: in the last playoff of both, else by their ratios
        to the default, else in the search.
        """
        if (found := self._within(self._playoffs, base, other)) is not None:
            return found
        one, two = (self._ratios.get(r.candidate) for r in (base, other))
        if one is not None and two is not None:
            return Ratio(two / one, None, None, (len(base.times), len(other.times)))
        return self._within(self._searches, base, other) or time_ratio(base, other)

    @staticmethod
    def _within(
        groups: Mapping[str, Mapping[object, Record]], base: Record, other: Record
    ) -> Ratio | None:
        ours, theirs = (groups.get(r.candidate, {}) for r in (base, other))
        both = [group for group in theirs if group in ours]
        return time_ratio(ours[both[-1]], theirs[both[-1]]) if both else None


def default_record(records: Sequence[Record], verdict: Verdict | None = None) -> Record | None:
    """The latest measurement of the default configuration; None where it is not known or failed.

    It is the one that the verdict names, else the first trial of a run, which by the format is the
    default configuration. The records are those of one setup.

    Example:
        >>> from loopwright.records.reports.standings import default_record
        >>> print(default_record(lw.records.load("matmul.jsonl").records).trial)
        0
    """
    usable, candidates = fields_of(records, "usable", "candidate")
    if verdict is not None and verdict.default:
        chosen = [candidate == verdict.default for candidate in candidates]
    else:
        # AutoTVM numbers no trials and names no run: there every record would be trial 0.
        trials, runs, phases = fields_of(records, "trial", "run", "phase")
        chosen = [
            not trial and bool(run) and not phase
            for trial, run, phase in zip(trials, runs, phases, strict=True)
        ]
        first = {
            candidate for candidate, is_first in zip(candidates, chosen, strict=True) if is_first
        }
        chosen = [candidate in first for candidate in candidates] if len(first) == 1 else chosen
    measured = list(compress(records, (a and b for a, b in zip(chosen, usable, strict=True))))
    return max(measured, key=lambda record: record.ts, default=None)
