"""A schedule and a target of pretence, so that these tests need no compiler, and fixtures of them
for the tests of tasks and of history."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import loopwright
from loopwright.task import TASKS, clear_fallback_cache, get_config, template


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

    def with_arguments(self, args):
        return self

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


@pytest.fixture
def fakes():
    return sys.modules[__name__]


@pytest.fixture(autouse=True)
def registry():
    """Templates of one test are gone in the next, and everything is said again."""
    before = dict(TASKS)
    clear_fallback_cache()
    yield TASKS
    TASKS.clear()
    TASKS.update(before)


@pytest.fixture
def default_target():
    """What a template that is called directly is built for."""
    with Target() as target:
        yield target


@pytest.fixture
def state():
    """What the template `tile` computes now: a test edits the template by changing it."""
    return {"dag": "dag", "extra": False}


@pytest.fixture
def tile(default_target, state):
    @template("tile")
    def tile(n):
        cfg = get_config()
        cfg.define_split("i", n)
        s = Schedule(dag_hash=state["dag"] if n == 64 else f"{state['dag']} of {n}")
        cfg["i"].apply(s, "C", "i")
        if state["extra"]:
            s["C"].unroll("i")
        return s, ["A", "C"]

    return tile
