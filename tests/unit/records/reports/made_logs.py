"""Records whose answers are known, for the tests of reports."""

from __future__ import annotations

from loopwright.records import Record

TASK = '["matmul",[8],"llvm"]'


def record(trial=0, seconds=1e-3, **fields):
    """A trial of a matmul; ``seconds`` None for one that failed."""
    given = {
        "task": TASK, "op": "matmul", "args": [8], "target": {"kind": "llvm", "num_threads": 2},
        "config": {"tile": [-1, trial]}, "times": (seconds,) if seconds else (),
        "error": None if seconds else {"kind": "COMPILE", "text": "no\n such  register"},
        "trial": trial, "run": "r1", "ts": 1e9 + trial, "env": {"cpu": "Zen 5"},
    }  # fmt: skip
    return Record(**{**given, **fields})
