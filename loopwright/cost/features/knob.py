"""Knob features: each choice as numbers, for one space only; see `loopwright.task.Knob.columns`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loopwright.cost.features.feature import Column
from loopwright.task import ConfigSpace
from loopwright.task.sampling import Digits


class KnobTable:
    """Columns of all candidates of knobs, such as ``tile_i.2`` (innermost size) or ``order``."""

    def __init__(self, space: ConfigSpace) -> None:
        named = [
            (name, k, np.array(values, np.float32))
            for k, knob in enumerate(space.knobs.values())
            for name, values in knob.columns()
        ]
        self.columns = tuple(Column(name) for name, _, _ in named)
        self._values = [(k, values) for _, k, values in named]

    def rows(self, digits: Digits) -> npt.NDArray[np.float32]:
        """Columns, float32 (n, columns), of int64 (n, knobs), the positions of choices."""
        out = np.empty((len(digits), len(self.columns)), np.float32)
        for column, (knob, values) in enumerate(self._values):
            out[:, column] = values[digits[:, knob]]
        return out
