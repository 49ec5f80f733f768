"""AutoTVM's tutorials, rewritten, run with nothing but their import lines changed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

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


# The shape of tune_relay_x86.py: several tasks, a choice of tuners, one log, transfer learning.
SEVERAL = """
import os

import loopwright as tvm
from loopwright import autotvm, te
from loopwright.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner


@autotvm.template("tutorial/scale")
def scale(N, M):
    A = te.placeholder((N, M), name="A", dtype="float32")
    B = te.compute((N, M), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = autotvm.get_config()
    y, x = s[B].op.axis
    cfg.define_split("tile_y", y, num_outputs=3)
    cfg.define_split("tile_x", x, num_outputs=2)
    y0, y1, y2 = cfg["tile_y"].apply(s, B, y)
    x0, x1 = cfg["tile_x"].apply(s, B, x)
    s[B].reorder(y0, x0, y1, y2, x1)
    s[B].vectorize(x1)
    return s, [A, B]


target = tvm.target.Target("llvm -num-threads=1")
tasks = [
    autotvm.task.create("tutorial/scale", args=(N, 64), target=target) for N in (16, 32, 48, 64)
]
tuners = ["xgb", "xgb_knob", "ga", "xgb-rank"]


def tune_tasks(tasks, measure_option, n_trial=6, early_stopping=None, log_filename="tuning.log",
               use_transfer_learning=True):
    tmp_log_file = log_filename + ".tmp"
    if os.path.exists(tmp_log_file):
        os.remove(tmp_log_file)
    for i, (tsk, tuner) in enumerate(zip(reversed(tasks), tuners)):
        prefix = "[Task %2d/%2d] " % (i + 1, len(tasks))
        if tuner == "xgb":
            tuner_obj = XGBTuner(tsk, loss_type="reg", num_threads=1, log_interval=5)
        elif tuner == "xgb-rank":
            tuner_obj = XGBTuner(tsk, 8, "itervar", "rank", None, "sa", 3)
        elif tuner == "xgb_knob":
            tuner_obj = XGBTuner(tsk, loss_type="rank-binary", feature_type="knob")
        elif tuner == "ga":
            tuner_obj = GATuner(tsk, pop_size=50)
        if use_transfer_learning and os.path.isfile(tmp_log_file):
            tuner_obj.load_history(
                autotvm.record.load_from_file(tmp_log_file), min_seed_records=100
            )
        tsk_trial = min(n_trial, len(tsk.config_space))
        tuner_obj.tune(
            n_trial=tsk_trial,
            early_stopping=early_stopping,
            measure_option=measure_option,
            callbacks=[
                autotvm.callback.progress_bar(tsk_trial, prefix=prefix),
                autotvm.callback.log_to_file(tmp_log_file),
            ],
            si_prefix="G",
        )
        print(tuner, tuner_obj.best_config, tuner_obj.best_flops > 0)
    autotvm.record.pick_best(tmp_log_file, log_filename)
    os.remove(tmp_log_file)


tune_tasks(
    tasks,
    measure_option=autotvm.measure_option(
        builder=autotvm.LocalBuilder(timeout=10),
        runner=autotvm.LocalRunner(number=2, repeat=2, enable_cpu_cache_flush=True),
    ),
)
for inp, res in autotvm.record.load_from_file("tuning.log"):
    print("best of", inp.task.name, inp.task.args, inp.config, min(res.costs), res.error_no)
with autotvm.apply_history_best("tuning.log"), target:
    for task in tasks:
        tvm.build(*scale(*task.args))
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_matmul_tutorial(tmp_path: Path) -> None:
    assert "mean seconds" in run(SCRIPT, tmp_path).stdout
    assert (tmp_path / "best.log").read_text().count("\n") >= 1


# By day `tuner/test_transfer_model.py` says what other tasks teach.
@pytest.mark.slow
def test_several_tasks_with_transfer_learning(tmp_path: Path) -> None:
    done = run(SEVERAL, tmp_path)
    assert done.stdout.count(" True\n") == 4
    assert done.stdout.count("best of tutorial/scale") == 4
    # What came before taught the second and the fourth; the genetic one has no model.
    taught = re.findall(r"pretrained on (\d+) results of (\d) other task", done.stderr)
    assert [tasks for _, tasks in taught] == ["1", "3"]
    assert 6 <= int(taught[0][0]) < int(taught[1][0])
    assert "default configuration" not in done.stderr
