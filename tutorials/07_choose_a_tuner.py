"""Tutorial 07: choose a tuner, and see why it likes what it likes.

Run it with ``python tutorials/07_choose_a_tuner.py [FOLDER]``. Tuners search one space with equal
budgets, and their curves go to ``tuners.png`` (for that, ``pip install loopwright[plot]``). Then a
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

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SIZE, TRIALS = (64, 20) if SMALL else (512, 120)
RUNNER = lw.LocalRunner(repeat=2, min_repeat_ms=1) if SMALL else lw.LocalRunner()
MEASURE = lw.measure_option(builder=lw.LocalBuilder(), runner=RUNNER)

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
    return speeds(tuner.task, log)


def speeds(task, log):
    """Speed of each trial in the order of measuring, 0 for one that failed."""
    trials = [
        r
        for r in lw.records.load(log)
        if r.task == task.key and r.extra.get("phase") != "playoff"  # finalists, measured again
    ]
    return [task.flop / r.median / 1e9 if r.valid else 0.0 for r in trials]


def plot(curves, path):
    """Best so far against trials."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, found in curves.items():
        best = np.maximum.accumulate(found)
        axes.step(range(1, len(best) + 1), best, where="post", label=name)
    axes.set(xlabel="trials", ylabel="best so far, GFLOP/s", title=f"matmul {SIZE}x{SIZE}x{SIZE}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def compare(task, folder):
    """Let each tuner search, and show how soon it found what."""
    curves, tuners = {}, {name: make(task) for name, make in TUNERS.items()}
    for name, tuner in tuners.items():
        curves[name] = found = tune(tuner, folder / f"{name}.jsonl")
        marks = [f"{max(found[:n]):.0f} after {n}" for n in (TRIALS // 8, TRIALS // 2, TRIALS)]
        print(f"{name:12} GFLOP/s: {', '.join(marks)} trials")
    # One run of each says little: another seed may bring them into another order. docs/tuners.md
    # compares them with 60 seeds on spaces of which every point is known.

    # The model was asked about each round before that was measured. How well did it order it?
    for report in tuners["xgb"].model_reports[-3:]:
        print(
            f"round {report.round}: trained on {report.trained_on}, rank correlation "
            f"{report.spearman:.2f}, {report.recall:.0%} of the fastest quarter found"
        )
    if importlib.util.find_spec("matplotlib") is None:
        print("no matplotlib, no picture: pip install loopwright[plot]")
        return
    plot(curves, folder / "tuners.png")
    print(f"curves in {folder / 'tuners.png'}")


def explain(task, log):
    """What the model sees of two candidates, and what it makes of it."""
    records = lw.records.load(log)
    model = lw.tuner.learn(task, records)
    slow = max((r for r in records if r.valid and not r.dropped), key=lambda r: r.median)
    for title, record in ("fastest", lw.records.best(records)), ("slowest", slow):
        # What each feature adds to the predicted log2 of the speed: +1 means twice as fast.
        print(f"\nthe {title} that was not given up early:")
        print(lw.tuner.explain(task, record.config, model).text(6))
    # The same from the command line: loopwright explain matmul M=512 ... --history xgb.jsonl


def transfer(folder):
    """Tune another shape with and without what is known of the first."""
    task = lw.create_task("matmul", (SIZE, SIZE // 2, SIZE * 2), "llvm")
    print()
    for known in (False, True):
        tuner = lw.tuner.XGBTuner(task, seed=1)
        if known:
            # Where one log holds all shapes nothing needs to be loaded: a tuner learns from the
            # others that it finds in the log it writes to.
            tuner.load_history(lw.records.load(folder / "xgb.jsonl"))
        first = tune_once(tuner)
        print(
            f"{'with' if known else 'without'} history: the first {len(first)} trials reach "
            f"{max(first):.0f} GFLOP/s, their median {np.median(first):.0f}"
        )


def tune_once(tuner):
    """One round without a log; returns the speeds."""
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
    task = lw.create_task("matmul", (SIZE, SIZE, SIZE), "llvm")
    print(f"{task}: {task.config_space.range_length} configurations, {TRIALS} trials a tuner")
    compare(task, folder)
    explain(task, folder / "xgb.jsonl")
    transfer(folder)


if __name__ == "__main__":
    main(*sys.argv[1:2])
