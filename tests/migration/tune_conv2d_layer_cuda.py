"""Search schedules of a layer with a convolution, a bias and a relu by auto_scheduler."""

import numpy as np
import tvm
from tvm import auto_scheduler, te, topi
from tvm.topi.testing import conv2d_nchw_python

TARGET = "cuda"
dev = tvm.cuda()


@auto_scheduler.register_workload
def conv2d_layer(N, H, W, CO, CI, KH, KW, stride, padding):
    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    bias = te.placeholder((1, CO, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    out = topi.nn.relu(conv + bias)
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
