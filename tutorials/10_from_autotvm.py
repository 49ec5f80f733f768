"""Tutorial 10: bring a script and a log from AutoTVM.

Run it with ``python tutorials/10_from_autotvm.py``. The template below was written for AutoTVM;
only its import lines are others now. Then a log that AutoTVM wrote is read, applied where it fits,
and used to go on tuning from. ``docs/from-autotvm.md`` has the table of names. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

# These two lines were: import tvm; from tvm import autotvm, te
import loopwright as tvm
from loopwright import autotvm, te

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
N, TRIALS = (64, 6) if SMALL else (256, 48)


@autotvm.template("tutorial/from_autotvm")
def matmul(N, L, M, dtype):
    """A matrix product in tiles, as a script for AutoTVM has it."""
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

    cfg = autotvm.get_config()
    y, x = s[C].op.axis
    k = s[C].op.reduce_axis[0]
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_annotate("ann", [y, x], policy="try_vec")
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, k, yi, xi)
    cfg["ann"].apply(s, C, [yi, xi])
    return s, [A, B, C]


def autotvm_line(cost, error=0, target="llvm -keys=cpu -link-params=0", **knobs):
    """A line of a log in the form of AutoTVM 0.2."""
    letters = {"tile_y": "sp", "tile_x": "sp", "ann": "an"}
    entity = [[name, letters.get(name, "ot"), value] for name, value in knobs.items()]
    return json.dumps(
        {
            "input": [target, "tutorial/from_autotvm", [N, N, N, "float32"], {}],
            "config": {"index": 0, "code_hash": None, "entity": entity},
            "result": [[cost], error, 0.3, 1600000000.0],
            "version": 0.2,
            "tvm_version": "0.8.0",
        }
    )


def check(func):
    """Compare a kernel with NumPy, with AutoTVM's own words."""
    a_np = np.random.default_rng(0).random((N, N), "float32")
    b_np = np.random.default_rng(1).random((N, N), "float32")
    dev = tvm.device("llvm", 0)
    c_tvm = tvm.nd.empty((N, N), device=dev)
    func(tvm.nd.array(a_np, dev), tvm.nd.array(b_np, dev), c_tvm)
    np.testing.assert_allclose(c_tvm.numpy(), a_np.dot(b_np), rtol=1e-4)
    evaluator = func.time_evaluator(func.entry_name, dev, number=10)
    return evaluator(tvm.nd.array(a_np), tvm.nd.array(b_np), c_tvm).mean


def main():
    folder = Path(tempfile.mkdtemp())

    # 1. The script itself. A space prints its knobs.
    target = tvm.target.Target(target="llvm", host="llvm")
    task = autotvm.task.create(matmul, args=(N, N, N, "float32"), target=target)
    print("1. the space of a template that was written for AutoTVM\n")
    print(task.config_space)

    # 2. A log that AutoTVM wrote years ago. It is read as it is.
    old = folder / "autotvm.log"
    lines = [
        autotvm_line(4e-3, tile_y=[-1, 8], tile_x=[-1, 8], ann=["none", "none"]),
        autotvm_line(1e-3, tile_y=[-1, 4], tile_x=[-1, 32], ann=["none", "vec"]),
        autotvm_line(1e9, 6, tile_y=[-1, N], tile_x=[-1, N], ann=["none", "vec"]),
        autotvm_line(2e-3, tile_y=[-1, 8], tile_x=[-1, 8], auto_unroll=16),
        autotvm_line(9e-4, target="cuda -model=v100", tile_y=[-1, 8], tile_x=[-1, 8]),
    ]
    old.write_text("\n".join(lines) + "\n")
    log = tvm.records.load(old)
    print(f"\n2. {len(log)} records of AutoTVM, and why some cannot be applied here\n")
    for record, why in zip(log.records, tvm.task.why_not_applied(log.records), strict=True):
        print(f"  {record.id}  {why or 'may be applied'}")

    # 3. Build with the best of them. Nobody checked its answer, so that is said; we check it.
    with autotvm.apply_history_best(old) as history, target:
        s, args = matmul(N, N, N, "float32")
        func = tvm.build(s, args, target, "llvm", "from_autotvm")
    print("\n3. what was built\n")
    print(history.report())
    print(f"  its answer is right; {check(func) * 1e3:.3f} ms now")

    # 4. Tune on. The cost model learns from the old log first, where that holds enough results (a
    #    line of the summary says so); what is measured goes to a new one. A verdict says what was
    #    gained beside the default configuration.
    new = folder / "loopwright.jsonl"
    tuner = autotvm.tuner.XGBTuner(task, loss_type="rank", seed=0)
    tuner.load_history(autotvm.record.load_from_file(old))
    summary = tuner.tune(
        n_trial=TRIALS,
        measure_option=autotvm.measure_option(
            builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner()
        ),
        callbacks=[autotvm.callback.log_to_file(str(new))],
    )
    print("\n4. after tuning here\n")
    for line in summary.lines():
        print(f"  {line}")

    # 5. Both logs together: what was measured and checked here goes first.
    with autotvm.apply_history_best([old, new]) as history, target:
        func = tvm.build(*matmul(N, N, N, "float32"))
    print("\n5. built from both logs\n")
    print(history.report())
    print(f"  {check(func) * 1e3:.3f} ms")

    # 6. And back: a line in AutoTVM's form, for a tool that reads those.
    inp, result = next(iter(autotvm.record.load_from_file(new)))
    print("\n6. a record in AutoTVM's form\n")
    print(f"  {autotvm.record.encode(inp, result)[:76]}...")


if __name__ == "__main__":
    main()
