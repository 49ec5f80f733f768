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
        None, "search only indices ``lo <= index < hi`` (to divide a space among machines)."
    )


class RangeTuner(Tuner):
    """A tuner that searches a range of indices.

    Attributes:
        range_idx: the half-open range ``(lo, hi)`` of indices.
    """

    Options: ClassVar[type[TunerOptions]] = RangeOptions
    settings: RangeOptions

    def reset(self) -> None:
        """Forget every proposal and result."""
        super().reset()
        self.range_idx = index_range(self.space.range_length, self.settings.range_idx)

    @property
    def options(self) -> dict[str, Any]:
        """The searched range."""
        return {"range_idx": list(self.range_idx)}


def index_range(size: int, range_idx: tuple[int, int] | None) -> tuple[int, int]:
    """Return the half-open range ``(lo, hi)`` that a tuner searches.

    Raises:
        UsageError: ``range_idx`` is not a non-empty part of ``[0, size)``, or no two integers.
    """
    if range_idx is None:
        return 0, size
    pair = isinstance(range_idx, (tuple, list)) and len(range_idx) == 2
    if not pair or not all(isinstance(bound, Integral) for bound in range_idx):
        raise UsageError(f"range_idx must be two integers (lo, hi), got {range_idx!r}")
    lo, hi = range_idx
    if not 0 <= lo < hi <= size:
        raise UsageError(
            f"range_idx=({lo}, {hi}) is not a range within the space's {size} points; "
            f"give lo and hi with 0 <= lo < hi <= {size}"
        )
    return lo, hi
