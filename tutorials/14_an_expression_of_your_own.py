"""Tutorial 14: an expression of your own, tuned without a template.

Run it with ``python tutorials/14_an_expression_of_your_own.py``. A gated layer, for which there is
no operator here, is written down as tensors alone; how it may be computed is derived from them. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run. docs/automatic-spaces.md says what goes on inside.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
SHAPE = (16, 32, 24) if SMALL else (128, 512, 256)
TARGET = "llvm"
# An effort is a bundle of limits; "quick" measures 16 candidates. n_trial overrules it.
TRIALS = 4 if SMALL else None


def gated(rows, width, depth):
    """Two products of one input, of which the sigmoid of the first is a gate for the second."""
    X = te.placeholder((rows, depth), name="X")
    G = te.placeholder((depth, width), name="G")
    U = te.placeholder((depth, width), name="U")
    k, m = te.reduce_axis((0, depth), name="k"), te.reduce_axis((0, depth), name="m")
    gate = te.compute((rows, width), lambda i, j: te.sum(X[i, k] * G[k, j], axis=k), name="gate")
    up = te.compute((rows, width), lambda i, j: te.sum(X[i, m] * U[m, j], axis=m), name="up")
    Y = te.compute((rows, width), lambda i, j: te.sigmoid(gate[i, j]) * up[i, j], name="Y")
    return [X, G, U, Y]  # inputs and results in calling order: no schedule, no knobs


def numpy_gated(x, g, u):
    """The same in NumPy."""
    return 1 / (1 + np.exp(-(x @ g))) * (x @ u)


def draft(arrays, expected):
    """A kernel without a single measurement: what the analytical model likes best."""
    f = lw.build(gated(*SHAPE), TARGET)
    y = np.empty_like(expected)
    f(*arrays, y)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    print(f"   right, largest difference from NumPy {abs(y - expected).max():.1g}")
    return f


def what_every_stage_is():
    """No name is looked at, only which loops each operand moves with."""
    for stage in lw.space.analyze(gated(*SHAPE)[-1:]):
        print("  ", str(stage).splitlines()[0])


def structures(task):
    """A space is a list of structures: ways to schedule that differ in more than in numbers."""
    print(f"   {len(task.structures)} structures, {len(task.config_space)} configurations")
    index, share = task.ranking[0]
    config = task.config_space.get(index)
    structure, _ = task.part(config)
    print(f"   the model expects most of: {structure.name} ({share:.0%} of the peak)")
    for reason in structure.why:
        print(f"     because {reason}")


def tune(log):
    """Search the structures, and write every measurement to a log."""
    return lw.auto_schedule(gated(*SHAPE), TARGET, effort="quick", n_trial=TRIALS, log=log)


def seconds(f, arrays):
    """Median time of a call."""
    return f.time_evaluator(f.entry_name, lw.cpu(0), number=5, repeat=5)(*arrays).median


def main():
    rows, width, depth = SHAPE
    rng = np.random.default_rng(0)
    shapes = ((rows, depth), (depth, width), (depth, width))
    arrays = [rng.standard_normal(shape, dtype=np.float32) / 4 for shape in shapes]
    expected = numpy_gated(*arrays)

    print("1. built from tensors alone, nothing measured")
    untuned = draft(arrays, expected)

    print("\n2. what the expression tells of itself")
    what_every_stage_is()

    print("\n3. the structures that follow from it")
    task = lw.create_task(gated, SHAPE, TARGET)
    structures(task)

    print("\n4. a quick search")
    log = Path(tempfile.mkdtemp()) / "gated.jsonl"
    s, args = tune(log)
    best = lw.records.best(lw.records.load(str(log)).records)
    print(f"   the winner: {best.config['structure']}")
    print(f"   {len(s.trace)} steps for {', '.join(t.name for t in args)}")

    # Whoever computes the same gets the record: a task is known by its expression, not by a name.
    print("\n5. built from the log, in another place of a program")
    with lw.apply_history_best(str(log), strict=True) as history:
        tuned = lw.build(gated(*SHAPE), TARGET)
        print("  ", history.report()[-1])
    y = np.empty_like(expected)
    tuned(*arrays, y)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    for name, f in (("draft", untuned), ("tuned", tuned)):
        t = seconds(f, [*arrays, y])
        print(f"   {name:6} {t * 1e6:9.1f} us  {task.flop / t / 1e9:7.1f} GFLOP/s")


if __name__ == "__main__":
    main()
