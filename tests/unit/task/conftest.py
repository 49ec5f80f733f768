from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from loopwright.records import Checked, Record, environment
from loopwright.task import TASKS, clear_fallback_cache, get_config, template

_spec = importlib.util.spec_from_file_location("fakes", Path(__file__).with_name("fakes.py"))
_fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fakes)


@pytest.fixture
def fakes():
    return _fakes


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
    with _fakes.Target() as target:
        yield target


@pytest.fixture
def state():
    """What the template `tile` computes now: a test edits the template by changing it."""
    return {"dag": "dag", "extra": False}


@pytest.fixture
def tile(fakes, default_target, state):
    @template("tile")
    def tile(n):
        cfg = get_config()
        cfg.define_split("i", n)
        s = fakes.Schedule(dag_hash=state["dag"] if n == 64 else f"{state['dag']} of {n}")
        cfg["i"].apply(s, "C", "i")
        if state["extra"]:
            s["C"].unroll("i")
        return s, ["A", "C"]

    return tile


@pytest.fixture
def make(tile, fakes):
    def make(inner, *times, n=64, target=None, **changes):
        target = target or fakes.Target()
        fields = {
            "task": f'["tile",[{n}],"{target.canonical["kind"]}"]',
            "op": "tile",
            "args": [n],
            "target": target.canonical,
            "config": {"i": [-1, inner]},
            "times": times,
            "dag": "dag" if n == 64 else f"dag of {n}",
            "trace": [["split", "C", "i", inner]],
            "env": environment(),
            "ts": time.time() - 7200,
            "checked": Checked.YES,
        }
        return Record(**(fields | changes))

    return make
