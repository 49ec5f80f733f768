"""Tune a convolution template for a GPU: blocks, virtual threads, threads, shared memory."""

import logging
import sys

import numpy as np
import tvm
import tvm.testing
from tvm import autotvm, te

TARGET = "cuda"
dev = tvm.cuda()


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
    return data, kernel, conv


@autotvm.template("migration/conv2d_on_gpus")
def conv2d_on_gpus(N, H, W, CO, CI, KH, KW, stride, padding):
    data, kernel, conv = convolution(N, H, W, CO, CI, KH, KW, stride, padding)
    s = te.create_schedule([conv.op])

    n, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg = autotvm.get_config()
    for name, axis in (("tile_f", f), ("tile_y", y), ("tile_x", x)):
        cfg.define_split(name, axis, num_outputs=4)
    for name, axis in (("tile_rc", rc), ("tile_ry", ry), ("tile_rx", rx)):
        cfg.define_split(name, axis, num_outputs=3)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])

    padded = s[conv].op.input_tensors[0]
    s[padded].compute_inline()
    output = conv
    sums = s.cache_write(conv, "local")
    tiles = [s.cache_read(t, "shared", [sums]) for t in (padded, kernel)]
    parts = [s.cache_read(t, "local", [sums]) for t in tiles]

    n, f, y, x = s[output].op.axis
    kernel_scope = n
    bf, vf, tf, fi = cfg["tile_f"].apply(s, output, f)
    by, vy, ty, yi = cfg["tile_y"].apply(s, output, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, output, x)
    s[output].reorder(n, bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi)
    for axis, loops in zip("zyx", ((bf, vf, tf), (by, vy, ty), (bx, vx, tx)), strict=True):
        s[output].bind(loops[0], te.thread_axis(f"blockIdx.{axis}"))
        s[output].bind(loops[1], te.thread_axis("vthread"))
        s[output].bind(loops[2], te.thread_axis(f"threadIdx.{axis}"))
    s[sums].compute_at(s[output], tx)

    n, f, y, x = s[sums].op.axis
    rc, ry, rx = s[sums].op.reduce_axis
    rco, rcm, rci = cfg["tile_rc"].apply(s, sums, rc)
    ryo, rym, ryi = cfg["tile_ry"].apply(s, sums, ry)
    rxo, rxm, rxi = cfg["tile_rx"].apply(s, sums, rx)
    s[sums].reorder(rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x)
    for tile, part in zip(tiles, parts, strict=True):
        s[tile].compute_at(s[sums], rxo)
        s[part].compute_at(s[sums], rxm)
        rest = s[tile].fuse(*s[tile].op.axis)
        for axis, name in zip("zyx", ("tile_f", "tile_y", "tile_x"), strict=True):
            loop, rest = s[tile].split(rest, nparts=cfg[name].size[2])
            s[tile].bind(loop, te.thread_axis(f"threadIdx.{axis}"))

    s[output].pragma(kernel_scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(kernel_scope, "unroll_explicit", cfg["unroll_explicit"].val)
    return s, [data, kernel, conv]


logging.getLogger("autotvm").setLevel(logging.DEBUG)
logging.getLogger("autotvm").addHandler(logging.StreamHandler(sys.stdout))

N, H, W, CO, CI, KH, KW, strides, padding = 1, 4, 4, 8, 4, 3, 3, 1, (1, 1)
task = autotvm.task.create(
    "migration/conv2d_on_gpus",
    args=(N, H, W, CO, CI, KH, KW, strides, padding),
    target=TARGET,
)
print(task.config_space)

measure_option = autotvm.measure_option(
    builder=autotvm.LocalBuilder(),
    runner=autotvm.LocalRunner(repeat=3, min_repeat_ms=1, timeout=4),
)
tuner = autotvm.tuner.XGBTuner(task)
tuner.tune(
    n_trial=2,
    measure_option=measure_option,
    callbacks=[autotvm.callback.log_to_file("conv2d.log")],
)

dispatch_context = autotvm.apply_history_best("conv2d.log")
best_config = dispatch_context.query(task.target, task.workload)
print("\nBest config:")
print(best_config)

with autotvm.apply_history_best("conv2d.log"), tvm.target.Target(TARGET):
    s, arg_bufs = conv2d_on_gpus(N, H, W, CO, CI, KH, KW, strides, padding)
    func = tvm.build(s, arg_bufs)

a_np = np.random.uniform(size=(N, CI, H, W)).astype(np.float32)
w_np = np.random.uniform(size=(CO, CI, KH, KW)).astype(np.float32)
around = np.pad(a_np, ((0, 0), (0, 0), padding, padding))
windows = np.lib.stride_tricks.sliding_window_view(around, (KH, KW), axis=(2, 3))
c_np = np.einsum("ncyxij,fcij->nfyx", windows, w_np)

a_tvm = tvm.nd.array(a_np, device=dev)
w_tvm = tvm.nd.array(w_np, device=dev)
c_tvm = tvm.nd.empty(c_np.shape, device=dev)
func(a_tvm, w_tvm, c_tvm)
tvm.testing.assert_allclose(c_np, c_tvm.numpy(), rtol=1e-2)

evaluator = func.time_evaluator(func.entry_name, dev, number=4)
print(f"Time cost of this operator: {evaluator(a_tvm, w_tvm, c_tvm).mean:f}")
