"""Models of any batch: against NumPy, and against the model that is compiled for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import ArgumentError, GraphError, UsageError
from loopwright.graph import op
from loopwright.graph.batches import CompiledBatches
from loopwright.graph.op.shapes import quotient
from loopwright.graph.sized import bound, generalised
from loopwright.testing.tuner_contract import FakeMeasurer

TARGET = "llvm -num-threads=2"
Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(3)
WINDOW = _RNG.standard_normal((8, 3, 3, 3)).astype("float32") / 4
LAYER = _RNG.standard_normal((64, 8 * 16)).astype("float32") / 8
BIAS = _RNG.standard_normal(64).astype("float32")


def network(batch: Any) -> graph.IRModule:
    """A convolution, a pool, a flattening, a dense layer and a softmax."""
    x = graph.var("x", (batch, 3, 8, 8))
    y = op.nn.relu(op.nn.conv(x, WINDOW, padding=1))
    y = op.nn.max_pool(y, pool_size=(2, 2), strides=(2, 2))
    y = op.add(op.nn.dense(op.reshape(y, newshape=(0, -1)), LAYER), BIAS)
    return graph.IRModule.from_expr(op.nn.softmax(y))


def by_numpy(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.maximum(np.einsum("nchwij,ocij->nohw", windows, WINDOW), 0)
    y = y.reshape(len(x), 8, 4, 2, 4, 2).max((3, 5)).reshape(len(x), -1) @ LAYER.T + BIAS
    exps = np.exp(y - y.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def images(batch: int) -> Array:
    found: Array = np.random.default_rng(batch).standard_normal((batch, 3, 8, 8))
    return found.astype("float32")


@pytest.fixture(scope="module")
def model() -> CompiledBatches:
    return lw.compile(network(te.size_var("n")), TARGET, batches=(4, 1))


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 9])
def test_every_batch_is_right(model: CompiledBatches, batch: int) -> None:
    np.testing.assert_allclose(model(images(batch))[0], by_numpy(images(batch)), rtol=1e-4)


def test_a_declared_batch_is_the_model_of_that_batch(model: CompiledBatches) -> None:
    alone = lw.compile(network(4), TARGET)
    own = model.models[4]
    assert model.batches == (1, 4)
    assert list(own.kernels) == list(alone.kernels)
    for name, kernel in own.kernels.items():
        assert kernel.artifact.objects == alone.kernels[name].artifact.objects
    np.testing.assert_array_equal(model(images(4))[0], alone(images(4))[0])


def test_the_rest_is_one_program(model: CompiledBatches) -> None:
    assert model.rest is not None
    assert model.report.rest == "one program, whose kernels have the schedules of n 4"
    assert str(model.report).endswith(f"any other n: {model.report.rest}")
    assert model.at(7) is model.at(7)
    assert model.at(7).program.pool_bytes > model.at(2).program.pool_bytes
    executor = model.executor(7)
    executor.run(x=images(7))
    np.testing.assert_allclose(np.asarray(executor.get_output(0)), by_numpy(images(7)), rtol=1e-4)


def test_batches_seen_once_hold_no_memory(model: CompiledBatches) -> None:
    assert model.rest is not None
    for batch in (5, 5, 7, 5):
        x = images(batch)
        np.testing.assert_allclose(model(x)[0], by_numpy(x), rtol=1e-4, atol=1e-5)
        assert [e.inputs[0].shape[0] for e in model.rest.idle] == [batch]


def test_weights_are_kept_once(model: CompiledBatches) -> None:
    """Equal arrays of all programs are one, those that kernels have packed among them."""
    for batch in (1, 4, 7):
        model(images(batch))
    assert model.rest is not None
    sets = [one.constants for one in (*model.models.values(), model.rest)]
    arrays = {id(a): a for one in sets for a in one.values()}
    assert len(arrays) == len({(a.shape, a.tobytes()) for a in arrays.values()})
    given = [
        array
        for batch in (1, 4, 7, 9)
        for callee in model.executor(batch)._placed.callees
        for array in getattr(callee.function, "given", ())
        if isinstance(array, np.ndarray)
    ]
    held = {id(a): a for a in given}
    assert len(held) < len(given)
    assert len(held) == len({(a.shape, a.tobytes()) for a in held.values()})


def test_kernels_of_any_batch_pack_their_weights_once(model: CompiledBatches) -> None:
    """Those do that have the schedule of a kernel which does."""
    assert model.rest is not None
    packs = {name for name, kernel in model.models[4].kernels.items() if kernel.parts() is not None}
    assert packs
    assert {n for n, kernel in model.rest.kernels.items() if kernel.parts() is not None} == packs


def test_inputs_that_disagree_and_batches_that_are_none() -> None:
    n = te.size_var("n")
    x, y = graph.var("x", (n, 4)), graph.var("y", (n, 4))
    model = lw.compile(graph.IRModule.from_expr(op.add(x, y)), TARGET, batches=[2])
    with pytest.raises(ArgumentError, match="the inputs disagree about n: 'x' has 3, 'y' has 2"):
        model(np.ones((3, 4), "float32"), np.ones((2, 4), "float32"))
    with pytest.raises(ArgumentError, match="n is 0; a batch is a whole number from 1"):
        model(np.ones((0, 4), "float32"), np.ones((0, 4), "float32"))
    with pytest.raises(ArgumentError, match=r"expected x: float32\[n, 4\], got shape \[4\]"):
        model(np.ones(4, "float32"), np.ones(4, "float32"))
    with pytest.raises(ArgumentError, match=r"the model has 2 inputs \(x, y\), got 1"):
        model(np.ones((2, 4), "float32"))
    with pytest.raises(ArgumentError, match=r"'x' is float32\[3, 4\], got float32\[3, 5\]"):
        model(np.ones((3, 5), "float32"), np.ones((3, 4), "float32"))
    for wrong in (0, -2, True, 1.5):
        with pytest.raises(ArgumentError, match="a batch is a whole number from 1"):
            model.at(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [(), (0,), (1, -8), [True], 8, "18", (1.0,)])
def test_declared_batches_that_are_none(wrong: Any) -> None:
    with pytest.raises(UsageError, match="give whole numbers from 1, such as batches="):
        lw.compile(network(te.size_var("n")), TARGET, batches=wrong)


def test_models_without_one_variable_are_refused() -> None:
    with pytest.raises(GraphError, match=r"every extent of the inputs is a number .*from_onnx"):
        lw.compile(network(4), TARGET, batches=(1, 4))
    n, m = te.size_var("n"), te.size_var("m")
    two = graph.IRModule.from_expr(op.add(graph.var("x", (n, m)), graph.const(1.0)))
    with pytest.raises(GraphError, match=r"the size variables n, m .*give the others numbers"):
        lw.compile(two, TARGET, batches=(1, 4))
    told = graph.IRModule.from_expr(op.nn.relu(graph.var("x", (n * n, 2))))
    with pytest.raises(GraphError, match="no extent of the inputs tells n"):
        lw.compile(told, TARGET, batches=(1, 4))
    with pytest.raises(GraphError, match="a float is no model"):
        lw.compile(1.5, TARGET, batches=(1, 4))  # type: ignore[call-overload]


def test_a_variable_that_stands_elsewhere() -> None:
    """The batch is whatever varies: here the length of sequences, and once more than it."""
    n = te.size_var("length")
    x, w = graph.var("x", (2, n, 8)), _RNG.standard_normal((3, 8)).astype("float32")
    y = graph.var("y", (n * 2 + 1,))
    both = graph.Tuple((op.nn.softmax(op.nn.dense(x, w), axis=1), op.negative(y)))
    model = lw.compile(graph.IRModule.from_expr(both), TARGET, batches=(4,))
    for length in (1, 4, 6):
        a = _RNG.standard_normal((2, length, 8)).astype("float32")
        b = np.arange(2 * length + 1, dtype="float32")
        exps = np.exp(a @ w.T)
        found = model(a, b)
        np.testing.assert_allclose(found[0], exps / exps.sum(1, keepdims=True), rtol=1e-4)
        np.testing.assert_array_equal(found[1], -b)
    with pytest.raises(ArgumentError, match="an extent of 4; no length gives it"):
        model(np.ones((2, 1, 8), "float32"), np.ones(4, "float32"))


def _turned(batch: Any) -> graph.IRModule:
    """The rows in reverse, whose places follow from a batch that is known."""
    x = graph.var("x", (batch, 4))
    end = -(2**31)
    return graph.IRModule.from_expr(op.strided_slice(x, begin=(-1,), end=(end,), strides=(-1,)))


def test_batches_that_no_symbolic_program_serves_are_built_when_they_come(tmp_path: Path) -> None:
    model = lw.compile(_turned(te.size_var("n")), TARGET, batches=(2,))
    assert model.rest is None
    assert "any other n: built when it first comes, and 4 are kept: " in str(model.report)
    assert "a slice of an axis whose extent n is not known" in str(model.report)
    for batch in (2, 3, 5, 3):
        x = _RNG.standard_normal((batch, 4)).astype("float32")
        np.testing.assert_array_equal(model(x)[0], x[::-1])
    assert model.at(3) is model.at(3)
    for batch in range(10, 15):
        model.at(batch)
    assert list(model._built) == [11, 12, 13, 14]
    loaded = graph.load(model.save(tmp_path / "turned.lw"))
    np.testing.assert_array_equal(loaded(np.eye(2, 4, dtype="float32"))[0][0], [0, 1, 0, 0])
    with pytest.raises(ArgumentError, match="n is 3, and this model has programs for 2 alone"):
        loaded(np.ones((3, 4), "float32"))


def test_a_file_keeps_all_programs(model: CompiledBatches, tmp_path: Path) -> None:
    path = model.save(tmp_path / "network.lw")
    loaded = graph.load(path)
    assert isinstance(loaded, lw.runtime.executors.BatchedModel)
    assert repr(loaded) == "<BatchedModel of x: float32[n, 3, 8, 8]: n 1, 4, any other>"
    for batch in (1, 3, 4):
        np.testing.assert_array_equal(loaded(images(batch))[0], model(images(batch))[0])
    alone = model.models[4].save(tmp_path / "alone.lw").stat().st_size
    assert path.stat().st_size < 3 * alone


def test_a_library_is_of_one_declared_batch(model: CompiledBatches, tmp_path: Path) -> None:
    for wrong in (None, 3):
        with pytest.raises(UsageError, match=r"a library is of one n, .*give batch= one of 1, 4"):
            model.export_library(tmp_path / "network.so", batch=wrong)
    path = model.export_library(tmp_path / "network.so", batch=4)
    out = np.empty((4, len(BIAS)), "float32")
    lw.load_module(path)(images(4), out)
    np.testing.assert_allclose(out, by_numpy(images(4)), rtol=1e-4)
    for refused in (model.at(3).aot_executor, lambda: model.at(3).save(tmp_path / "x.lw")):
        with pytest.raises(UsageError, match=r"take every n cannot be .*with this one among its b"):
            refused()


def test_tasks_are_those_of_all_batches() -> None:
    module = network(te.size_var("n"))
    both = graph.extract_tasks(module, TARGET, batches=(1, 4))
    single = [graph.extract_tasks(network(batch), TARGET) for batch in (1, 4)]
    assert {t.task.key for t in both} == {t.task.key for tasks in single for t in tasks}
    assert sum(t.weight for t in both) == sum(t.weight for tasks in single for t in tasks)
    assert {k.rpartition("@")[2] for t in both for k in t.kernels} == {"1", "4"}
    x, w = graph.var("x", (te.size_var("n"), 3)), graph.const(np.ones((64, 64), "float32"))
    fixed = graph.Tuple((op.nn.relu(x), op.nn.softmax(op.nn.dense(graph.var("y", (8, 64)), w))))
    tasks = graph.extract_tasks(graph.IRModule.from_expr(fixed), TARGET, batches=(1, 4))
    assert [t.weight for t in tasks] == [2, 2]
    assert len(tasks[0].kernels) == 2


def test_a_log_of_the_declared_batches_is_applied(tmp_path: Path) -> None:
    n = te.size_var("n")
    y = op.nn.dense(graph.var("x", (n, 32)), _RNG.standard_normal((16, 32)).astype("float32"))
    module, log = graph.IRModule.from_expr(y), str(tmp_path / "model.jsonl")
    fake = {"measure_option": FakeMeasurer(), "tuner": "random"}
    found = lw.tune(module, TARGET, log=log, trials=2, batches=(1, 4), **fake)
    assert [row.weight for row in found.rows] == [1, 1]
    model = lw.compile(module, TARGET, history=log, batches=(1, 4))
    for one in model.models.values():
        assert [c.record is not None for c in one.choices.values()] == [True]
    x = _RNG.standard_normal((3, 32)).astype("float32")
    alone = lw.compile(graph.IRModule.from_expr(op.nn.dense(graph.const(x), y.args[1])), TARGET)
    np.testing.assert_allclose(model(x)[0], alone()[0], rtol=1e-5, atol=1e-6)


KINDS = ("dense", "softmax", "flat", "rows", "halves", "turned", "mean", "add")
SQUARE = np.random.default_rng(1).standard_normal((6, 6)).astype("float32") / 3


@pytest.mark.slow
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2), batch=st.integers(1, 9))
@settings(max_examples=3, deadline=None)
def test_random_networks(kinds: list[str], batch: int) -> None:
    check_chain(kinds, batch)


def test_a_chain_of_all_operators() -> None:
    check_chain(KINDS, 5)


def check_chain(kinds: Sequence[str], batch: int) -> None:
    """Chains of operators, of a declared batch and of another one, are what NumPy makes of them."""
    y: graph.Expr = graph.var("x", (te.size_var("n"), 4, 6))
    for kind in kinds:
        y = _next(kind, y)
    module = graph.IRModule.from_expr(y)
    model = lw.compile(module, "llvm -num-threads=1", batches=(2,))
    assert model.rest is not None, model.report.rest
    for size in (2, batch):
        x = np.random.default_rng(0).standard_normal((size, 4, 6)).astype("float32")
        found, wanted = model(x)[0], x
        for kind in kinds:
            wanted = _next_by_numpy(kind, wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _next(kind: str, y: graph.Expr) -> graph.Expr:
    """An operator, or a few; they take and give (batch, 4, 6)."""
    if kind == "dense":
        return op.nn.dense(y, SQUARE)
    if kind == "softmax":
        return op.nn.softmax(y)
    if kind == "flat":
        return op.reshape(op.nn.relu(op.nn.batch_flatten(y)), newshape=(-1, 4, 6))
    if kind == "rows":
        rows = op.nn.dense(op.reshape(y, newshape=(-1, 6)), SQUARE)
        return op.reshape(rows, newshape=(-1, 4, 6))
    if kind == "halves":
        parts = [op.strided_slice(y, begin=(b,), end=(b + 3,), axes=(2,)) for b in (0, 3)]
        return op.concatenate(*reversed(parts), axis=2)
    if kind == "turned":
        turned = op.transpose(y, axes=(0, 2, 1))
        return op.transpose(op.exp(op.negative(op.abs(turned))), axes=(0, 2, 1))
    if kind == "mean":
        return op.subtract(y, op.mean(y, axis=(1,), keepdims=True))
    return op.add(y, SQUARE[:4])


def _next_by_numpy(kind: str, y: Array) -> Array:
    if kind in ("dense", "rows"):
        return y @ SQUARE.T
    if kind == "softmax":
        exps = np.exp(y - y.max(-1, keepdims=True))
        return exps / exps.sum(-1, keepdims=True)
    if kind == "flat":
        return np.maximum(y, 0)
    if kind == "halves":
        return np.concatenate([y[:, :, 3:], y[:, :, :3]], 2)
    if kind == "turned":
        return np.exp(-np.abs(y))
    return y - y.mean(1, keepdims=True) if kind == "mean" else y + SQUARE[:4]


def _onnx(shape: list[Any], nodes: list[tuple[Any, ...]]) -> Any:
    """A model of an input x and an output y."""
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(kind, reads, [gives], **attrs) for kind, reads, gives, attrs in nodes]
    constants = {"zero": np.int64(0), "rest": np.array([-1], "int64"), "w": LAYER[:, :12].T.copy()}
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    g = helper.make_graph(made, "g", [x], [y], weights)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_onnx_models() -> None:
    """The batch by its name, given or declared; where arithmetic of shapes reads it, without a
    symbolic program."""
    pytest.importorskip("onnx", reason="needs the package onnx")
    flat = [("Flatten", ["x"], "f", {}), ("MatMul", ["f", "w"], "y", {})]
    by_shape: list[tuple[Any, ...]] = [
        ("Shape", ["x"], "s", {}),
        ("Gather", ["s", "zero"], "n", {}),
        ("Unsqueeze", ["n", "axes"], "m", {}),
        ("Concat", ["m", "rest"], "shape", {"axis": 0}),
        ("Reshape", ["x", "shape"], "f", {}),
        ("MatMul", ["f", "w"], "y", {}),
    ]
    by_shape.insert(0, ("Constant", [], "axes", {"value_ints": [0]}))
    for nodes, symbolic in ((flat, True), (by_shape, False)):
        declared = lw.compile(_onnx(["n", 3, 4], nodes), TARGET, batches=(2,))
        assert (declared.rest is not None) == symbolic, declared.report.rest
        for batch in (2, 3):
            x = np.random.default_rng(5).standard_normal((batch, 3, 4)).astype("float32")
            found = declared(x)[0]
            np.testing.assert_allclose(found, x.reshape(batch, 12) @ LAYER[:, :12].T, rtol=1e-4)
    module = graph.from_onnx(_onnx([1, 3, 4], flat), shape={"x": ("n", 3, 4)})
    assert str(module["main"].params[0].type) == "float32[n, 3, 4]"
    with pytest.raises(GraphError, match="every extent of the inputs is a number"):
        lw.compile(_onnx([1, 3, 4], flat), TARGET, batches=(2,))


def test_quotients_of_extents() -> None:
    n, m = te.size_var("n"), te.size_var("m")
    assert quotient((4, 6), (8,)) == 3
    assert quotient((4, 6), (5,)) is None
    assert quotient((4,), (0,)) is None
    assert quotient((n, 4), (n,)) == 4
    assert quotient((n * 4, 6), (n,)) == 24
    assert quotient((n, 6), (3,)).__repr__() == (n * 2).__repr__()
    assert quotient((n, 6), (4,)) is None
    assert quotient((n,), (m,)) is None
    assert quotient((n + 1, 2), (n + 1,)) == 2


def _of_torch(n: int, factor: float = 2.0, rows: int | None = None) -> graph.IRModule:
    """A module of one size alone, as a tracer of numbers gives it."""
    x, y = graph.var("x", (n, 4, 6)), graph.var("y", (2 * n + 1 if rows is None else rows, 8))
    flat = op.reshape(x, newshape=[n * 4, 6])
    dense = op.nn.dense(flat, graph.const(np.ones((8, 6), "float32")))
    back = op.multiply(op.reshape(dense, newshape=[n, 4, 8]), graph.const(np.float32(factor)))
    return graph.IRModule.from_expr(graph.Tuple((back, op.nn.relu(y))))


def test_modules_of_two_sizes_tell_that_of_any() -> None:
    found = generalised(_of_torch(3), _of_torch(5))
    assert found.numbers == (3, 5)
    assert generalised(_of_torch(3), _of_torch(8)).pattern == found.pattern
    assert generalised(_of_torch(3), _of_torch(8, rows=12)).pattern != found.pattern
    model = lw.compile(bound(found.module, found.size, 8), TARGET)
    x, y = np.ones((8, 4, 6), "float32"), np.full((17, 8), -1, "float32")
    np.testing.assert_array_equal(model(x, y)[0], np.full((8, 4, 8), 12))
    np.testing.assert_array_equal(model(x, y)[1], np.zeros((17, 8)))


def test_modules_that_differ_in_more_than_extents_are_refused() -> None:
    others = _of_torch(5, factor=3), _of_torch(5, rows=6), _of_torch(3), network(3)
    for other in others:
        with pytest.raises(GraphError, match="size"):
            generalised(_of_torch(3), other)
