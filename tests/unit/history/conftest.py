from __future__ import annotations

import time

import pytest

from loopwright.records import Checked, Record, environment
from tests.unit.task.fakes import default_target, fakes, registry, state, tile

__all__ = ["default_target", "fakes", "registry", "state", "tile"]


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
