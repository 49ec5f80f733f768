"""Nodes of ONNX models that have no kernel: what computes them, who says so, and who refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import ml_dtypes  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import loopwright as lw  # noqa: E402
from loopwright import graph  # noqa: E402
from loopwright.errors import GraphError, RunError  # noqa: E402
from loopwright.executors import HostStep  # noqa: E402
from loopwright.graph.fallbacks import shares_by_step  # noqa: E402
from loopwright.graph.frontend.onnx import from_onnx, stored  # noqa: E402
from tests.unit.graph.small_onnx import branching  # noqa: E402
from tests.unit.graph.values import run  # noqa: E402

TARGET = "llvm -num-threads=1"
X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")


_info = helper.make_tensor_value_info


@pytest.mark.parametrize("flag", [True, False])
def test_a_node_without_a_kernel_is_computed_by_onnx(flag: bool) -> None:
    given = {"x": X, "flag": np.array(flag)}
    (wanted,) = ReferenceEvaluator(branching()).run(None, given)
    np.testing.assert_allclose(run(from_onnx(branching()), *given.values())[0], wanted, rtol=1e-6)


def test_a_compiled_model_lists_its_fallbacks_with_their_share(tmp_path: Path) -> None:
    model = lw.compile(branching(), TARGET)
    given = {"x": X, "flag": np.array(True)}
    (wanted,) = ReferenceEvaluator(branching()).run(None, given)
    np.testing.assert_allclose(model(*given.values())[0], wanted, rtol=1e-5)
    (listed,) = model.report.fallbacks
    assert "its values go from" not in listed.reason  # which is said of devices
    assert (listed.node, listed.by) == ("If 'choice'", "onnx.reference")
    assert "depends on 'flag'" in listed.reason
    assert 0 < listed.share < 1
    assert str(model.report).startswith("1 node has no kernel, ")
    executor = model.debug_executor()
    executor.run(**given)
    step = next(n for n in executor.nodes if "onnx_reference" in n)
    np.testing.assert_allclose(executor.debug_get_output(step), np.exp(np.maximum(X, 0)), rtol=1e-5)
    assert executor.run_individual_node(step, number=2).mean > 0
    with pytest.raises(RunError, match=r"cannot be saved: if_by_onnx_reference_0 \(onnx.reference"):
        model.save(tmp_path / "model.lw")
    with pytest.raises(RunError, match=r"cannot be one function: if_by_onnx_reference_0"):
        model.aot_executor()
    with pytest.raises(RunError, match=r"cannot be a library: if_by_onnx_reference_0"):
        model.export_library(tmp_path / "model.so")
    beside = model.async_executor(num_workers=2)
    beside.run(**given)
    np.testing.assert_allclose(np.asarray(beside.get_output(0)), wanted, rtol=1e-5)
    with pytest.raises(GraphError, match=r"If is computed by onnx.reference in Python"):
        graph.save_json(from_onnx(branching()))


def test_executors_of_one_model_do_not_share_what_falls_back() -> None:
    model = lw.compile(branching(), TARGET)
    first, second = model.executor(), model.executor()
    first.run(x=X, flag=np.array(True))
    second.run(x=X, flag=np.array(False))
    a, b = (np.asarray(e.get_output(0)) for e in (first, second))
    np.testing.assert_allclose(b, 0 * X, atol=1e-6)
    np.testing.assert_allclose(a, np.exp(np.maximum(X, 0)) + np.maximum(X, 0), rtol=1e-5)


def test_without_fallback_nodes_are_refused() -> None:
    with pytest.raises(GraphError, match=r"1 node cannot be converted: If 'choice' .*'flag'"):
        lw.compile(branching(), TARGET, fallback=False)


def test_tasks_are_of_kernels_alone() -> None:
    tasks = graph.extract_tasks(branching(), TARGET, include_simple_tasks=True)
    assert sorted(t.ops for t in tasks) == [("add",), ("nn.relu",)]


def test_what_has_no_size_is_refused_still() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="places")
    g = helper.make_graph([node], "g", [_info("x", 1, [2, 3])], [_info("y", 7, None)])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(GraphError, match=r"NonZero 'places' .*no fallback: .*depends on data"):
        from_onnx(model)


def test_narrow_floats_fall_back_as_themselves() -> None:
    """A choice between floats of 8 bits, which are bits for kernels and floats for onnx."""
    element = TensorProto.FLOAT8E5M2
    node = helper.make_node("Identity", ["x"], ["r"])
    branch = helper.make_graph([node], "branch", [], [_info("r", element, [2, 3])])
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    infos = [_info("x", element, [2, 3]), _info("flag", TensorProto.BOOL, [])]
    g = helper.make_graph([choice], "g", infos, [_info("y", element, [2, 3])])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    bits = stored(X.astype(ml_dtypes.float8_e5m2))
    np.testing.assert_array_equal(run(from_onnx(model), bits, np.array(True))[0], bits)


def test_a_step_that_fails_or_gives_something_else_is_told() -> None:
    out = np.empty(3, "float32")
    wrong = HostStep("step", lambda x: [x[:2]], 1, "NumPy").bind(X[0], out)
    with pytest.raises(
        RunError, match=r"'step', which NumPy computes, gave float32\[2\] where .*3"
    ):
        wrong()
    fails = HostStep("step", lambda x: [x[7]], 1, "NumPy").bind(X[0], out)
    with pytest.raises(RunError, match="which NumPy computes, failed: IndexError: index 7"):
        fails()


def test_shares_are_those_of_single_runs() -> None:
    clock = [1.0, 3.0, 1.0, 2.0, 5.0]  # of the machine: what all steps of a run share
    samples = {"a": [0.25 * c for c in clock], "b": [0.75 * c for c in clock]}
    assert shares_by_step(samples) == {"a": (0.25, 0.0), "b": (0.75, 0.0)}
    samples = {"a": [1.0, 1.0, 1.0, 1.0, 9.0], "b": [1.0, 1.0, 1.0, 2.0, 1.0]}
    (a, spread), (b, same) = shares_by_step(samples).values()
    assert (a, b, spread, same) == (0.5, 0.5, 0.0, 0.0)  # two of five runs were disturbed
    assert shares_by_step({}) == {}
