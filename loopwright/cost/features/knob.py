"""The features of knobs: what each one chooses, as numbers; good for one space only.

`loopwright.task.Knob.columns` says which columns a knob has.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loopwright.cost.features.feature import Column
from loopwright.task import ConfigSpace
from loopwright.task.vectors import Digits


class KnobTable:
    """What every candidate of every knob of a space looks like.

    Attributes:
        columns: the columns, with names such as ``tile_i.2`` (innermost size) or ``order``.
    """

    def __init__(self, space: ConfigSpace) -> None:
        named = [
            (name, k, np.array(values, np.float32))
            for k, knob in enumerate(space.knobs.values())
            for name, values in knob.columns()
        ]
        self.columns = tuple(Column(name) for name, _, _ in named)
        self._values = [(k, values) for _, k, values in named]

    def rows(self, digits: Digits) -> npt.NDArray[np.float32]:
        """The columns of candidates.

        Args:
            digits: int64 (n, knobs), the position of each knob's choice.

        Returns:
            float32 (n, len(columns)).
        """
        out = np.empty((len(digits), len(self.columns)), np.float32)
        for column, (knob, values) in enumerate(self._values):
            out[:, column] = values[digits[:, knob]]
        return out
