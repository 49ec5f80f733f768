"""The gain from a single decision: records that differ from a record in one knob."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

import numpy as np

from loopwright.records.bulk import fields_of
from loopwright.records.ranking import refuted
from loopwright.records.record import Record
from loopwright.records.reports.differences import Ratio, time_ratio
from loopwright.records.reports.knobs import ABSENT, knobs_of, value_text


@dataclass(frozen=True)
class Neighbours:
    """The records that differ from a record in one knob alone."""

    knob: str
    count: int  # number of other values of it that were measured
    fastest: Record | None  # None where there are no neighbours
    value: str  # its value of the knob, as text; may be empty
    ratio: Ratio | None  # its time by that of the record: below 1 where it is faster


def neighbours(record: Record, records: Iterable[Record]) -> list[Neighbours]:
    """Measured effect of changing each knob by itself, in the order of the record's knobs.

    Slow ones that racing dropped after one window count, since they are slower. Those whose answer
    was found to be wrong, or that crashed later, do not. The record has a time, and the others its
    setup.

    Example:
        >>> from loopwright.records.reports.neighbours import neighbours
        >>> records = lw.records.load("matmul.jsonl").records
        >>> effects = neighbours(lw.records.best(records), records)
        >>> print({n.knob for n in effects} <= set(records[0].config))
        True
    """
    records = list(records)
    (valid,) = fields_of(records, "valid")
    sound = [own and not bad for own, bad in zip(valid, refuted(records), strict=True)]
    others = list(compress(records, sound))
    knobs = [knob for knob in knobs_of(others) if len(knob.texts) > 1]
    (seconds,) = fields_of(others, "median")
    differs = {}
    for knob in knobs:
        own = value_text(record.config[knob.name]) if knob.name in record.config else ABSENT
        number = knob.texts.index(own) if own in knob.texts else -1
        differs[knob.name] = knob.codes != number
    total = sum(differs.values(), start=np.zeros(len(others), dtype=np.int64))
    results = []
    for knob in knobs:
        rows = np.flatnonzero(differs[knob.name] & (total == 1)).tolist()
        count = len({int(knob.codes[row]) for row in rows})
        if not rows:
            results.append(Neighbours(knob.name, 0, None, "", None))
            continue
        row = min(rows, key=lambda row: seconds[row])
        value = knob.texts[int(knob.codes[row])]
        ratio = time_ratio(record, others[row])
        results.append(Neighbours(knob.name, count, others[row], value, ratio))
    return results
