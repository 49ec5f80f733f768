"""Queries of many records at once, by the columns of an index where they have one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from loopwright.records.index.block import NESTED, StoredBlock
from loopwright.records.line import is_own_line
from loopwright.records.record import Record

_M = TypeVar("_M")
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_place_of = attrgetter("_place")
#: The place of a record that is of no index: no block, and no row.
_NOWHERE: tuple[StoredBlock | None, int] = (None, 0)


def fields_of(records: Iterable[object], *names: str) -> list[list[Any]]:
    """Fields and properties of many records: a list of values for each name.

    Values of records with an index are taken from its columns, many times faster than one by one.
    RecordError where another program made the index, and it is malformed.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> times, ops = lw.records.fields_of(records, "median", "op")
        >>> print(len(times) == len(records), set(ops))
        True {'matmul'}
    """
    records = list(records)
    columns: list[list[Any]] = [[] for _ in names]
    try:
        places = list(map(_place_of, records))  # most often all are; this is three times as fast
    except AttributeError:
        places = [getattr(record, "_place", _NOWHERE) for record in records]
    done = 0
    for block, group in groupby(places, itemgetter(0)):
        rows = [row for _, row in group]
        members = records[done : done + len(rows)]
        done += len(rows)
        if block is None:
            for name, values in zip(names, columns, strict=True):
                values.extend([getattr(member, name) for member in members])
            continue
        complete = rows == list(range(block.block.count))
        for name, values in zip(names, columns, strict=True):
            column = block.values[name]
            values.extend(column if complete else map(column.__getitem__, rows))
    return columns


def grouped(records: Sequence[_M], keys: Iterable[_K]) -> dict[_K, list[_M]]:
    """Records by key, in order of first appearance."""
    groups: dict[_K, list[_M]] = {}
    for record, key in zip(records, keys, strict=True):
        groups.setdefault(key, []).append(record)
    return groups


def lines_of(records: Iterable[Record]) -> Iterator[str]:
    """The lines of many records, without newlines: ``to_line`` of each, many times faster.

    A line of the log is given as it is there, if this version could have written it: it has its
    checksum, and is plain ASCII. All others are written anew.
    """
    placed = ((getattr(record, "_place", _NOWHERE), record) for record in records)
    for block, group in groupby(placed, lambda item: item[0][0]):
        members = list(group)
        if block is None:
            yield from (record.to_line() for _, record in members)
            continue
        stored = block.lines([row for (_, row), _ in members])
        for raw, (_, record) in zip(stored, members, strict=True):
            line = raw.rstrip(b"\r\n")
            yield line.decode("ascii") if is_own_line(line) else record.to_line()


def once_for_equal(
    judge: Callable[[_M], _T], records: Sequence[_M], names: Sequence[str]
) -> list[_T]:
    """Apply a function to each record, calling it once for all that are equal in some fields,
    which must be all that it looks at.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> ops = lw.records.once_for_equal(lambda record: record.op.upper(), records, ["op"])
        >>> print(set(ops), len(ops) == len(records))
        {'MATMUL'} True
    """
    columns = fields_of(records, *names)
    # Equal objects are mostly one object, since lines of a log share what they have in common.
    parts = (
        map(id, column) if name in NESTED else column
        for name, column in zip(names, columns, strict=True)
    )
    keys = list(zip(*parts, strict=True))
    judged: dict[object, _T] = {}
    for key, record in zip(keys, records, strict=True):
        if key not in judged:
            judged[key] = judge(record)
    return [judged[key] for key in keys]
