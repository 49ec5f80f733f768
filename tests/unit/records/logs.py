"""Logs for tests."""

from __future__ import annotations

from loopwright.records import Record, Store


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
