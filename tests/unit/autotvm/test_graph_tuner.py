"""``autotvm.graph_tuner``: the calls of TVM's tutorial, and what a network then computes."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from loopwright import autotvm, graph, tune
from loopwright.errors import GraphError, UsageError
from loopwright.graph import op
from loopwright.measure import MeasureInput
from loopwright.records import load
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.unit.graph.values import Array, run

TARGET = "llvm -num-threads=1"
SHAPES = {"data": (1, 8, 6, 6)}
RNG = np.random.default_rng(0)


def _array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def _network() -> graph.IRModule:
    x = graph.var("data", SHAPES["data"])
    return graph.IRModule.from_expr(op.nn.max_pool(x, pool_size=2, strides=2))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was measured; a trial takes a time that is made up."""
    trials: list[int] = []

    def option(*_: object) -> FakeMeasurer:
        return FakeMeasurer(time=lambda _: 1e-3, on_trial=trials.append)

    module = importlib.import_module("loopwright.compat.graph_tuner")
    monkeypatch.setattr(module, "measure_option", option)
    monkeypatch.setattr("loopwright.tuner.run.loop.default_option", option)
    return trials


def test_layouts_are_tuned_as_in_the_tutorial(measured: list[int], tmp_path: Path) -> None:
    module, records = _network(), tmp_path / "net.log"
    tune(module, TARGET, log=records, trials=2, tuner="random")
    before = len(measured)
    executor = autotvm.graph_tuner.PBQPTuner(
        module,
        SHAPES,
        str(records),
        [graph.get_op("nn.conv")],
        TARGET,
        log_file=tmp_path / "graph_tuner.log",
    )
    executor.benchmark_layout_transform(min_exec_num=20)
    transforms = len(measured) - before
    assert transforms >= 2
    with pytest.raises(UsageError, match=r"no layouts are chosen yet; call run\(\) first"):
        executor.write_opt_sch2record_file(tmp_path / "opt.log")
    executor.run()
    assert len(measured) > before + transforms  # kernels in other layouts have no records yet
    assert len({r.task for r in load(tmp_path / "graph_tuner.log")}) >= 2
    executor.write_opt_sch2record_file(tmp_path / "opt.log")
    assert graph.LayoutChoice.load(tmp_path / "opt.log") == executor.choice
    model = graph.compile(module, TARGET, records, layouts=tmp_path / "opt.log")
    image = _array(*SHAPES["data"])
    np.testing.assert_allclose(model(image)[0], run(module, image)[0], rtol=1e-6)


@pytest.mark.usefixtures("measured")
def test_the_optimal_records_are_those_of_the_chosen_layouts(tmp_path: Path) -> None:
    module, records = _network(), tmp_path / "net.log"
    choice = graph.tune_layouts(module, TARGET, measure=False, blocks=())
    tasks = graph.extract_tasks(module, TARGET, layouts=choice)
    tune(tasks, log=records, trials=len(tasks), tuner="random")
    tuner = autotvm.graph_tuner.DPTuner(module, SHAPES, records, ["nn.conv"], TARGET, log_file=None)
    tuner.choice = choice
    found = tuner.get_optimal_record()
    assert [inp.task.key for inp, _ in found] == [one.task.key for one in tasks]
    for inp, result in found:
        assert isinstance(inp, MeasureInput)
        assert set(result.costs) == {1e-3}


def test_what_it_does_not_take_is_refused() -> None:
    module = _network()
    kind = autotvm.graph_tuner.DPTuner
    with pytest.raises(GraphError, match=r"no operator 'nn\.conv2d'"):
        kind(module, SHAPES, [], ["nn.conv2d"], TARGET)
    with pytest.raises(UsageError, match=r'target_ops has nn\.dense: .*give \["nn\.conv"\]'):
        kind(module, SHAPES, [], ["nn.dense"], TARGET)
    with pytest.raises(UsageError, match="no input 'x'; it has data"):
        kind(module, {"x": (1, 8, 6, 6)}, [], ["nn.conv"], TARGET)
    with pytest.raises(UsageError, match=r"'data' of the graph is .*, not of shape \(2, 8, 6, 6\)"):
        kind(module, {"data": (2, 8, 6, 6)}, [], ["nn.conv"], TARGET)
    with pytest.raises(UsageError, match="there is no RPC"):
        kind(module, SHAPES, [], ["nn.conv"], TARGET).benchmark_layout_transform(use_rpc=True)
