"""Tutorial 03: build with the best record of a log.

Run it with ``python tutorials/03_apply_history_best.py``. It tunes a dense layer for a moment, then
builds it three times: without a log, with it, and from the recorded steps alone. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import ops
from loopwright.te import Dag

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SHAPE, TRIALS = ((16, 32, 24), 5) if SMALL else ((1, 1000, 512), 60)


def tune(log):
    """Measure a few configurations of the built-in dense operator."""
    task = lw.create_task("dense", SHAPE, "llvm")
    lw.tuner.XGBTuner(task, seed=0).tune(
        n_trial=TRIALS,
        measure_option=lw.measure_option(builder=lw.LocalBuilder(), runner=lw.LocalRunner()),
        callbacks=[lw.callback.log_to_file(str(log))],
    )
    return task


def seconds(f, arrays):
    """Median time of a call."""
    return f.time_evaluator(f.entry_name, lw.cpu(0), number=5, repeat=5)(*arrays).median


def main():
    log = Path(tempfile.mkdtemp()) / "dense.jsonl"
    task = tune(log)
    m, n, k = SHAPE
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (n, k), (n,), (m, n))
    ]
    expected = np.maximum(arrays[0] @ arrays[1].T + arrays[2], 0)

    # Without a record the default configuration is used, and said once.
    s, args = ops.dense(*SHAPE)
    default = lw.build(s, args, name="dense")

    # With a log the best record's steps are applied; strictly: without one that fits this is an
    # error. `verify` times the kernel as it will be called; `report` says which record it was.
    with lw.Target("llvm"), lw.apply_history_best(str(log), strict=True) as history:
        s, args = ops.dense(*SHAPE)
        tuned = lw.build(s, args, name="dense", verify=True)
        print(history.report())

    for name, f in (("default", default), ("tuned", tuned)):
        arrays[-1][:] = np.nan
        f(*arrays)
        np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=1e-4)
        t = seconds(f, arrays)
        print(f"{name:8} {t * 1e6:9.1f} us  {task.flop / t / 1e9:7.1f} GFLOP/s")

    # A record holds the steps themselves: with the program's DAG (JSON) they build anywhere.
    best = lw.records.best(lw.records.load(str(log)).records)
    dag = Dag.from_json(s.dag.to_json())
    assert dag.hash == best.dag
    replayed = lw.driver.compile(dag, best.trace, s.arg_ids(args), lw.Target("llvm"), "dense")
    arrays[-1][:] = np.nan
    lw.runtime.Module(replayed)(*arrays)
    np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=1e-4)
    print(f"replayed {len(best.trace)} steps from the log alone")


if __name__ == "__main__":
    main()
