"""Queries of many records at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

_M = TypeVar("_M")
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
#: Fields whose values have parts, and so no hash.
_NESTED = ("args", "target", "env", "resources", "verdict")


def fields_of(records: Iterable[object], *names: str) -> list[list[Any]]:
    """Fields and properties of many records: a list of values for each name.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> times, ops = lw.records.fields_of(records, "median", "op")
        >>> print(len(times) == len(records), set(ops))
        True {'matmul'}
    """
    records = list(records)
    return [list(map(attrgetter(name), records)) for name in names]


def grouped(records: Sequence[_M], keys: Iterable[_K]) -> dict[_K, list[_M]]:
    """Records by key, in order of first appearance."""
    groups: dict[_K, list[_M]] = {}
    for record, key in zip(records, keys, strict=True):
        groups.setdefault(key, []).append(record)
    return groups


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
        map(id, column) if name in _NESTED else column
        for name, column in zip(names, columns, strict=True)
    )
    keys = list(zip(*parts, strict=True))
    judged: dict[object, _T] = {}
    for key, record in zip(keys, records, strict=True):
        if key not in judged:
            judged[key] = judge(record)
    return [judged[key] for key in keys]
