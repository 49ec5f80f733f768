"""The features of knobs: what each one chooses, as numbers; good for one space only.

A split gives a column for each inner size, a reorder one for each place, an annotation one for each
axis, a knob of numbers its value, and any other its position among the candidates.
"""

from __future__ import annotations

import numpy as np

from loopwright.task import AnnotateEntity, ConfigSpace, Knob, ReorderEntity, SplitEntity


class KnobTable:
    """What every candidate of every knob of a space looks like.

    Attributes:
        names: names of the columns, such as ``tile_i.2`` (innermost size) or ``order``.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._tables = [_table(knob) for knob in space.knobs.values()]
        self.names = tuple(
            name
            for knob, table in zip(space.knobs.values(), self._tables, strict=True)
            for name in _columns(knob, table.shape[1])
        )

    def rows(self, digits: np.ndarray) -> np.ndarray:
        """Columns ``names`` of candidates.

        Args:
            digits: whole numbers (n, knobs), the position of each knob's choice.

        Returns:
            float32 (n, len(names)).
        """
        out = np.empty((len(digits), len(self.names)), np.float32)
        at = 0
        for k, table in enumerate(self._tables):
            out[:, at : at + table.shape[1]] = table[digits[:, k]]
            at += table.shape[1]
        return out


def _columns(knob: Knob, width: int) -> list[str]:
    if width == 1 and knob.kind != "split":
        return [knob.name]
    first = 1 if knob.kind == "split" else 0
    return [f"{knob.name}.{first + k}" for k in range(width)]


def _table(knob: Knob) -> np.ndarray:
    """float32 (candidates, columns)."""
    rows = [_numbers(entity, at) for at, entity in enumerate(knob.entities)]
    if knob.kind == "other" and any(row is None for row in rows):
        rows = [[at] for at in range(len(rows))]
    return np.array(rows, np.float32).reshape(len(rows), -1)


def _numbers(entity: object, at: int) -> list[float] | None:
    match entity:
        case SplitEntity(size=size):
            return [float(n) for n in size[1:]]
        case ReorderEntity(perm=perm):
            return [float(n) for n in perm]
        case AnnotateEntity(anns=anns):
            codes = {"none": -1, "unroll": -2, "vec": -3}
            return [float(codes[a] if isinstance(a, str) else a) for a in anns]
    value = getattr(entity, "val", None)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return [float(value)] if number else None  # type: ignore[arg-type]
