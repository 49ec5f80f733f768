"""Every pass, alone, keeps the meaning of random programs to the bit, well formed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuzzing import fuzz
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func
from loopwright.ir.verify import verify
from loopwright.lowering import lower_ids
from loopwright.lowering.context import PassContext
from loopwright.lowering.passes import storage_rewrite
from loopwright.lowering.pipeline import PIPELINE
from loopwright.schedule.schedule import replay
from loopwright.te.dag import Dag
from loopwright.transform import ConstantFolding
from tests.covering import examples

PASSES = {p.name: p for p in (ConstantFolding, *(p for phase in PIPELINE for p in phase))}
#: Passes that find something to do in these programs.
BUSY = {
    "Simplify", "LoopInvariantCodeMotion", "CommonSubexprElim", "StorageRewrite",
    "InstrumentBoundCheckers", "SkipVectorize", "VectorizeLoop",
}  # fmt: skip


def results(f: Func, arrays: list[Any]) -> list[np.ndarray[Any, Any]]:
    out = [a.copy() for a in arrays]
    interpret(f, out)
    return out


def programs(first: int, count: int) -> list[tuple[Func, list[Any]]]:
    """Nests as they are built, with no pass run, and their arrays."""
    found = []
    for seed in range(first, first + count):
        case, _, _ = fuzz.example(seed)
        s = replay(Dag.from_json(case.dag), case.trace)
        try:
            with PassContext(0, disabled_pass=["UnrollLoop"]):
                found.append((lower_ids(s, case.arg_ids), case.arrays))
        except ScheduleError:
            continue  # a rule on extents
    assert len(found) > count // 2
    return found


@pytest.fixture(scope="module")
def nests() -> list[tuple[Func, list[Any], list[Any]]]:
    return [(f, arrays, results(f, arrays)) for f, arrays in programs(700, examples(36))]


@pytest.mark.parametrize(
    "name",
    # The other half by night: all passes run in `Checker.check` too, together.
    [pytest.param(p, marks=pytest.mark.slow if k % 2 else ()) for k, p in enumerate(PASSES)],
)
def test_a_pass_keeps_the_meaning(
    name: str, nests: list[tuple[Func, list[Any], list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_rewrite, "STACK_LIMIT", 0)
    p = PASSES[name]
    changed = 0
    for f, arrays, want in nests:
        made = p.run(f)
        verify(made, f"after pass {name}")
        if str(made) == str(f):
            continue
        changed += 1
        for x, y in zip(want, results(made, arrays), strict=True):
            nan = x != x
            assert np.array_equal(nan, y != y), f"{f}\n{made}"
            assert x[~nan].tobytes() == y[~nan].tobytes(), f"{f}\n{made}"
        again = p.run(made)
        assert name not in ("Simplify", "RemoveNoOp") or str(again) == str(made), f"{made}\n{again}"
    assert changed or name not in BUSY
