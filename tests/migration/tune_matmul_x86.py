"""Search schedules of a product with a bias by auto_scheduler, for the CPU, and search on."""

import numpy as np
import tvm
from tvm import auto_scheduler, te


@auto_scheduler.register_workload
def matmul_add(N, L, M, dtype):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    product = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="product",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((N, M), lambda i, j: product[i, j] + C[i, j], name="out")
    return [A, B, C, out]


target = tvm.target.Target("llvm")
N = L = M = 96
task = tvm.auto_scheduler.SearchTask(func=matmul_add, args=(N, L, M, "float32"), target=target)
print("Computational DAG:")
print(task.compute_dag)

log_file = "matmul.json"
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=3,
    measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    verbose=2,
)
task.tune(tune_option)
sch, args = task.apply_best(log_file)
print("Lowered TIR:")
print(tvm.lower(sch, args, simple_mode=True))

func = tvm.build(sch, args, target)
a_np = np.random.uniform(size=(N, L)).astype(np.float32)
b_np = np.random.uniform(size=(L, M)).astype(np.float32)
c_np = np.random.uniform(size=(N, M)).astype(np.float32)
out_np = a_np.dot(b_np) + c_np

dev = tvm.cpu()
a_tvm = tvm.nd.array(a_np, device=dev)
b_tvm = tvm.nd.array(b_np, device=dev)
c_tvm = tvm.nd.array(c_np, device=dev)
out_tvm = tvm.nd.empty(out_np.shape, device=dev)
func(a_tvm, b_tvm, c_tvm, out_tvm)
np.testing.assert_allclose(out_np, out_tvm.numpy(), rtol=1e-3)

evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=5)
median = np.median(evaluator(a_tvm, b_tvm, c_tvm, out_tvm).results)
print(f"Execution time of this operator: {median * 1000:.3f} ms")

print("Equivalent python schedule:")
print(task.print_best(log_file))


def resume_search(task, log_file):
    print("Resume search:")
    cost_model = auto_scheduler.XGBModel()
    cost_model.update_from_file(log_file)
    search_policy = auto_scheduler.SketchPolicy(
        task,
        cost_model,
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)],
    )
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=2, measure_callbacks=[auto_scheduler.RecordToFile(log_file)]
    )
    task.tune(tune_option, search_policy=search_policy)


resume_search(task, log_file)
inputs, results = auto_scheduler.RecordReader(log_file).read_lines()
measured = {str(item.state.transform_steps) for item in inputs}
assert sum(result.error_no == 0 for result in results) >= 5
assert len(measured) == len(inputs)
print("the search went on")
