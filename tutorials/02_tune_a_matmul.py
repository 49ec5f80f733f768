"""Tutorial 02: write a template, and let a tuner choose.

Run it with ``python tutorials/02_tune_a_matmul.py [LOG]``. The template declares what may be
chosen, the tuner tries. It may be stopped at any time: the same command goes on where it was. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
"""

import os
import sys
import tempfile
from pathlib import Path

import loopwright as lw
from loopwright import te

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
# 1000 columns are no multiple of a vector, so that good tiles are not obvious.
SHAPE, TRIALS = ((16, 40, 24), 6) if SMALL else ((64, 1000, 512), 100)
LOG = Path(tempfile.gettempdir()) / f"tutorial_matmul_{os.getpid()}.jsonl"


@lw.template("tutorial/matmul")
def matmul(M, N, K, dtype="float32"):
    """C = A @ B with a register tile whose size is up to the tuner."""
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((K, N), dtype, name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")

    # What may be chosen: each define_* adds a knob, each cfg[...] applies the choice.
    cfg = lw.get_config()
    i, j = s[C].op.axis
    cfg.define_split("tile_i", i, num_outputs=2, filter=lambda x: x.size[-1] <= 16)
    cfg.define_split("tile_j", j, num_outputs=2, filter=lambda x: x.size[-1] <= 64)
    cfg.define_knob("pack", [True, False])
    io, ii = cfg["tile_i"].apply(s, C, i)
    jo, ji = cfg["tile_j"].apply(s, C, j)
    s[C].reorder(jo, io, ii, ji)
    s[C].parallel(jo)
    s[C].unroll(ii)
    s[C].vectorize(ji)

    s[CL].compute_at(s[C], io)
    ci, cj = s[CL].op.axis
    s[CL].reorder(s[CL].op.reduce_axis[0], ci, cj)
    s[CL].unroll(ci)
    s[CL].vectorize(cj)
    if cfg["pack"].val:
        BP = s.cache_read(B, "local", [CL])
        s[BP].compute_at(s[C], jo)
        s[BP].vectorize(s[BP].op.axis[1])
    return s, [A, B, C]


def main(log=LOG):
    task = lw.create_task("tutorial/matmul", args=SHAPE, target="llvm")
    print(task.config_space)

    tuner = lw.tuner.XGBTuner(task, seed=0)
    summary = tuner.tune(
        n_trial=TRIALS,
        measure_option=lw.measure_option(builder=lw.LocalBuilder(), runner=lw.LocalRunner()),
        callbacks=[lw.callback.log_to_file(str(log)), lw.callback.progress_bar(TRIALS)],
    )

    # Every trial is a line of the log; failed ones say why.
    records = lw.records.load(str(log)).records
    best = lw.records.best(records)
    print(f"\n{len(records)} records in {log}")
    print(f"best: {task.flop / best.median / 1e9:.1f} GFLOP/s with {best.config}")
    # The best and the default configuration were timed in turns, so that this can be trusted.
    print(summary.verdict.text())
    return log


if __name__ == "__main__":
    main(*sys.argv[1:2])
