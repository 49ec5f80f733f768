"""Knobs that vary among records, and configurations as short text.

Records of one task need not have the same knobs: a knob that a record lacks is `ABSENT` there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.record import Record

ABSENT: Final = "absent"  # the text of a knob that a record does not have
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


def config_text(config: Mapping[str, Json], names: Sequence[str] | None = None) -> str:
    """A configuration in one line, such as ``tile_i=[-1,8] unroll=true``: the knobs ``names`` that
    it has, in this order; None: all of them.

    Example:
        >>> from loopwright.records.reports.knobs import config_text
        >>> print(config_text({"tile_i": [-1, 8], "unroll": True}))
        tile_i=[-1,8] unroll=true
    """
    chosen = config if names is None else [name for name in names if name in config]
    return " ".join(f"{name}={value_text(config[name])}" for name in chosen)


def config_texts(records: Iterable[Record], names: Sequence[str] | None = None) -> list[str]:
    """`config_text` of many records."""
    (configs,) = fields_of(records, "config")
    texts = _Texts()
    lines = []
    for config in configs:
        chosen = config if names is None else [name for name in names if name in config]
        lines.append(" ".join([f"{name}={texts.of(config[name])}" for name in chosen]))
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

    def __init__(self) -> None:
        # The value is kept beside its text, so that no other one gets its identity meanwhile.
        self._known: dict[int, tuple[Json, str]] = {}

    def of(self, value: Json) -> str:
        entry = self._known.get(id(value))
        if entry is None:
            entry = self._known[id(value)] = (value, value_text(value))
        return entry[1]
