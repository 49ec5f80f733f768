"""Features of kernels: their columns, and that populations and single candidates agree."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from loopwright import ops
from loopwright.cost.analytical import AnalyticalModel
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.features import Extractor, extract, itervar
from loopwright.target.hardware import Caches
from loopwright.task import create_task
from tests.unit.cost import gpu_workloads as workloads

TARGETS = ("cuda -arch=sm_90", "opencl")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["itervar", "curve"])
@pytest.mark.parametrize("name", workloads.TEMPLATES)
def test_symbolic_rows_are_those_of_each_candidate(name: str, kind: str, target: str) -> None:
    task = workloads.task_of(name, target)
    digits = workloads.digits_of(task, 12)
    made = Extractor(task, kind)
    fast, slow = made.rows(digits), Extractor(task, kind, symbolic=False).rows(digits)
    assert np.array_equal(fast.values, slow.values)
    assert np.isfinite(fast.values).all()


@pytest.mark.parametrize(("name", "structures"), [("matmul", 2), ("rows", 1)])
def test_a_population_needs_a_derivation_for_each_word_alone(name: str, structures: int) -> None:
    """Binds, shared memory, virtual threads, fetching, gaps, reductions of threads: all of them are
    symbolic. The matmul comes with and without a double buffer."""
    task = workloads.task_of(name)
    made = Extractor(task)
    made.rows(workloads.digits_of(task, 300))
    assert made.derived == structures


def test_kernels_come_first_and_keep_their_columns() -> None:
    made = Extractor(workloads.task_of("matmul"))
    loops = [
        c
        for slot in itervar.FEATURES.slots
        for c, f in zip(slot.columns(), slot.features, strict=True)
        if not f.host
    ]
    mine = made.columns[: -len(loops)]
    assert list(made.columns[len(mine) :]) == loops
    assert len({c.name for c in made.columns}) == len({c.meaning for c in made.columns})
    text = "\n".join(f"{c.name}{'+' if c.logged else ''}" for c in mine)
    assert (len(mine), hashlib.sha256(text.encode()).hexdigest()[:16]) == (36, "db16744168427191")


@pytest.mark.parametrize("kind", ["itervar", "curve"])
def test_rows_of_kernels_hold_nothing_of_the_host_that_tunes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caches and threads are those of one machine; a kernel runs on another device."""
    task = workloads.task_of("matmul")
    digits = workloads.digits_of(task, 20)
    here = Extractor(task, kind).rows(digits).values
    other = Machine(96, Caches(1 << 15, 1 << 18, 1 << 22, 64), 16, 16, 16)
    monkeypatch.setattr(extract, "machine_of", lambda target: other)
    assert np.array_equal(Extractor(task, kind).rows(digits).values, here)


def test_targets_for_cpus_have_none() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    assert Extractor(task).columns == itervar.FEATURES.columns


def test_a_feature_says_what_its_name_says() -> None:
    task = workloads.task_of("matmul")
    space = task.config_space
    index = space.index_of(
        {
            "tile_i": [-1, 2, 8, 2],
            "tile_j": [-1, 1, 16, 4],
            "tile_k": [-1, 8],
            "vector": 4,
            "pad": 0,
            "double": True,
        }
    )
    made = Extractor(task)
    rows = made.rows(np.array([space.point2knob(index)])).values[0]
    logged = made.logged
    value = {
        n: round(float(2**v - 1 if log else v), 3)
        for n, v, log in zip(made.names, rows, logged, strict=True)
    }
    assert value["kernels"] == 1
    assert value["kernel.blocks"] == 2 * 2
    assert (value["kernel.threads"], value["kernel.warps"]) == (128, 4)
    assert value["kernel.vthreads"] == 2
    assert value["kernel.shared"] == pytest.approx(2 * 4 * (32 * 32 + 8 * 64), abs=1)
    assert value["kernel.load_bytes"] == pytest.approx(16, abs=0.01)
    assert value["kernel.independent"] == pytest.approx(2 * 2 * 4, abs=0.01)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", workloads.TEMPLATES)
def test_every_candidate_gets_a_finite_value_below_about_the_peak(name: str, target: str) -> None:
    task = workloads.task_of(name, target)
    found = AnalyticalModel(task).predict(workloads.digits_of(task, 200))
    assert np.isfinite(found).all()
    assert np.ptp(found) > 0
    assert found.max() < 0.5
