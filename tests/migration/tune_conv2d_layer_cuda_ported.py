"""Search schedules of a layer with a convolution, a bias and a relu by auto_scheduler."""

import numpy as np

import loopwright as tvm
from loopwright import auto_scheduler, te

TARGET = "llvm"
dev = tvm.cpu()


def conv2d_nchw(data, kernel, stride, padding):
    (n, ci, h, w), (co, _, kh, kw), (sy, sx), (ph, pw) = data.shape, kernel.shape, stride, padding
    padded = te.compute(
        (n, ci, h + 2 * ph, w + 2 * pw),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= ph, y < h + ph, x >= pw, x < w + pw), data[b, c, y - ph, x - pw], 0.0
        ),
        name="padded",
    )
    rc = te.reduce_axis((0, ci), name="rc")
    ry, rx = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")
    return te.compute(
        (n, co, (h + 2 * ph - kh) // sy + 1, (w + 2 * pw - kw) // sx + 1),
        lambda b, f, y, x: te.sum(
            padded[b, rc, y * sy + ry, x * sx + rx] * kernel[f, rc, ry, rx], axis=[rc, ry, rx]
        ),
        name="conv",
    )


def conv2d_nchw_python(data, kernel, stride, padding):
    around = np.pad(data, ((0, 0), (0, 0), *((p, p) for p in padding)))
    windows = np.lib.stride_tricks.sliding_window_view(around, kernel.shape[2:], axis=(2, 3))
    return np.einsum("ncyxij,fcij->nfyx", windows[:, :, :: stride[0], :: stride[1]], kernel)


@auto_scheduler.register_workload
def conv2d_layer(N, H, W, CO, CI, KH, KW, stride, padding):
    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    bias = te.placeholder((1, CO, 1, 1), name="bias")
    conv = conv2d_nchw(data, kernel, stride, padding)
    out = te.compute(
        conv.shape,
        lambda b, f, y, x: te.max(conv[b, f, y, x] + bias[0, f, 0, 0], 0.0),
        name="out",
    )
    return [data, kernel, bias, out]


target = tvm.target.Target(TARGET)
N, H, W, CO, CI, KH, KW, strides, padding = 1, 7, 7, 32, 16, 3, 3, (1, 1), (1, 1)
task = auto_scheduler.SearchTask(
    func=conv2d_layer, args=(N, H, W, CO, CI, KH, KW, strides, padding), target=target
)
print("Computational DAG:")
print(task.compute_dag)

log_file = "conv2d.json"
measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=1)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=2,
    runner=measure_ctx.runner,
    measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    verbose=2,
)
task.tune(tune_option)
sch, args = task.apply_best(log_file)
del measure_ctx
print("Lowered TIR:")
print(tvm.lower(sch, args, simple_mode=True))

func = tvm.build(sch, args, target)
data_np = np.random.uniform(size=(N, CI, H, W)).astype(np.float32)
weight_np = np.random.uniform(size=(CO, CI, KH, KW)).astype(np.float32)
bias_np = np.random.uniform(size=(1, CO, 1, 1)).astype(np.float32)
conv_np = conv2d_nchw_python(data_np, weight_np, strides, padding)
out_np = np.maximum(conv_np + bias_np, 0.0)

data_tvm = tvm.nd.array(data_np, device=dev)
weight_tvm = tvm.nd.array(weight_np, device=dev)
bias_tvm = tvm.nd.array(bias_np, device=dev)
out_tvm = tvm.nd.empty(out_np.shape, device=dev)
func(data_tvm, weight_tvm, bias_tvm, out_tvm)
np.testing.assert_allclose(out_np, out_tvm.numpy(), rtol=1e-3)

evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=5)
median = np.median(evaluator(data_tvm, weight_tvm, bias_tvm, out_tvm).results)
print(f"Execution time of this operator: {median * 1000:.3f} ms")

print("Equivalent python schedule:")
print(task.print_best(log_file, print_mode="schedule"))
print("Code of the target:")
print(task.print_best(log_file, print_mode="cuda"))

cost_model = auto_scheduler.XGBModel()
cost_model.update_from_file(log_file)
search_policy = auto_scheduler.SketchPolicy(
    task, cost_model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)]
)
measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=1)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=1,
    runner=measure_ctx.runner,
    measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
)
task.tune(tune_option, search_policy=search_policy)
del measure_ctx
assert len(auto_scheduler.RecordReader(log_file).read_lines()[0]) >= 3
print("the search went on")
