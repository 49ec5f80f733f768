"""Records as a table of pandas."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright.errors import RecordError, UsageError
from loopwright.extras import install
from loopwright.records import Checked, Record, Store, load, to_dataframe

pd = pytest.importorskip("pandas")

RECORD = Record(
    *('["matmul",[8,8],"llvm"]', "matmul", [8, [3, 4]], {"kind": "llvm", "num_threads": 2}),
    {"tile": [-1, 8], "unroll": 4, "fast": True, "order": "ij", "scale": 0.5},
    (1e-3, 3e-3, 2e-3),
    run="a1",
    trial=7,
    ts=1.7e9,
    seed=3,
    checked=Checked.YES,
    max_error=1e-6,
    env={"cpu": "Z80"},
    verdict={"outcome": "faster", "gain": 0.25, "margin": 0.01, "rounds": 20, "default": ""},
)
FAILED = dataclasses.replace(
    RECORD,
    times=(),
    error={"kind": "COMPILE", "text": "no"},
    config={"pack": "none", "unroll": 2},
    trial=8,
    checked=Checked.NO,
    check_reason="it failed",
    seed=None,
    ts=0.0,
    verdict=None,
    max_error=None,
)


def test_a_row_a_record_and_a_column_a_field() -> None:
    table = to_dataframe([RECORD, FAILED])
    first, second = (table.iloc[k] for k in range(2))
    expected = {
        "id": RECORD.id,
        "op": "matmul",
        "args": (8, (3, 4)),
        "kind": "llvm",
        "cpu": "Z80",
        "threads": 2,
        "trial": 7,
        "run": "a1",
        "seed": 3,
        "ts": pd.Timestamp("2023-11-14 22:13:20", tz="UTC"),
        "median_s": 2e-3,
        "min_s": 1e-3,
        "max_s": 3e-3,
        "windows": 3,
        "usable": True,
        "checked": "yes",
        "max_error": 1e-6,
        "outcome": "faster",
        "gain": 0.25,
        "gain_margin": 0.01,
        "config.tile": (-1, 8),
        "config.unroll": 4,
        "config.fast": True,
        "config.order": "ij",
        "config.scale": 0.5,
    }
    assert {name: first[name] for name in expected} == expected
    empty = ("ts", "median_s", "min_s", "max_s", "gain", "seed", "max_error", "outcome")
    assert second[list(empty)].isna().all()
    assert second[["config.tile", "config.fast", "config.order"]].isna().all()
    assert second["error"] == "COMPILE"
    assert second["error_text"] == "no"
    assert pd.isna(first["error"])
    assert second["config.pack"] == "none"


def test_columns_have_the_dtypes_of_their_values() -> None:
    types = to_dataframe([RECORD, FAILED]).dtypes.astype(str)
    assert types["trial"] == "int64"
    assert types["windows"] == "int64"
    assert types["seed"] == "Int64"
    assert types["median_s"] == "float64"
    assert types["ts"].startswith("datetime64[")
    assert types["usable"] == "bool"
    assert types["op"] == "category"
    assert types["config.unroll"] == "Int64"
    assert types["config.fast"] == "boolean"
    assert types["config.order"] == "category"
    assert types["config.scale"] == "Float64"
    assert types["config.tile"] == "object"


def test_it_can_be_grouped_and_sorted() -> None:
    others = [dataclasses.replace(RECORD, times=(t,)) for t in (4.0, 1.0)]
    slow = dataclasses.replace(RECORD, times=(9.0,), config={"tile": [-1, 4]})
    table = to_dataframe([*others, slow])
    assert table.groupby("config.tile").median_s.min().to_dict() == {(-1, 8): 1.0, (-1, 4): 9.0}
    assert table.sort_values("median_s").median_s.tolist() == [1.0, 4.0, 9.0]


def test_no_record_gives_the_same_columns() -> None:
    empty, one = to_dataframe([]), to_dataframe([RECORD])
    assert len(empty) == 0
    known = [name for name in one.columns if not name.startswith("config.")]
    assert list(empty.columns) == known
    assert empty.dtypes["median_s"] == np.float64
    assert empty.dtypes["trial"] == np.int64


def test_a_log_its_path_and_its_records_give_one_table(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with Store(path) as store:
        for k in range(60):
            store.append(dataclasses.replace(FAILED if k % 7 == 3 else RECORD, trial=k))
    plain = to_dataframe(load(path))
    pd.testing.assert_frame_equal(to_dataframe(str(path)), plain)
    pd.testing.assert_frame_equal(to_dataframe(iter(load(path))), plain)
    with pytest.raises(RecordError, match="no log at"):
        to_dataframe(tmp_path / "none.jsonl")


def test_what_only_a_strange_log_holds_is_kept() -> None:
    strange = dataclasses.replace(
        RECORD,
        op="\ud800",
        trial=10**30,
        seed=10**30,
        ts=1e300,
        env={"cpu": ["x"]},
        verdict={"outcome": [1], "gain": "much"},
        config={"\ud800": 10**30, "mixed": [1, {"a": [2]}], "deep": {"b": 1}},
    )
    table = to_dataframe([strange, dataclasses.replace(RECORD, config={"mixed": "word"})])
    row = table.iloc[0]
    assert row["op"] == "\\ud800"
    assert row["trial"] == row["seed"] == row["config.\ud800"] == 10**30
    assert pd.isna(row["ts"])
    assert pd.isna(row["cpu"])
    assert row["config.mixed"] == (1, {"a": [2]})
    assert row["config.deep"] == {"b": 1}


def test_without_pandas_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=re.escape(install("pandas"))):
        to_dataframe([RECORD])
