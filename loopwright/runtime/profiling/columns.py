"""The columns of a `Report`: values and format of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loopwright.errors import UsageError, did_you_mean

Value = str | int | float | None


class Row(Protocol):
    """The part of `ProfiledCall` that columns read."""

    @property
    def name(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def seconds(self) -> float:
        """Seconds of all calls."""

    @property
    def count(self) -> int: ...

    @property
    def nbytes(self) -> int | None:
        """Bytes of the arguments of all calls."""

    @property
    def gflop(self) -> float | None:
        """1e9 operations of all calls."""

    @property
    def metrics(self) -> Mapping[str, int | float]:
        """Counts of collectors."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    #: From a row and the seconds of all rows; None where it is not known.
    value: Callable[[Row, float], Value]
    #: None: figures as they are.
    decimals: int | None = None
    #: Figures are aligned to the right.
    number: bool = True

    def text(self, value: Value) -> str:
        if value is None:
            return ""
        return str(value) if self.decimals is None else f"{value:.{self.decimals}f}"


def percent(seconds: float, whole: float) -> float:
    """Percentage of the total time; 0 where no time was measured."""
    return 100.0 * (seconds / whole) if whole else 0.0


def _per_second(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount is not None and seconds else None


def _billions(nbytes: int | None) -> float | None:
    return None if nbytes is None else nbytes * 1e-9


#: All columns but those of collectors.
COLUMNS = (
    Column("Name", lambda row, _: row.name, number=False),
    Column("Duration (us)", lambda row, _: row.seconds * 1e6, 2),
    Column("Percent", lambda row, all_s: percent(row.seconds, all_s), 2),
    Column("Device", lambda row, _: row.device, number=False),
    Column("Count", lambda row, _: row.count),
    Column("Mean (us)", lambda row, _: row.seconds * 1e6 / row.count, 2),
    Column("Bytes", lambda row, _: row.nbytes),
    Column("GB/s", lambda row, _: _per_second(_billions(row.nbytes), row.seconds), 2),
    Column("GFLOP", lambda row, _: row.gflop, 3),
    Column("GFLOP/s", lambda row, _: _per_second(row.gflop, row.seconds), 2),
)


def chosen_columns(rows: Sequence[Row], titles: Sequence[str] | None) -> list[Column]:
    """The columns of these titles, in their order; None: all that have a value in some row."""
    counted = dict.fromkeys(name for row in rows for name in row.metrics)
    columns = {c.title: c for c in (*map(_metric, counted), *COLUMNS)}
    if titles is None:
        order = [*(c.title for c in COLUMNS), *(n for n in counted if n in columns)]
        known = (columns[title] for title in dict.fromkeys(order))
        return [c for c in known if not rows or any(c.value(row, 0.0) is not None for row in rows)]
    if not titles:
        raise UsageError(f"a table needs a column; there are {', '.join(columns)}")
    for title in titles:
        if title not in columns:
            raise UsageError(
                f"no column {title!r}{did_you_mean(title, columns)}; there are {', '.join(columns)}"
            )
    return [columns[title] for title in titles]


def _metric(name: str) -> Column:
    return Column(name, lambda row, _: row.metrics.get(name))
