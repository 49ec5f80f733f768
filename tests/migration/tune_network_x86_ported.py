"""Tune the kernels of a network by auto_scheduler, for the CPU, and run it from the log."""

import numpy as np

import loopwright as tvm
from loopwright import auto_scheduler, graph
from loopwright.graph.op import add, nn


def get_network(name, batch_size, dtype="float32"):
    """The module, its weights, and the shapes of input and output."""
    image_shape = (1, 8, 8)
    input_shape = (batch_size, *image_shape)
    output_shape = (batch_size, 10)
    if name != "mlp":
        raise ValueError("Network not found.")
    layers = [(32, 64), (10, 32)]
    params = {}
    y = nn.batch_flatten(graph.var("data", input_shape, dtype))
    for n, shape in enumerate(layers):
        weight, bias = f"fc{n}_weight", f"fc{n}_bias"
        params[weight] = np.random.normal(0, 0.1, shape).astype(dtype)
        params[bias] = np.random.normal(0, 0.1, shape[:1]).astype(dtype)
        y = nn.dense(y, graph.var(weight, shape, dtype))
        y = add(y, graph.var(bias, shape[:1], dtype))
        y = nn.relu(y) if n < len(layers) - 1 else nn.softmax(y)
    mod = graph.IRModule.from_expr(y)
    return mod, params, input_shape, output_shape


network = "mlp"
batch_size = 4
target = tvm.target.Target("llvm")
dtype = "float32"
log_file = f"{network}-B{batch_size}-{target.kind.name}.json"

print("Extract tasks...")
mod, params, input_shape, output_shape = get_network(network, batch_size, dtype=dtype)
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target)
for idx, task in enumerate(tasks):
    print(f"========== Task {idx}  (workload key: {task.workload_key}) ==========")
    print(task.compute_dag)


def run_tuning():
    print("Begin tuning...")
    tuner = auto_scheduler.TaskScheduler(tasks, task_weights)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=len(tasks),
        runner=auto_scheduler.LocalRunner(number=2, repeat=2, enable_cpu_cache_flush=True),
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    )
    tuner.tune(tune_option)


run_tuning()

print("Compile...")
with auto_scheduler.ApplyHistoryBest(log_file), tvm.transform.PassContext(opt_level=3):
    lib = tvm.compile(graph.bind_params_by_name(mod, params), target=target)

dev = tvm.device(str(target), 0)
module = lib.executor()
data_tvm = tvm.nd.array((np.random.uniform(size=input_shape)).astype(dtype))
module.set_input("data", data_tvm)

print("Evaluate inference time cost...")
print(module.benchmark(dev, repeat=3, min_repeat_ms=5))
module.run()
found = module.get_output(0).numpy()
np.testing.assert_allclose(found.sum(axis=1), np.ones(batch_size), rtol=1e-5)
print("the network was tuned")
