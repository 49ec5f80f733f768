"""Tasks of networks by Ansor's and AutoTVM's names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopwright import auto_scheduler, autotvm, graph
from loopwright.errors import GraphError, UsageError
from loopwright.graph import op
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.unit.graph.values import Array, run

TARGET = "llvm -num-threads=1"
RNG = np.random.default_rng(0)
PARAMS = {
    name: RNG.standard_normal(shape).astype("float32") / 4
    for name, shape in {"u": (16, 16), "v": (16, 16), "b": (16,), "w": (8, 16)}.items()
}
X = RNG.standard_normal((4, 16)).astype("float32")


def _network() -> graph.IRModule:
    """``(relu(x U + b) V + b) W``: two layers of one shape, of which one has a rectifier."""
    x = graph.var("x", (4, 16))
    u, v, b, w = (graph.var(name, PARAMS[name].shape) for name in "uvbw")
    y = op.nn.relu(op.add(op.nn.dense(x, u), b))
    y = op.nn.relu(op.add(op.nn.dense(y, v), b))
    return graph.IRModule.from_expr(op.nn.dense(y, w))


def _by_numpy() -> Array:
    y: Array = X
    for name in "uv":
        y = np.maximum(y @ PARAMS[name].T + PARAMS["b"], 0)
    return y @ PARAMS["w"].T


def test_a_scheduler_tunes_the_tasks_of_a_network(tmp_path: Path) -> None:
    module, log = _network(), tmp_path / "net.json"
    keys = tmp_path / "keys.json"
    tasks, weights = auto_scheduler.extract_tasks(
        module["main"], PARAMS, TARGET, dump_workload_to_dag_log=str(keys)
    )
    assert weights == [2, 1]
    assert [task.desc.partition("(")[0] for task in tasks] == [
        "graph/dense_add_relu", "graph/dense",
    ]  # fmt: skip
    written = json.loads(keys.read_text())
    assert written == {task.workload_key: str(task.compute_dag) for task in tasks}
    scheduler = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[])
    options = auto_scheduler.TuningOptions(
        num_measure_trials=2,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        verbose=0,
    )
    options.measure_option = FakeMeasurer(time=lambda _: 1e-3)
    assert scheduler.tune(options).measured == 2
    assert scheduler.cur_score == pytest.approx(3e-3)
    with auto_scheduler.ApplyHistoryBest(str(log)):
        model = graph.compile(graph.bind_params_by_name(module, PARAMS), TARGET)
    np.testing.assert_allclose(model(X)[0], _by_numpy(), rtol=1e-4, atol=1e-5)
    best = auto_scheduler.load_best_record(str(log), tasks[1].workload_key, tasks[1].target)
    assert best[0] is not None


def test_tasks_are_those_of_the_kernels_that_are_built() -> None:
    module = graph.bind_params_by_name(_network(), PARAMS)
    wanted = [one.task.key for one in graph.extract_tasks(module, TARGET)]
    ours, _ = auto_scheduler.extract_tasks(_network(), PARAMS, TARGET)
    assert [task.automatic_task.key for task in ours] == wanted
    assert [t.key for t in autotvm.task.extract_from_program(module, {}, TARGET)] == wanted
    with_ops = autotvm.task.extract_from_program(
        _network()["main"], PARAMS, TARGET, ops=[graph.get_op("nn.relu")]
    )
    assert [task.key for task in with_ops] == wanted[:1]
    several = autotvm.task.extract_from_multiple_program([module, _network()], [{}, PARAMS], TARGET)
    assert [task.key for task in several] == wanted


def test_params_become_constants_by_name() -> None:
    bound = graph.bind_params_by_name(_network(), PARAMS)
    assert [p.name for p in bound["main"].params] == ["x"]
    np.testing.assert_allclose(run(bound, X)[0], _by_numpy(), rtol=1e-4, atol=1e-5)
    some = graph.bind_params_by_name(_network()["main"], {"b": PARAMS["b"].tolist()})
    assert [p.name for p in some.params] == ["x", "u", "v", "w"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(GraphError, match=r"there is none of the name 'z'.*the parameters are x, u"):
        graph.bind_params_by_name(_network(), {"z": X})
    with pytest.raises(GraphError, match=r"'u' is float32\[16, 16\], got float64\[16, 16\]"):
        graph.bind_params_by_name(_network(), {"u": np.zeros((16, 16))})
    twice = graph.IRModule.from_expr(op.add(graph.var("x", (2,)), graph.var("x", (2,))))
    with pytest.raises(GraphError, match="there are 2 of the name 'x'"):
        graph.bind_params_by_name(twice, {"x": [1.0, 2.0]})
    with pytest.raises(UsageError, match="leave other_targets out"):
        auto_scheduler.extract_tasks(_network(), PARAMS, TARGET, other_targets=["llvm"])
    with pytest.raises(UsageError, match="params of 1 networks for 2"):
        autotvm.task.extract_from_multiple_program([_network(), _network()], [PARAMS], TARGET)
