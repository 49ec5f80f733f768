"""What the tests of verbs that read a log share: writing one, a terminal, and tables as data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import pytest

from loopwright.cli import records
from loopwright.cli import tables as columns
from loopwright.cli.logs import show
from loopwright.cli.logs import statistics as reports
from loopwright.records import Record, Store


def write(path: Path, trials: Iterable[Record]) -> str:
    """A log of one run."""
    with Store(path) as store:
        store.header({"run": "r1", "ts": 1e9 - 1})
        for one in trials:
            store.append(one)
    return str(path)


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Print as on a terminal of so many columns."""
    for module in (columns, records, show, reports):
        monkeypatch.setattr(module, "terminal_width", lambda: width)


def table(text: str) -> list[dict[str, str]]:
    """The rows of comma-separated values."""
    return list(csv.DictReader(io.StringIO(text)))
