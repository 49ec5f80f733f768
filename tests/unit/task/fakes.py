"""A schedule and a target of pretence, so that these tests need no compiler."""

from __future__ import annotations

from types import SimpleNamespace

import loopwright


class Stage:
    def __init__(self, schedule, op):
        self.schedule, self.op = schedule, op

    def split(self, axis, factor):
        self.schedule.steps.append(["split", self.op, axis, factor])
        return f"{axis}.o", f"{axis}.i"

    def reorder(self, *axes):
        self.schedule.steps.append(["reorder", self.op, *axes])

    def unroll(self, axis):
        self.schedule.steps.append(["unroll", self.op, axis])

    def vectorize(self, axis):
        self.schedule.steps.append(["vectorize", self.op, axis])

    def compute_at(self, stage, axis):
        self.schedule.steps.append(["compute_at", self.op, stage.op, axis])


class Schedule:
    def __init__(self, flop=1000, dag_hash="dag"):
        self.steps = []
        self.dag = SimpleNamespace(flop=flop, hash=dag_hash)
        self.tensors = ["A", "B", "C"]

    def __getitem__(self, op):
        return Stage(self, op)

    def trace_json(self):
        return [list(step) for step in self.steps]

    def arg_ids(self, tensors):
        return [self.tensors.index(tensor) for tensor in tensors]

    def tensor(self, arg_id):
        return self.tensors[arg_id]


class Target(loopwright.Target):
    """A target whose options need not be those of a real one."""

    def __init__(self, kind="llvm", **options):
        self.options = {"kind": kind, "mcpu": "cpu1", "num_threads": 2, **options}

    @property
    def canonical(self):
        return dict(self.options)

    def __str__(self):
        return self.options["kind"]
