"""Reports: shares that add up, JSON both ways, tables and CSV that say the same."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import UsageError
from loopwright.runtime.profiling import ProfiledCall, Report

FIGURES = st.floats(0, 1e6, allow_nan=False)
CALLS = st.builds(
    ProfiledCall,
    name=st.sampled_from(["matmul", "copy", "a,b", 'quote"d', "=1+1", "line\nbreak", ""]),
    device=st.sampled_from(["cpu(0)", "cuda(0)", "cuda(1)"]),
    seconds=FIGURES,
    count=st.integers(1, 1000),
    nbytes=st.none() | st.integers(0, 1 << 62),
    gflop=st.none() | FIGURES,
    metrics=st.dictionaries(
        st.sampled_from(["faults", "L2 misses"]), FIGURES | st.integers(0, 1 << 70)
    ),
)
REPORTS = st.builds(
    Report,
    calls=st.lists(CALLS, max_size=8).map(tuple),
    wall_seconds=FIGURES,
    runs=st.integers(1, 100),
    configuration=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)

TWO = Report(
    (
        ProfiledCall("copy", "cuda(0)", 1e-3, nbytes=4_000_000),
        ProfiledCall("matmul", "cpu(0)", 2e-3, gflop=2.0, metrics={"faults": 3}),
        ProfiledCall("copy", "cuda(0)", 1e-3, count=2, nbytes=8_000_000),
    ),
    wall_seconds=5e-3,
    runs=2,
    configuration={"threads": "2"},
)


@settings(max_examples=40)
@given(REPORTS)
def test_a_report_comes_back_from_its_json(report: Report) -> None:
    assert Report.from_json(report.json()) == report
    assert json.loads(report.json())["runs"] == report.runs


@settings(max_examples=60)
@given(REPORTS, st.booleans(), st.booleans())
def test_shares_add_up_and_no_figure_is_negative(report: Report, sort: bool, merge: bool) -> None:
    rows = report.rows(sort, merge)
    whole = 100.0 if report.seconds else 0.0
    for shares in ([report.percent(r) for r in rows], [d.percent for d in report.devices()]):
        assert math.fsum(shares) == pytest.approx(whole, abs=1e-9)
        assert all(share >= 0 for share in shares)
    assert sum(row.count for row in rows) == sum(call.count for call in report.calls)
    assert sum(total.count for total in report.devices()) == sum(r.count for r in rows)
    if merge:
        assert len({(row.name, row.device) for row in rows}) == len(rows)
    if sort:
        assert list(rows) == sorted(rows, key=lambda row: -row.seconds)


@settings(max_examples=60)
@given(REPORTS, st.booleans())
def test_csv_holds_the_rows(report: Report, merge: bool) -> None:
    lines = list(csv.DictReader(io.StringIO(report.csv(aggregate=merge))))
    rows = report.rows(aggregate=merge)
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line["Name"] == row.name
        assert float(line["Duration (us)"]) == row.seconds * 1e6
        assert int(line["Count"]) == row.count
        if any(r.nbytes is not None for r in rows):
            assert line["Bytes"] == ("" if row.nbytes is None else str(row.nbytes))
        for name, value in row.metrics.items():
            assert line[name] == str(value)


@settings(max_examples=40)
@given(REPORTS)
def test_every_row_is_one_line_of_the_table(report: Report) -> None:
    lines = report.table().splitlines()
    assert len(lines) == 1 + len(report.rows()) + 1 + 1 + len(report.devices()) + 1
    assert report.table(sums=False).splitlines() != lines
    assert str(report) == report.table()


def test_table() -> None:
    assert TWO.table().splitlines() == [
        "Name     Duration (us)  Percent  Device   Count  Mean (us)     Bytes  GB/s  GFLOP  GFLOP/s"
        "  faults",
        "copy           2000.00    50.00  cuda(0)      3     666.67  12000000  6.00",
        "matmul         2000.00    50.00  cpu(0)       1    2000.00                  2.000  1000.00"
        "       3",
        "-" * 98,
        "Sum            4000.00   100.00               4",
        "cuda(0)        2000.00    50.00               3",
        "cpu(0)         2000.00    50.00               1",
        "Total          5000.00",
    ]
    chosen = TWO.table(sort=False, aggregate=False, sums=False, columns=["Count", "Name"])
    assert chosen.splitlines() == ["Count  Name", "    1  copy", "    1  matmul", "    2  copy"]


def test_html_has_the_table_and_no_markup_of_a_name() -> None:
    text = Report((ProfiledCall("<b>x", "cpu(0)", 1.0),))._repr_html_()
    assert "&lt;b&gt;x" in text
    assert "<b>x" not in text


def test_rows_of_one_function_become_one_where_both_know_the_figure() -> None:
    first, second = ProfiledCall("f", "cpu(0)", 1.0, 1, 10, 1.0), ProfiledCall("f", "cpu(0)", 2.0)
    assert first.plus(first) == ProfiledCall("f", "cpu(0)", 2.0, 2, 20, 2.0)
    assert first.plus(second) == ProfiledCall("f", "cpu(0)", 3.0, 2)


@pytest.mark.parametrize("columns", [["Nome"], [], ["Name", "misses"]])
def test_a_column_that_is_not_there(columns: list[str]) -> None:
    for way in (TWO.table, TWO.csv):
        with pytest.raises(UsageError, match=r"there are .*Name, Duration"):
            way(columns=columns)
    with pytest.raises(UsageError, match=r"did you mean 'Name'\?"):
        TWO.table(columns=["Nome"])


@pytest.mark.parametrize(
    "bad",
    [
        {"seconds": -1e-9},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": 1e101},
        {"count": 10**400},
        {"nbytes": 10**400},
        {"metrics": {"faults": 10**400}},
        {"seconds": True},
        {"seconds": "1"},
        {"count": 0},
        {"count": 1.5},
        {"nbytes": -1},
        {"gflop": -1.0},
        {"metrics": {"faults": -1}},
        {"metrics": {"faults": "many"}},
        {"name": 3},
        {"device": "x" * 1001},
    ],
)
def test_figures_that_cannot_be(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {"name": "f", "device": "cpu(0)", "seconds": 1.0}
    ProfiledCall(**good)
    with pytest.raises(UsageError, match="must be"):
        ProfiledCall(**{**good, **bad})
    parts = json.loads(TWO.json())
    parts["calls"][0].update(bad)
    with pytest.raises(UsageError, match="must be"):
        Report.from_json(json.dumps(parts))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{}",
        '{"profile": 2}',
        '{"profile": 1, "calls": 3}',
        '{"profile": 1, "calls": [], "rows": 1}',
        '{"profile": 1, "calls": [{"name": "f"}]}',
        '{"profile": 1, "calls": [], "wall_seconds": -1}',
        '{"profile": 1, "calls": [], "runs": 0}',
        '{"profile": 1, "calls": [], "configuration": {"a": 1}}',
        '{"profile": 1, "calls": [], "configuration": 1}',
        '{"profile": 1, "calls": [{"name": "f", "device": "d", "seconds": 1, "metrics": 3}]}',
        "[" * 100_000,
    ],
)
def test_json_of_something_else(text: str) -> None:
    with pytest.raises(UsageError):
        Report.from_json(text)
