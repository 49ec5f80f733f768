"""AutoTVM's matmul tutorial, rewritten, runs with nothing but its import lines changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, sys
import numpy as np

import loopwright as tvm
from loopwright import te, autotvm


@autotvm.template("tutorial/matmul_v2")
def matmul(N, L, M, dtype):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    k = s[C].op.reduce_axis[0]
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_reorder("order", [y, x], policy="all")
    cfg.define_annotate("ann", [x], policy="try_unroll_vec")
    cfg.define_knob("auto_unroll", [0, 16])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, k, yi, xi)
    lens = [cfg["tile_x"].size[-1]]
    cfg["ann"].apply(s, C, [xi], axis_lens=lens, max_unroll=16, vec_size=[4, 8, 16])
    s[C].pragma(yo, "auto_unroll_max_step", cfg["auto_unroll"].val)
    if cfg.is_fallback is False:
        cfg.add_flop(2 * N * L * M)
    return s, [A, B, C]


N, L, M = 32, 48, 64
task = autotvm.task.create("tutorial/matmul_v2", args=(N, L, M, "float32"), target="llvm")
print(task.config_space)
logging.getLogger("autotvm").setLevel(logging.DEBUG)
measure_option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=5))
tuner = autotvm.tuner.RandomTuner(task)
tuner.tune(
    n_trial=6,
    measure_option=measure_option,
    callbacks=[autotvm.callback.log_to_file("matmul.log")],
)
autotvm.record.pick_best("matmul.log", "best.log")
with autotvm.apply_history_best("best.log"):
    with tvm.target.Target("llvm"):
        s, arg_bufs = matmul(N, L, M, "float32")
        func = tvm.build(s, arg_bufs)
print(tvm.lower(s, arg_bufs, simple_mode=True))
a_np = np.random.uniform(size=(N, L)).astype(np.float32)
b_np = np.random.uniform(size=(L, M)).astype(np.float32)
dev = tvm.cpu()
c_tvm = tvm.nd.empty((N, M))
func(tvm.nd.array(a_np, device=dev), tvm.nd.array(b_np, device=dev), c_tvm)
tvm.testing.assert_allclose(c_tvm.numpy(), a_np.dot(b_np), rtol=1e-4)
evaluator = func.time_evaluator(func.entry_name, dev, number=10)
print("mean seconds", evaluator(tvm.nd.array(a_np), tvm.nd.array(b_np), c_tvm).mean)
print("read", sum(1 for _ in autotvm.record.load_from_file("matmul.log")), "records")
"""


def test_an_autotvm_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "tune_simple_template.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mean seconds" in done.stdout
    assert (tmp_path / "best.log").read_text().count("\n") >= 1
