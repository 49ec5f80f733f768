"""Tutorial 15: a rule of your own, which adds a structure to the spaces of some expressions.

Run it with ``python tutorials/15_a_rule_of_your_own.py``. A rule is asked about every expression:
where it knows how to schedule one it gives structures, in which sizes are knobs. Those are searched
beside all others, and what wins stands in the log, which replays without the rule.
"""

import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te

ROWS, COLUMNS = 64, 192
TARGET = "llvm"


def column_sums():
    """Each column of a matrix, summed from top to bottom."""
    X = te.placeholder((ROWS, COLUMNS), name="X")
    r = te.reduce_axis((0, ROWS), name="r")
    return [X, te.compute((COLUMNS,), lambda j: te.sum(X[r, j], axis=r), name="Y")]


def is_column_sum(outputs):
    """Told from access maps: one reduction over one loop, whose operands lie along the result."""
    stages = lw.space.analyze(outputs)
    if len(outputs) != 1 or len(stages) != 1:
        return False
    (stage,) = stages
    if len(stage.spatial) != 1 or len(stage.reduced) != 1:
        return False
    return all(operand.strides.get(stage.spatial[0]) == 1 for operand in stage.operands)


def register():
    """Say what a structure does; numbers that a search may choose are knobs of the sketch."""

    @lw.space_rule("tutorial/stripes", priority=20)
    def stripes(outputs, args):
        if not is_column_sum(outputs):
            return None  # another rule may know this expression
        sketch = lw.space.Sketch(outputs, args)
        (out,) = outputs
        s = sketch.s
        width = sketch.number("width", [16, 32, 64])
        at_once = sketch.number("at_once", [1, 2, 4, 8])
        stripe, column = s[out].split(out.op.axis[0], factor=width)
        outer, inner = s[out].split(out.op.reduce_axis[0], factor=at_once)
        s[out].reorder(stripe, outer, inner, column)
        s[out].unroll(inner)
        s[out].vectorize(column)
        s[out].parallel(stripe)
        sketch.why.append(
            "a stripe of columns is a vector, and its rows are read one after another"
        )
        return sketch.finished("stripes")

    return stripes


def names(task):
    """The structures of a task, in the order of their rules."""
    return [structure.name for structure in task.structures]


def with_the_rule(x):
    """The rule's structure stands before the others; every point of it gives the same answer."""
    task = lw.create_task(column_sums, (), TARGET)
    print("   structures:", "; ".join(names(task)))
    mine = task.structures[0]
    print(f"   {mine}, since {mine.why[0]}")
    s, args = mine.instantiate(mine.config_space.get(5))
    print(lw.lower(s, args))
    y = np.empty(COLUMNS, "float32")
    for index in range(len(mine.config_space)):
        y[:] = np.nan
        lw.build(*mine.instantiate(mine.config_space.get(index)), TARGET)(x, y)
        np.testing.assert_allclose(y, x.sum(axis=0), rtol=1e-4, atol=1e-4)
    print(f"   all {len(mine.config_space)} points are right")


def alone():
    """`stops`: where the rule knows a structure, rules of lower priority are not asked."""

    @lw.space_rule("tutorial/as-written", priority=30, stops=True)
    def as_written(outputs, args):
        if not is_column_sum(outputs):
            return None
        sketch = lw.space.Sketch(outputs, args)
        sketch.why.append("to be compared with")
        return sketch.finished("as written")

    print("   structures:", "; ".join(names(lw.create_task(column_sums, (), TARGET))))
    lw.space.remove_rule("tutorial/as-written")


def tuned(x):
    """Records name the structure, and replay by their steps: the rule is not needed any more."""
    log = Path(tempfile.mkdtemp()) / "sums.jsonl"
    lw.auto_schedule(column_sums(), TARGET, effort="quick", n_trial=6, log=log)
    tried = {r.config["structure"] for r in lw.records.load(str(log)).records}
    print("   measured:", "; ".join(sorted(tried)))
    lw.space.remove_rule("tutorial/stripes")
    print("   structures without the rule:", "; ".join(names(lw.create_task(column_sums))))
    with lw.apply_history_best(str(log), strict=True):
        f = lw.build(column_sums(), TARGET)
    y = np.empty(COLUMNS, "float32")
    f(x, y)
    np.testing.assert_allclose(y, x.sum(axis=0), rtol=1e-4, atol=1e-4)
    print("   the best record of the log builds, and is right")


def one_that_raises():
    """A rule that fails is named, with the place where it stands; nothing is hidden."""

    @lw.space_rule("tutorial/hasty")
    def hasty(outputs, args):
        return outputs[1]

    try:
        lw.create_task(column_sums, (), TARGET)
    except lw.LoopwrightError as error:
        print("  ", error)
    lw.space.remove_rule("tutorial/hasty")


def centred():
    """Two kernels: the sums of columns, and the matrix without their means."""
    X, S = column_sums()
    return [X, te.compute((ROWS, COLUMNS), lambda i, j: X[i, j] - S[j] / ROWS, name="Z")]


def inside_a_chain(x):
    """With `scope="kernel"` a rule is asked about each kernel, and other rules about the rest."""

    @lw.space_rule("tutorial/stripes-of-a-kernel", scope="kernel")
    def stripes(kernel):
        if len(kernel.stages) != 1 or not is_column_sum([kernel.out]):
            return None

        def schedule(sketch):
            out = sketch.s[kernel.out]
            stripe, column = out.split(
                kernel.out.op.axis[0], factor=sketch.number("width", [16, 32])
            )
            out.reorder(stripe, kernel.out.op.reduce_axis[0], column)
            out.vectorize(column)

        return lw.space.Variant("stripes", "a stripe of columns is a vector", schedule)

    task = lw.create_task(centred, (), TARGET)
    mine = task.structures[0]
    print("   the first structure:", mine)
    z = np.empty((ROWS, COLUMNS), "float32")
    lw.build(*mine.instantiate(mine.config_space.get(0)), TARGET)(x, z)
    np.testing.assert_allclose(z, x - x.mean(axis=0), rtol=1e-4, atol=1e-4)
    print("   it is right")
    lw.space.remove_rule("tutorial/stripes-of-a-kernel")


def main():
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    print("1. before")
    print("   structures:", "; ".join(names(lw.create_task(column_sums, (), TARGET))))
    print("\n2. with a rule")
    register()
    with_the_rule(x)
    print("\n3. a rule that has the last word")
    alone()
    print("\n4. tuned, and the rule removed")
    tuned(x)
    print("\n5. a rule that raises")
    one_that_raises()
    print("\n6. a rule for one kernel of several")
    inside_a_chain(x)


if __name__ == "__main__":
    main()
