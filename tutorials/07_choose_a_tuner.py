"""Tutorial 07: choose a tuner, and see why it likes what it likes.

Run it with ``python tutorials/07_choose_a_tuner.py [FOLDER]``. Tuners search one space with equal
budgets, and their curves go to ``tuners.png`` (for that, ``pip install matplotlib``). Then a
learned cost model says what makes a candidate fast, and what was measured of one shape helps with
another. Set ``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SIZE, TRIALS = (64, 20) if SMALL else (512, 100)
RUNNER = lw.LocalRunner(repeat=2, min_repeat_ms=1) if SMALL else lw.LocalRunner()
MEASURE = lw.measure_option(builder=lw.LocalBuilder(), runner=RUNNER)


@lw.template("tutorial/tiles")
def matmul(M, N, K):
    """C = A @ B with a tile of sums. Few of the choices are near the best."""
    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "local")

    cfg = lw.get_config()
    i, j = s[C].op.axis
    cfg.define_split("tile_i", i, num_outputs=3, filter=lambda x: x.size[-1] <= 16)
    cfg.define_split("tile_j", j, num_outputs=3, filter=lambda x: x.size[-1] <= 64)
    cfg.define_split("tile_k", k, num_outputs=2, filter=lambda x: x.size[-1] <= 4)
    cfg.define_knob("order", ["ij", "ji"])
    cfg.define_knob("lanes", [4, 8, 16])
    cfg.define_knob("unroll", [False, True])
    cfg.define_knob("parallel", [False, True])

    i0, i1, i2 = cfg["tile_i"].apply(s, C, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, C, j)
    outer = (i0, j0) if cfg["order"].val == "ij" else (j0, i0)
    s[C].reorder(*outer, i1, j1, i2, j2)
    s[C].vectorize(j2)
    if cfg["parallel"].val:
        s[C].parallel(outer[0])

    s[tile].compute_at(s[C], j1)
    ti, tj = s[tile].op.axis
    ko, ki = cfg["tile_k"].apply(s, tile, s[tile].op.reduce_axis[0])
    tj, lanes = s[tile].split(tj, factor=cfg["lanes"].val)
    s[tile].reorder(ko, ki, ti, tj, lanes)
    s[tile].vectorize(lanes)
    if cfg["unroll"].val:
        for loop in (ki, ti, tj):
            s[tile].unroll(loop)
    return s, [A, B, C]


TUNERS = {
    # No assumptions: what every other tuner has to beat.
    "random": lambda task: lw.tuner.RandomTuner(task, seed=0),
    # Breeds the fastest so far.
    "ga": lambda task: lw.tuner.GATuner(task, pop_size=16, elite_num=3, mutation_prob=0.1, seed=0),
    # A learned cost model ranks thousands of candidates in the time of one measurement. This is
    # what `loopwright tune` takes when no tuner is named.
    "xgb": lambda task: lw.tuner.XGBTuner(task, seed=0),
    # The same with less to go by: it sees the values of the knobs instead of loops, strides and
    # caches, knows nothing of the machine in advance, and learns an order instead of speeds. On
    # the command line: --tuner xgb -O feature_type=knob -O analytical=false -O loss_type=rank
    "xgb, knobs": lambda task: lw.tuner.XGBTuner(
        task, feature_type="knob", analytical=False, loss_type="rank", seed=0
    ),
}
# And GridSearchTuner tries every point in order: for spaces of some hundred points.


def tune(tuner, log):
    """Measure until the log holds TRIALS valid ones, and return their speeds in GFLOP/s."""
    tuner.tune(n_trial=TRIALS, measure_option=MEASURE, callbacks=[lw.callback.log_to_file(log)])
    # Records of a phase are no trials: finalists measured again at the end, and the like.
    trials = [r for r in lw.records.load(log) if not r.phase]
    return [tuner.task.flop / r.median / 1e9 if r.valid else 0.0 for r in trials]


def plot(curves, path):
    """Best so far against trials, and every trial."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, found in curves.items():
        numbers = range(1, len(found) + 1)
        left.step(numbers, np.maximum.accumulate(found), where="post", label=name)
        right.plot(numbers, found, ".", markersize=4)
    left.set(xlabel="trials", ylabel="GFLOP/s", title="best so far", ylim=(0, None))
    right.set(xlabel="trial", title="each trial")
    left.legend(loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.suptitle(f"matmul {SIZE}x{SIZE}x{SIZE}")
    figure.savefig(path, dpi=120)


def compare(task, folder):
    """Let each tuner search, and show how soon it found what."""
    curves, tuners = {}, {name: make(task) for name, make in TUNERS.items()}
    for name, tuner in tuners.items():
        curves[name] = found = tune(tuner, folder / f"{name}.jsonl")
        marks = [f"{max(found[:n]):.0f} after {n}" for n in (TRIALS // 4, TRIALS // 2, TRIALS)]
        print(
            f"{name:12} GFLOP/s: {', '.join(marks)} trials; half are below {np.median(found):.0f}"
        )
    # One run of each says little: another seed may bring them into another order. docs/tuners.md
    # compares them with 60 seeds on spaces of which every point is known.

    # The model was asked about each round before that was measured. How well did it order it?
    for report in tuners["xgb"].model_reports[-3:]:
        print(
            f"round {report.round}: trained on {report.trained_on}, rank correlation "
            f"{report.spearman:.2f}, {report.recall:.0%} of the fastest quarter found"
        )
    if importlib.util.find_spec("matplotlib") is None:
        print("no matplotlib, no picture: pip install matplotlib")
        return
    plot(curves, folder / "tuners.png")
    print(f"curves in {folder / 'tuners.png'}")


def explain(task, log):
    """What the model sees of two candidates, and what it makes of it."""
    records = lw.records.load(log)
    model = lw.tuner.learn(task, records)
    slowest = max((r for r in records if r.valid), key=lambda r: r.median)
    for title, record in ("fastest", lw.records.best(records)), ("slowest", slowest):
        # What each feature adds to the predicted log2 of the speed: +1 means twice as fast.
        print(f"\nthe {title}:")
        print(lw.tuner.explain(task, record.config, model).text(6))
    # On the command line: loopwright explain tutorials/07_choose_a_tuner.py:matmul M=512 N=512
    # K=512 --history random.jsonl


def transfer(folder):
    """Tune another shape with and without what is known of the first."""
    task = lw.create_task("tutorial/tiles", (SIZE, SIZE // 2, SIZE * 2), "llvm")
    print()
    for known in (False, True):
        tuner = lw.tuner.XGBTuner(task, seed=1)
        if known:
            # Points of every kind teach more than the good ones alone that xgb.jsonl holds. Where
            # one log holds all shapes, nothing needs to be loaded: a tuner learns from the others
            # that it finds in the log it writes to.
            tuner.load_history(lw.records.load(folder / "random.jsonl"))
        first = first_round(tuner)
        print(
            f"{'with' if known else 'without'} history: the first {len(first)} trials reach "
            f"{max(first):.0f} GFLOP/s, half of them are below {np.median(first):.0f}"
        )


def first_round(tuner):
    """Measure one round without a log; returns the speeds."""
    found = []
    tuner.tune(
        n_trial=tuner.plan_size,
        measure_option=MEASURE,
        callbacks=[lambda _, inputs, results: found.extend(results)],
    )
    return [tuner.task.flop / r.median / 1e9 for r in found if r.valid]


def main(folder=None):
    folder = Path(folder or tempfile.mkdtemp(prefix="tutorial_tuners_"))
    folder.mkdir(parents=True, exist_ok=True)
    task = lw.create_task("tutorial/tiles", (SIZE, SIZE, SIZE), "llvm")
    print(f"{task}: {task.config_space.range_length} configurations, {TRIALS} trials a tuner")
    compare(task, folder)
    explain(task, folder / "random.jsonl")
    transfer(folder)


if __name__ == "__main__":
    main(*sys.argv[1:2])
