"""Logs for the tests of the index."""

from __future__ import annotations

import os

from loopwright.errors import RecordError
from loopwright.records import Record, Store, load, open_log, ranked
from loopwright.records.index.block import COLUMNS, SharedValues
from loopwright.records.index.open import read_index


def record(trial, seconds=1e-3, **fields):
    given = {
        "task": f'["matmul",[{trial % 3}],"llvm"]', "op": "matmul", "args": [trial % 3],
        "target": {"kind": "llvm", "num_threads": 2}, "config": {"tile": [-1, trial]},
        "times": (seconds, 2 * seconds, seconds) if seconds else (),
        "trace": [["split", trial]] * 30,
        "trial": trial, "run": "r1", "ts": 1e9 + trial, "env": {"cpu": "x", "cores": trial % 2 + 1},
    }  # fmt: skip
    return Record(**{**given, **fields})


def write(path, count=60, **fields):
    with Store(path) as store:
        store.header({"run": "r1"})
        for trial in range(count):
            store.append(record(trial, 1e-3 * (1 + trial * 7 % 11), **fields))
    return path


def same(path):
    """Open a log both ways, and compare everything."""
    ours, plain = open_log(path), load(path)
    assert (ours.headers, ours.skipped) == (plain.headers, plain.skipped)
    assert ours.complaint() == plain.complaint()
    assert len(ours) == len(plain)
    for one, other in zip(ours, plain, strict=True):
        for name in (*COLUMNS, "trace", "extra"):
            got, wanted = value(one, name), value(other, name)
            assert repr(got) == repr(wanted), name
            assert type(got) is type(wanted), name
    if all(value(r, "id") for r in plain):
        assert [r.id for r in ranked(ours)] == [r.id for r in ranked(plain)]
    return ours


def value(record, name):
    """A field or property; None where the record holds numbers that JSON cannot say."""
    try:
        return getattr(record, name)
    except RecordError as error:
        assert "JSON compliant" in str(error)  # noqa: PT017 -- most have it
        return None


def from_index(path):
    """Which part of the log the index on disk knows."""
    return sum(
        b.end - b.start for b in read_index(path, 1 << 30, SharedValues())
    ) / os.path.getsize(path)
