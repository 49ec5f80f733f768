"""Knobs that vary among records, and configurations as short text.

Records of one task need not have the same knobs: a knob that a record lacks is `ABSENT` there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.record import Record

ABSENT: Final = "absent"  # the text of a knob that a record does not have
#: The knob of automatic spaces that names the structure, mostly in a sentence.
STRUCTURE: Final = "structure"
#: Characters of the longest names that are shown as they are.
_SHORT = 24
#: Texts that need no quotation marks: they are taken for no other JSON value.
_PLAIN = re.compile(r"(?!(?:true|false|null|NaN|Infinity|absent)$)[A-Za-z_][\w.:-]*")


def value_text(value: Json) -> str:
    """The value of a knob for people, such as ``[-1,8]`` or ``vec``; different values differ."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, separators=(",", ":"))


def varying_knobs(records: Iterable[Record]) -> list[str]:
    """Names of the knobs that do not have one value in all records, in order of appearance; one
    that only some of the records have varies.

    Example:
        >>> from loopwright.records.reports.knobs import varying_knobs
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(set(varying_knobs(records)) <= set(records[0].config), varying_knobs(records[:1]))
        True []
    """
    (configs,) = fields_of(records, "config")
    texts = _Texts()
    seen: dict[str, set[str]] = {}
    count: dict[str, int] = {}
    for config in configs:
        for name, value in config.items():
            seen.setdefault(name, set()).add(texts.of(value))
            count[name] = count.get(name, 0) + 1
    return [name for name in seen if len(seen[name]) > 1 or count[name] < len(configs)]


def structure_ids(records: Iterable[Record]) -> dict[str, str]:
    """Ids of structures for tables and plots, ``S1`` and so on in order of appearance, by
    `value_text`; none where all names are short.

    Example:
        >>> from loopwright.records.reports.knobs import structure_ids
        >>> print(structure_ids(lw.records.load("matmul.jsonl").records))
        {}
    """
    (configs,) = fields_of(records, "config")
    texts = dict.fromkeys(value_text(c[STRUCTURE]) for c in configs if STRUCTURE in c)
    if max(map(len, texts), default=0) <= _SHORT:
        return {}
    return {text: f"S{number}" for number, text in enumerate(texts, 1)}


def structure_legend(ids: Mapping[str, str], shown: Collection[str]) -> Iterator[tuple[str, str]]:
    """Id and name of the structures of `structure_ids` whose texts are ``shown``."""
    for text, number in ids.items():
        if text in shown:
            yield number, json.loads(text) if text.startswith('"') else text


def config_text(
    config: Mapping[str, Json],
    names: Sequence[str] | None = None,
    ids: Mapping[str, str] | None = None,
) -> str:
    """A configuration in one line, such as ``tile_i=[-1,8] unroll=true``: the knobs ``names`` that
    it has, in this order; None: all of them. With ``ids``, of `structure_ids`, that of the
    structure is first.

    Example:
        >>> from loopwright.records.reports.knobs import config_text
        >>> print(config_text({"tile_i": [-1, 8], "unroll": True}))
        tile_i=[-1,8] unroll=true
    """
    chosen = list(config) if names is None else [name for name in names if name in config]
    return _Texts(ids).line(config, chosen)


def config_texts(
    records: Iterable[Record],
    names: Sequence[str] | None = None,
    ids: Mapping[str, str] | None = None,
) -> list[str]:
    """`config_text` of many records."""
    (configs,) = fields_of(records, "config")
    texts = _Texts(ids)
    lines = []
    for config in configs:
        chosen = list(config) if names is None else [name for name in names if name in config]
        lines.append(texts.line(config, chosen))
    return lines


@dataclass(frozen=True, eq=False)
class KnobColumn:
    name: str
    values: tuple[Json, ...]  # the distinct values, in order of first appearance; None for `ABSENT`
    texts: tuple[str, ...]  # the text of each value; `ABSENT` where records lack the knob
    codes: npt.NDArray[np.int64]  # for each record, the index of its value

    def parts(self) -> dict[str, list[tuple[str, Json]]]:
        """Text and value of each part of the knob, for each of ``values``.

        A list, such as the factors of a split, has an entry for each place, under a name such as
        ``tile_i[1]``; all others are one part. Where a value lacks the place: `ABSENT` and None.
        """
        lists = [value for value in self.values if isinstance(value, list | tuple)]
        if not lists or len(lists) + self.texts.count(ABSENT) < len(self.values):
            return {self.name: list(zip(self.texts, self.values, strict=True))}
        return {
            f"{self.name}[{place}]": [
                (value_text(value[place]), value[place])
                if isinstance(value, list | tuple) and place < len(value)
                else (ABSENT, None)
                for value in self.values
            ]
            for place in range(max(map(len, lists)))
        }


def knobs_of(records: Iterable[Record]) -> list[KnobColumn]:
    """All knobs of some records, including those that do not vary, in order of appearance."""
    (configs,) = fields_of(records, "config")
    names = dict.fromkeys(name for config in configs for name in config)
    return [_knob(name, configs) for name in names]


def _knob(name: str, configs: Sequence[Mapping[str, Json]]) -> KnobColumn:
    cells = [config.get(name, _MISSING) for config in configs]
    # Of equal values most are one object, so that few are written as text.
    objects = {id(value): value for value in cells}
    texts = {
        key: ABSENT if value is _MISSING else value_text(value) for key, value in objects.items()
    }
    values: dict[str, Json] = {}
    for key, text in texts.items():
        values.setdefault(text, None if text == ABSENT else objects[key])
    numbers = {text: number for number, text in enumerate(values)}
    codes = {key: numbers[text] for key, text in texts.items()}
    column = np.fromiter(map(codes.__getitem__, map(id, cells)), np.int64, len(cells))
    return KnobColumn(name, tuple(values.values()), tuple(values), column)


_MISSING: Final = object()  # stands for a knob that a configuration does not have


class _Texts:
    """Texts of values, each made once: values are few, and equal ones mostly identical."""

    def __init__(self, ids: Mapping[str, str] | None = None) -> None:
        self._ids = ids or {}
        # The value is kept beside its text, so that no other one gets its identity meanwhile.
        self._known: dict[int, tuple[Json, str]] = {}

    def line(self, config: Mapping[str, Json], names: list[str]) -> str:
        if self._ids and STRUCTURE in names:  # first, where a narrow table does not cut it off
            names = [STRUCTURE, *(name for name in names if name != STRUCTURE)]
        return " ".join([f"{name}={self.of(config[name])}" for name in names])

    def of(self, value: Json) -> str:
        entry = self._known.get(id(value))
        if entry is None:
            text = value_text(value)
            entry = self._known[id(value)] = (value, self._ids.get(text, text))
        return entry[1]
