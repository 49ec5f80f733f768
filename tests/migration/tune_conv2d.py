"""Tune a convolution template for the CPU, with the learned cost model."""

import logging
import sys

import numpy as np
import tvm
import tvm.testing
from tvm import autotvm, te


def convolution(N, H, W, CO, CI, KH, KW, stride, padding):
    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    ph, pw = padding
    padded = te.compute(
        (N, CI, H + 2 * ph, W + 2 * pw),
        lambda n, c, y, x: tvm.tir.if_then_else(
            tvm.tir.all(y >= ph, y < H + ph, x >= pw, x < W + pw),
            data[n, c, y - ph, x - pw],
            tvm.tir.const(0.0, "float32"),
        ),
        name="padded",
    )
    rc = te.reduce_axis((0, CI), name="rc")
    ry = te.reduce_axis((0, KH), name="ry")
    rx = te.reduce_axis((0, KW), name="rx")
    OH = (H + 2 * ph - KH) // stride + 1
    OW = (W + 2 * pw - KW) // stride + 1
    conv = te.compute(
        (N, CO, OH, OW),
        lambda n, f, y, x: te.sum(
            padded[n, rc, y * stride + ry, x * stride + rx] * kernel[f, rc, ry, rx],
            axis=[rc, ry, rx],
        ),
        name="conv",
    )
    return data, kernel, padded, conv


@autotvm.template("migration/conv2d_no_batching")
def conv2d_no_batching(N, H, W, CO, CI, KH, KW, stride, padding):
    assert N == 1, "only a batch of one"
    data, kernel, padded, conv = convolution(N, H, W, CO, CI, KH, KW, stride, padding)
    s = te.create_schedule([conv.op])

    n, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_f", f, num_outputs=3)
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_split("tile_rc", rc, num_outputs=2)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])

    s[padded].compute_inline()
    output = conv
    conv_local = s.cache_write(conv, "local")
    n, f, y, x = s[output].op.axis
    bf, vf, fi = cfg["tile_f"].apply(s, output, f)
    by, yi = cfg["tile_y"].apply(s, output, y)
    bx, xi = cfg["tile_x"].apply(s, output, x)
    kernel_scope = n
    s[output].reorder(n, bf, by, bx, vf, fi, yi, xi)
    s[output].parallel(bf)
    s[conv_local].compute_at(s[output], vf)

    n, f, y, x = s[conv_local].op.axis
    rc, ry, rx = s[conv_local].op.reduce_axis
    rco, rci = cfg["tile_rc"].apply(s, conv_local, rc)
    s[conv_local].reorder(rco, ry, rx, rci, n, f, y, x)
    s[conv_local].vectorize(x)
    s[output].pragma(kernel_scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(kernel_scope, "unroll_explicit", cfg["unroll_explicit"].val)
    return s, [data, kernel, conv]


logging.getLogger("autotvm").setLevel(logging.DEBUG)
logging.getLogger("autotvm").addHandler(logging.StreamHandler(sys.stdout))

N, H, W, CO, CI, KH, KW, strides, padding = 1, 7, 7, 16, 8, 3, 3, 1, (1, 1)
task = autotvm.task.create(
    "migration/conv2d_no_batching",
    args=(N, H, W, CO, CI, KH, KW, strides, padding),
    target="llvm",
)
print(task.config_space)

measure_option = autotvm.measure_option(
    builder=autotvm.LocalBuilder(),
    runner=autotvm.LocalRunner(repeat=3, min_repeat_ms=1, timeout=4),
)
tuner = autotvm.tuner.XGBTuner(task)
tuner.tune(
    n_trial=8,
    measure_option=measure_option,
    callbacks=[autotvm.callback.log_to_file("conv2d.log")],
)

dispatch_context = autotvm.apply_history_best("conv2d.log")
best_config = dispatch_context.query(task.target, task.workload)
print("\nBest config:")
print(best_config)

with autotvm.apply_history_best("conv2d.log"), tvm.target.Target("llvm"):
    s, arg_bufs = conv2d_no_batching(N, H, W, CO, CI, KH, KW, strides, padding)
    func = tvm.build(s, arg_bufs)

a_np = np.random.uniform(size=(N, CI, H, W)).astype(np.float32)
w_np = np.random.uniform(size=(CO, CI, KH, KW)).astype(np.float32)
around = np.pad(a_np, ((0, 0), (0, 0), padding, padding))
windows = np.lib.stride_tricks.sliding_window_view(around, (KH, KW), axis=(2, 3))
c_np = np.einsum("ncyxij,fcij->nfyx", windows, w_np)

dev = tvm.cpu()
a_tvm = tvm.nd.array(a_np, device=dev)
w_tvm = tvm.nd.array(w_np, device=dev)
c_tvm = tvm.nd.empty(c_np.shape, device=dev)
func(a_tvm, w_tvm, c_tvm)
tvm.testing.assert_allclose(c_np, c_tvm.numpy(), rtol=1e-2)

evaluator = func.time_evaluator(func.entry_name, dev, number=4)
print(f"Time cost of this operator: {evaluator(a_tvm, w_tvm, c_tvm).mean:f}")
