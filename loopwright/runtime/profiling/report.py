"""`Report`: profiled calls as rows; as a table, as CSV, and as JSON both ways.

Columns and formats are those of TVM's ``profiling::Report`` (AsTable, AsCSV, AsJSON, FromJSON).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NoReturn

from loopwright.errors import UsageError, did_you_mean, shown
from loopwright.presenting import harmless, html_block, html_table

Value = str | int | float | None

_FORMAT = 1
#: Valid names of calls, devices and counters: a line of a table.
_LONGEST = 1000
#: The largest figure: sums and shares of such figures are still numbers.
_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class ReportColumn:
    title: str
    #: From a row and the seconds of all rows; None where it is not known.
    value: Callable[[ProfiledCall, float], Value]
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


#: All columns but those of collectors.
COLUMNS = (
    ReportColumn("Name", lambda row, _: row.name, number=False),
    ReportColumn("Duration (us)", lambda row, _: row.seconds * 1e6, 2),
    ReportColumn("Percent", lambda row, all_s: percent(row.seconds, all_s), 2),
    ReportColumn("Device", lambda row, _: row.device, number=False),
    ReportColumn("Count", lambda row, _: row.count),
    ReportColumn("Mean (us)", lambda row, _: row.seconds * 1e6 / row.count, 2),
    ReportColumn("Bytes", lambda row, _: row.nbytes),
    ReportColumn("GB/s", lambda row, _: _per_second(row.nbytes, 1e9 * row.seconds), 2),
    ReportColumn("GFLOP", lambda row, _: row.gflop, 3),
    ReportColumn("GFLOP/s", lambda row, _: _per_second(row.gflop, row.seconds), 2),
)


def _metric(name: str) -> ReportColumn:
    return ReportColumn(name, lambda row, _: row.metrics.get(name))


def chosen_columns(
    rows: Sequence[ProfiledCall], titles: Sequence[str] | None
) -> list[ReportColumn]:
    """The columns of these titles, in their order; None: all that have a value in some row."""
    counted = dict.fromkeys(name for row in rows for name in row.metrics)
    columns = {c.title: c for c in (*map(_metric, counted), *COLUMNS)}
    if titles is None:
        order = [*(c.title for c in COLUMNS), *(n for n in counted if n in columns)]
        ordered = (columns[title] for title in dict.fromkeys(order))
        return [
            c for c in ordered if not rows or any(c.value(row, 0.0) is not None for row in rows)
        ]
    if not titles:
        raise UsageError(f"a table needs a column; there are {', '.join(columns)}")
    for title in titles:
        if title not in columns:
            raise UsageError(
                f"no column {title!r}{did_you_mean(title, columns)}; there are {', '.join(columns)}"
            )
    return [columns[title] for title in titles]


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """A row: calls of one function or kernel on one device.

    Figures are of all its ``count`` calls together: seconds, bytes of arguments, 1e9 operations
    (None where they are not known), counts of collectors. UsageError where one is negative, over
    1e100 or not a number.
    """

    name: str
    device: str
    seconds: float
    count: int = 1
    nbytes: int | None = None
    gflop: float | None = None
    metrics: Mapping[str, int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("name", "device", *self.metrics):
            text = getattr(self, what) if what in ("name", "device") else what
            if not isinstance(text, str) or len(text) > _LONGEST:
                _refuse(what, text, f"text of at most {_LONGEST} characters")
        _figure("seconds", self.seconds)
        _whole("count", self.count, 1)
        if self.nbytes is not None:
            _whole("nbytes", self.nbytes, 0)
        if self.gflop is not None:
            _figure("gflop", self.gflop)
        for name, value in self.metrics.items():
            _figure(name, value)

    def plus(self, other: ProfiledCall) -> ProfiledCall:
        """Both rows as one, of the same function on the same device."""
        mine, its = self.metrics, other.metrics
        names = [*mine, *(name for name in its if name not in mine)]
        return ProfiledCall(
            self.name,
            self.device,
            self.seconds + other.seconds,
            self.count + other.count,
            None if self.nbytes is None or other.nbytes is None else self.nbytes + other.nbytes,
            None if self.gflop is None or other.gflop is None else self.gflop + other.gflop,
            {name: mine.get(name, 0) + its.get(name, 0) for name in names},
        )


@dataclass(frozen=True, slots=True)
class DeviceTotal:
    """All calls on one device; ``percent`` of the time of all calls on all devices."""

    device: str
    seconds: float
    count: int
    percent: float


@dataclass(frozen=True)
class Report:
    """Times of the calls that were profiled.

    Attributes:
        calls: rows in the order of the calls.
        wall_seconds: time of all runs by the host's clock; it includes time between calls, and
            calls on several devices may overlap.
        runs: number of profiled runs.
        configuration: further facts that may explain the times.

    Example:
        >>> from loopwright.runtime.profiling import ProfiledCall, Report
        >>> report = Report(
        ...     (
        ...         ProfiledCall("copy", "cuda(0)", 1e-3, count=2),
        ...         ProfiledCall("matmul", "cuda(0)", 3e-3, gflop=3.0),
        ...     ),
        ...     wall_seconds=5e-3,
        ... )
        >>> print(report.table())
        Name     Duration (us)  Percent  Device   Count  Mean (us)  GFLOP  GFLOP/s
        matmul         3000.00    75.00  cuda(0)      1    3000.00  3.000  1000.00
        copy           1000.00    25.00  cuda(0)      2     500.00
        --------------------------------------------------------------------------
        Sum            4000.00   100.00               3
        cuda(0)        4000.00   100.00               3
        Total          5000.00
        >>> print(report.csv(columns=["Name", "Percent"]))
        Name,Percent
        matmul,75.0
        copy,25.0
        <BLANKLINE>
        >>> print(Report.from_json(report.json()) == report)
        True
    """

    calls: tuple[ProfiledCall, ...]
    wall_seconds: float = 0.0
    runs: int = 1
    configuration: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _figure("wall_seconds", self.wall_seconds)
        _whole("runs", self.runs, 1)
        for name, value in self.configuration.items():
            if not isinstance(value, str):
                _refuse(name, value, "text")

    @property
    def seconds(self) -> float:
        """Seconds of all calls together."""
        return math.fsum(call.seconds for call in self.calls)

    def percent(self, call: ProfiledCall | DeviceTotal) -> float:
        """Share of a row in the time of all calls; 0 where no time was measured."""
        return percent(call.seconds, self.seconds)

    def devices(self) -> tuple[DeviceTotal, ...]:
        """Totals of the devices, in the order in which they were first used."""
        total = self.seconds
        totals = []
        for device in dict.fromkeys(call.device for call in self.calls):
            rows = [call for call in self.calls if call.device == device]
            seconds = math.fsum(call.seconds for call in rows)
            count = sum(call.count for call in rows)
            totals.append(DeviceTotal(device, seconds, count, percent(seconds, total)))
        return tuple(totals)

    def rows(self, sort: bool = True, aggregate: bool = True) -> tuple[ProfiledCall, ...]:
        """The calls as tables show them: longest first, and one row for a function on a device.

        Without ``sort`` in the order of the calls, without ``aggregate`` a row for each.
        """
        rows = list(self.calls)
        if aggregate:
            merged: dict[tuple[str, str], ProfiledCall] = {}
            for call in self.calls:
                key = (call.name, call.device)
                merged[key] = merged[key].plus(call) if key in merged else call
            rows = list(merged.values())
        if sort:
            rows.sort(key=lambda call: -call.seconds)
        return tuple(rows)

    def table(
        self,
        sort: bool = True,
        aggregate: bool = True,
        sums: bool = True,
        columns: Sequence[str] | None = None,
    ) -> str:
        """The report as plain text.

        Below a line stand ``sums``: the sum of all rows, each device's, and the host's time of all
        runs (``Total``). ``columns`` are titles in their order, default all that have a value in
        some row; UsageError where there is no such one. See `rows` for the rest.
        """
        shown_columns = chosen_columns(self.calls, columns)
        body = self._cells(self.rows(sort, aggregate), shown_columns)
        foot = self._sums(shown_columns) if sums else []
        table = [[column.title for column in shown_columns], *body, *foot]
        widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
        lines = []
        for cells in table:
            padded = (
                cell.rjust(width) if column.number else cell.ljust(width)
                for cell, width, column in zip(cells, widths, shown_columns, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
        if foot:
            lines.insert(1 + len(body), "-" * len(lines[0]))
        return "\n".join(lines)

    def csv(
        self, sort: bool = True, aggregate: bool = True, columns: Sequence[str] | None = None
    ) -> str:
        """The report as comma-separated values, with full figures; empty where none is known.

        The options are those of `table`.
        """
        shown_columns = chosen_columns(self.calls, columns)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.title for column in shown_columns])
        total = self.seconds
        for call in self.rows(sort, aggregate):
            values = (column.value(call, total) for column in shown_columns)
            writer.writerow(["" if value is None else value for value in values])
        return text.getvalue()

    def json(self) -> str:
        """The report as JSON, from which `from_json` makes an equal one."""
        return json.dumps({"profile": _FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read the text of `json`; UsageError where it is no such report, or a figure cannot be."""
        try:
            parts = json.loads(text)
            if parts.pop("profile") != _FORMAT:
                raise UsageError("the report is of another version of loopwright")
            calls = tuple(ProfiledCall(**call) for call in parts.pop("calls"))
            return cls(calls, **parts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"this is no report of a profile: {error}") from None

    def _cells(
        self, rows: Sequence[ProfiledCall], columns: Sequence[ReportColumn]
    ) -> list[list[str]]:
        total = self.seconds
        return [[harmless(c.text(c.value(row, total))) for c in columns] for row in rows]

    def _sums(self, columns: Sequence[ReportColumn]) -> list[list[str]]:
        """The rows below the line."""
        count = sum(call.count for call in self.calls)
        everything = DeviceTotal("Sum", self.seconds, count, percent(self.seconds, self.seconds))
        rows = []
        for total in (everything, *self.devices()):
            cells = {
                "Name": total.device,
                "Duration (us)": f"{total.seconds * 1e6:.2f}",
                "Percent": f"{total.percent:.2f}",
                "Count": str(total.count),
            }
            rows.append([harmless(cells.get(column.title, "")) for column in columns])
        wall = {"Name": "Total", "Duration (us)": f"{self.wall_seconds * 1e6:.2f}"}
        return [*rows, [wall.get(column.title, "") for column in columns]]

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        columns = chosen_columns(self.calls, None)
        body = [*self._cells(self.rows(), columns), *self._sums(columns)]
        return html_block("Profile", html_table(body, [column.title for column in columns]))


def _figure(name: str, value: object) -> None:
    match value:
        case bool():
            pass
        case int() | float() if 0 <= value <= _LARGEST:
            return
    _refuse(name, value, f"a number from 0 to {_LARGEST:g}")


def _whole(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _LARGEST:
        _refuse(name, value, f"a whole number, at least {low}")


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    raise UsageError(f"{shown(name)} of a profile is {shown(value)}; it must be {expected}")
