"""Several implementations of an operator: which are taken, tuned and built."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import GraphError, UsageError
from loopwright.graph import op
from loopwright.graph.building import ModelBuilder
from loopwright.graph.kernels import kernel_tasks
from loopwright.graph.plan import plan
from loopwright.testing.tuner_contract import FakeMeasurer

TARGET = "llvm -num-threads=1"
DATA = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
WEIGHT = np.random.default_rng(1).standard_normal((6, 8)).astype("float32")


def module() -> graph.IRModule:
    x = graph.var("x", (4, 8))
    return graph.IRModule.from_expr(op.nn.relu(op.nn.dense(x, WEIGHT)))


def reversed_dense(data: te.Tensor, weight: te.Tensor, *, out_dtype: str = "") -> te.Tensor:
    """The same product, its terms from the last to the first."""
    count = weight.shape[1]
    k = te.reduce_axis((0, count), name="k")
    shape = (data.shape[0], weight.shape[0])
    tensor: te.Tensor = te.compute(
        shape,
        lambda i, j: te.sum(data[i, count - 1 - k] * weight[j, count - 1 - k], axis=k),
        name="dense",
    )
    return tensor


@pytest.fixture
def registered() -> Iterator[Any]:
    """Registers implementations of nn.dense, and forgets them."""
    names: set[str] = set()

    def register(name: str, compute: Any = reversed_dense, **options: Any) -> None:
        graph.register_implementation("nn.dense", name, **options)(compute)
        names.add(name)

    yield register
    for name in names:
        graph.remove_implementation("nn.dense", name)


def test_the_highest_priority_whose_condition_holds_is_built(registered: Any) -> None:
    registered("low", plevel=5)
    registered("high", plevel=15)
    registered("higher", plevel=20, condition=lambda inputs, attrs, target: False)
    model = graph.compile(module(), TARGET)
    assert set(model.implementations.values()) == {"high"}
    assert np.allclose(model(DATA)[0], np.maximum(DATA @ WEIGHT.T, 0), rtol=1e-5)
    graph.remove_implementation("nn.dense", "high")
    registered("high", plevel=9)
    assert set(graph.compile(module(), TARGET).implementations.values()) == {"definition"}


def test_a_condition_gets_inputs_attributes_and_target(registered: Any) -> None:
    seen = []

    def condition(inputs: Any, attrs: Any, target: Any) -> bool:
        seen.append(([t.shape for t in inputs], inputs[1].op.constant, dict(attrs), target.kind))
        return True

    registered("watched", condition=condition, plevel=lambda inputs, attrs, target: 30)
    assert set(graph.compile(module(), TARGET).implementations.values()) == {"watched"}
    assert seen[0] == ([(4, 8), (6, 8)], True, {"out_dtype": ""}, "llvm")


def test_one_whose_error_is_too_large_is_not_taken(registered: Any) -> None:
    registered("rough", plevel=15, error=1e-3)
    assert set(graph.compile(module(), TARGET).implementations.values()) == {"definition"}
    with lw.PassContext(config={"max_error": 1e-2}):
        assert set(graph.compile(module(), TARGET).implementations.values()) == {"rough"}
    with pytest.raises(UsageError, match="'max_error' must be a number of 0 or more, got -1"):
        lw.PassContext(config={"max_error": -1})


def test_what_is_registered_wrongly_is_refused(registered: Any) -> None:
    with pytest.raises(GraphError, match=r"no operator 'nn\.dens'.*did you mean"):
        graph.register_implementation("nn.dens", "other")
    with pytest.raises(GraphError, match=r"'definition' is what nn\.dense is defined by"):
        graph.register_implementation("nn.dense", "definition")
    with pytest.raises(GraphError, match="no implementation 'other' beside its definition"):
        graph.remove_implementation("nn.dense", "other")
    registered("short", lambda data, weight, out_dtype="": data, plevel=15)
    with pytest.raises(
        GraphError, match=r"'short' of nn.dense makes float32\[4, 8\]; the operator"
    ):
        graph.compile(module(), TARGET)


def test_every_implementation_is_a_task(registered: Any) -> None:
    registered("reversed", plevel=15)
    tasks = graph.extract_tasks(module(), TARGET)
    assert [(t.implementation, t.rank, t.weight) for t in tasks] == [
        ("reversed", 0, 1),
        ("definition", 1, 1),
    ]
    assert len({t.task.key for t in tasks}) == 2
    assert len({t.group for t in tasks}) == 1
    assert str(tasks[0].task) == "graph/dense_relu/reversed((4, 8), (6, 8))"


def test_with_records_the_fastest_is_built(registered: Any, tmp_path: Path) -> None:
    registered("reversed", plevel=15)
    tasks = {t.implementation: t for t in graph.extract_tasks(module(), TARGET)}
    paths = {}
    for name, one in tasks.items():
        paths[name] = tmp_path / f"{name}.jsonl"
        lw.tune([one], log=paths[name], trials=2, tuner="random", measure_option=FakeMeasurer())
    for name, path in paths.items():  # what has a record goes before what has none
        model = graph.compile(module(), TARGET, history=path)
        assert set(model.implementations.values()) == {name}
    both = list(paths.values())
    model = graph.compile(module(), TARGET, history=both)
    history = lw.apply_history_best(both)
    expected = {n: history.explain(t.task).expected or np.inf for n, t in tasks.items()}
    best = min(expected, key=lambda n: expected[n])
    assert set(model.implementations.values()) == {best}
    (choice,) = model.choices.values()
    assert choice.key == tasks[best].task.key
    with history:  # a context around the call decides as well
        assert set(graph.compile(module(), TARGET).implementations.values()) == {best}


def test_of_alternatives_the_fastest_counts_and_goes_on(registered: Any, tmp_path: Path) -> None:
    registered("reversed", plevel=15)
    summary = lw.tune(
        module(),
        TARGET,
        log=tmp_path / "m.jsonl",
        trials=12,
        tuner="random",
        measure_option=FakeMeasurer(),
    )
    times = [row.best_seconds for row in summary.rows if row.best_seconds]
    assert len(times) == 2
    assert summary.latency == summary.cost == min(times)


@pytest.mark.parametrize(
    ("workload", "args", "shape", "weight", "groups"),
    [
        pytest.param(
            *("conv2d", (1, 16, 6, 7, 8, 3, 3, 1, 1), (1, 16, 6, 7), (8, 16, 3, 3), 1),
            marks=pytest.mark.slow,  # the next two have its form
        ),
        (
            *("conv2d", (1, 16, 6, 7, 8, 3, 3, 1, 1, "float32", 1, 1, "NHWC")),
            *((1, 6, 7, 16), (3, 3, 16, 8), 1),
        ),
        ("depthwise_conv2d", (1, 8, 6, 7, 3, 3, 1, 1), (1, 8, 6, 7), (8, 1, 3, 3), 8),
        ("dense", (2, 8, 16, False, False), (2, 16), (8, 16), 1),
        ("matmul", (2, 8, 16), (2, 16), (16, 8), 1),
    ],
)
def test_records_of_workloads_serve_kernels_of_one_call(
    workload: str, args: tuple[Any, ...], shape: Any, weight: Any, groups: int
) -> None:
    rng = np.random.default_rng(0)
    w, data = (rng.standard_normal(s).astype("float32") for s in (weight, shape))
    x = graph.var("x", shape)
    if "conv2d" in workload:
        op = graph.op.nn.conv_channels_last if "NHWC" in args else graph.op.nn.conv
        y = op(x, w, padding=1, groups=groups)
    else:
        y = (graph.op.nn.dense if workload == "dense" else graph.op.matmul)(x, w)
    planned = plan(graph.transform.FuseOps(graph.IRModule.from_expr(y)))
    tasks = kernel_tasks(planned, lw.Target("llvm"))
    ((name, (one, *_)),) = tasks.items()
    found = lw.create_task(workload, args, "llvm").dag_hash
    assert one.task.dag_hash != found, "weights are constants"
    assert found in one.task.dag_hashes
    kernel = lw.build(*one.task.expression(found), "llvm", name=name)
    built = Future[lw.runtime.Module]()
    built.set_result(kernel)
    served = ModelBuilder(lw.Target("llvm"), kernels={one.task.key: built})
    expected = ModelBuilder(lw.Target("llvm")).program(planned, tasks)
    model = served.program(planned, tasks)
    assert model.kernels[name] is kernel
    np.testing.assert_allclose(model(data)[0], expected(data)[0], rtol=1e-4, atol=1e-5)
