"""The smoke test, `make smoke`: in some seconds, whether the parts work together on this machine.

It looks once at each part, from the import to a tuned kernel. What each part must do is asked by
the other tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from fuzzing import fuzz
from fuzzing.differential import Checker
from loopwright import te
from loopwright.cli import main
from loopwright.testing.target_contract import runs_here

TRIALS = 8
#: Limit of the time that importing `te` takes, as a multiple of NumPy's. It is about 1; with a
#: heavy library such as LLVM or XGBoost it would be beyond 10.
IMPORT_LIMIT = 8.0


@lw.template("smoke/matmul")
def matmul(n: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """C = A B with two tiles to choose."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    config = lw.get_config()
    config.define_split("tile_i", i, num_outputs=2)
    config.define_split("tile_j", j, num_outputs=2)
    io, ii = config["tile_i"].apply(s, C, i)
    jo, ji = config["tile_j"].apply(s, C, j)
    s[C].reorder(io, jo, k, ii, ji)
    s[C].vectorize(ji)
    return s, [A, B, C]


def test_tune_then_build_from_the_history(tmp_path: Path) -> None:
    n, log = 32, tmp_path / "log.jsonl"
    task = lw.create_task("smoke/matmul", args=(n,), target="llvm -num-threads=1")
    runner = lw.LocalRunner(number=1, repeat=2, min_repeat_ms=1, cooldown_interval=0)
    summary = lw.tuner.RandomTuner(task, seed=0).tune(
        n_trial=TRIALS,
        measure_option=lw.measure_option(builder=lw.LocalBuilder(), runner=runner),
        callbacks=[lw.callback.log_to_file(log)],
    )
    assert summary.trials == TRIALS
    with lw.apply_history_best(log), lw.Target("llvm -num-threads=1"):
        s, args = matmul(n)
        f = lw.build(s, args)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    f(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert main(["records", "best", str(log)]) == 0


def test_the_import_is_cheap() -> None:
    code = (
        "import time; t0 = time.perf_counter(); import numpy; t1 = time.perf_counter(); "
        "from loopwright import te; print((time.perf_counter() - t1) / (t1 - t0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert float(done.stdout) < IMPORT_LIMIT


@pytest.mark.parametrize("target", ["llvm -num-threads=2", "c -num-threads=1", "interp"])
def test_every_target_runs_here(target: str) -> None:
    if not runs_here(target):
        pytest.skip("no C compiler here")
    task = lw.create_task("smoke/matmul", args=(12,), target=target)
    s, args = task.instantiate(task.config_space.default_index)
    a = np.arange(144, dtype="float32").reshape(12, 12)
    c = np.zeros_like(a)
    lw.build(s, args, target=target)(a, a, c)
    np.testing.assert_allclose(c, a @ a, rtol=1e-6)


def test_random_programs_of_every_kind(checker: Checker) -> None:
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    for seed in range(5):
        run.run(seed)
    assert not run.failures, run.summary()
