"""The use that a run may make of a record of the past: the one rule, as a pure function."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from loopwright.records.bulk import fields_of, once_for_equal
from loopwright.records.line import Json
from loopwright.records.record import Record

#: Parts of a canonical target that name hardware or threads, which are compared on their own.
_HARDWARE_OPTIONS = frozenset({"mcpu", "mattr", "num_threads"})
#: Fields and properties of a record that `reuse_of` looks at.
_COMPARED = ("task", "dag", "threads", "target", "space", "build", "hardware")


class Reuse(enum.Enum):
    """Possible uses of a record of the past.

    Example:
        >>> print([reuse.value for reuse in lw.records.Reuse])
        ['trial', 'training', 'trace only', 'nothing']
    """

    AS_TRIAL = "trial"  # measured already: a trial of the run, never measured again
    #: Same space, other compiler or hardware: it trains the model; its best are measured again.
    FOR_TRAINING = "training"
    #: Same task, other space or name: its trace may be applied or tried; it is no trial.
    TRACE_ONLY = "trace only"
    NOT_AT_ALL = "nothing"  # another task, target or number of threads: of no use


@dataclass(frozen=True)
class Conditions:
    """Conditions of a run that decide whether a record can be reused.

    Attributes:
        task: Key of the task that is tuned now; for a template, its name in records.
        space: Hash of its space; one for each structure where it has several.
        build, hardware, threads: the present ones, see `build_hash`, `hardware` and `threads`.
        expression: Key of its expression, which records under other names may have; empty: those
            are ignored.
        target: Present canonical target, whose options (such as fast math) must be equal; None
            compares only its kind, which is part of the key.

    Example:
        >>> one = lw.records.load("matmul.jsonl").records[0]
        >>> now = lw.records.Conditions(one.task, one.space, one.build, one.hardware, one.threads)
        >>> print(lw.records.reuse_of(one, now))
        Reuse.AS_TRIAL
    """

    task: str
    space: str | tuple[str, ...]
    build: str
    hardware: str
    threads: int
    target: Mapping[str, Json] | None = None
    expression: str = ""


def reuse_of(record: Record, now: Conditions) -> Reuse:
    """Decide the use of a record of the past; the seed never matters.

    Example:
        >>> record = lw.records.load("matmul.jsonl").records[0]
        >>> now = lw.records.Conditions("another task", "", "", "", record.threads)
        >>> print(lw.records.reuse_of(record, now))
        Reuse.NOT_AT_ALL
    """
    named = record.task == now.task
    same = named or (bool(record.dag) and record.expression in (now.task, now.expression))
    if not same or record.threads != now.threads:
        return Reuse.NOT_AT_ALL
    if now.target is not None and _options(record.target) != _options(now.target):
        return Reuse.NOT_AT_ALL
    if not named or record.space not in _hashes(now.space):
        return Reuse.TRACE_ONLY
    if record.build != now.build or record.hardware != now.hardware:
        return Reuse.FOR_TRAINING
    return Reuse.AS_TRIAL


def reuses_of(records: Sequence[Record], now: Conditions) -> list[Reuse]:
    """`reuse_of` each of many records.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> now = lw.records.Conditions("another task", "", "", "", records[0].threads)
        >>> print(set(lw.records.reuses_of(records, now)))
        {<Reuse.NOT_AT_ALL: 'nothing'>}
    """
    return once_for_equal(lambda record: reuse_of(record, now), records, _COMPARED)


def by_code(records: Iterable[Record], now: Conditions) -> dict[str, Record]:
    """Records of other versions of the compiler that count again where the code is the same.

    A present candidate whose object code has the hash of such a record is the same program on the
    same hardware: the record is its trial, and nothing is run. So an upgrade that changes no code
    discards no measurement. Of several records of one hash it is one that found the answer wrong;
    else the latest with a full time; else the latest that racing dropped. Other failures may have
    been bad luck, and are ignored.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> now = lw.records.Conditions("another task", "", "", "", records[0].threads)
        >>> print(lw.records.by_code(records, now))
        {}
    """
    chosen: dict[str, Record] = {}
    records = list(records)
    (codes,) = fields_of(records, "code")
    coded = [record for record, code in zip(records, codes, strict=True) if code]

    def would_be_trial(record: Record) -> bool:
        """Whether it is a trial of the run but for the version of its compiler."""
        then = replace(now, build=record.build)
        return record.build != now.build and reuse_of(record, then) is Reuse.AS_TRIAL

    others = once_for_equal(would_be_trial, coded, _COMPARED)
    for record in compress(coded, others):
        weight = _weight(record)
        if weight[0] and weight >= _weight(chosen.get(record.code, record)):
            chosen[record.code] = record
    return chosen


def _weight(record: Record) -> tuple[int, float]:
    """Sort key of records of one code: a wrong answer before a full time before a dropped one, then
    the later one; rank 0 without a hash of the code.
    """
    return 3 if record.wrong else 2 if record.usable else 1 if record.valid else 0, record.ts


def differences(record: Record, now: Conditions) -> tuple[str, ...]:
    """Reasons, in words, why a record cannot be a trial of the run; empty when there are none.

    Example:
        >>> record = lw.records.load("matmul.jsonl").records[0]
        >>> now = lw.records.Conditions(record.task, record.space, record.build, "", 64)
        >>> print(lw.records.differences(record, now)[0])
        threads differs: the record has 2, this run 64
    """
    spaces = _hashes(now.space)
    pairs: list[tuple[str, object, object]] = [
        ("task", record.task, now.task),
        ("threads", record.threads, now.threads),
        ("space", record.space, record.space if record.space in spaces else ", ".join(spaces)),
        ("build", record.build, now.build),
        ("hardware", record.hardware, now.hardware),
    ]
    if now.target is not None:
        pairs.insert(1, ("target", _options(record.target), _options(now.target)))
    return tuple(
        f"{name} differs: the record has {_show(then)}, this run {_show(current)}"
        for name, then, current in pairs
        if then != current
    )


def _hashes(space: str | tuple[str, ...]) -> tuple[str, ...]:
    return (space,) if isinstance(space, str) else space


def _options(target: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in target.items() if name not in _HARDWARE_OPTIONS}


def _show(value: object) -> str:
    return "nothing" if value in ("", 0) else str(value)
