"""Tuners that may be limited to a part of the space."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from loopwright.errors import UsageError
from loopwright.tuner.base import Tuner
from loopwright.tuner.options import TunerOptions, option


@dataclass(frozen=True)
class RangeOptions(TunerOptions):
    """Options of `RangeTuner`."""

    range_idx: tuple[int, int] | None = option(
        None,
        "search only indices from the first to the second, both included (to divide a space "
        "among machines).",
    )


class RangeTuner(Tuner):
    """A tuner that searches the half-open range of indices from ``begin_idx`` to ``end_idx``."""

    Options: ClassVar[type[TunerOptions]] = RangeOptions
    settings: RangeOptions

    def reset(self) -> None:
        super().reset()
        size = self.space.range_length
        self.begin_idx, self.end_idx = index_range(size, self.settings.range_idx)

    @property
    def range_idx(self) -> tuple[int, int]:
        """First and last index that is searched."""
        return self.begin_idx, self.end_idx - 1

    @property
    def range_length(self) -> int:
        return self.end_idx - self.begin_idx

    @property
    def options(self) -> dict[str, Any]:
        return {"range_idx": list(self.range_idx)}


def index_range(size: int, range_idx: tuple[int, int] | None) -> tuple[int, int]:
    """Half-open range of a ``range_idx``, whose ends are both included as in AutoTVM; None: all."""
    if range_idx is None:
        return 0, size
    pair = isinstance(range_idx, (tuple, list)) and len(range_idx) == 2
    if not pair or not all(isinstance(bound, Integral) for bound in range_idx):
        raise UsageError(f"range_idx must be two integers (first, last), got {range_idx!r}")
    first, last = range_idx
    if not 0 <= first <= last < size:
        raise UsageError(
            f"range_idx=({first}, {last}) is not a range within the space's {size} points; "
            f"give the first and the last index with 0 <= first <= last <= {size - 1}"
        )
    return first, last + 1
