"""Passes keep what a program computes, and do what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import loopwright as lw
from loopwright import graph
from loopwright.errors import GraphError, LowerError, UsageError
from loopwright.graph import op, transform
from tests.unit.graph.random_graphs import functions
from tests.unit.graph.test_programs import _module, _run

CLEANING = transform.Sequential(
    [
        transform.InferType,
        transform.EliminateCommonSubexpr,
        transform.DeadCodeElimination,
        transform.RemoveUnusedFunctions,
    ]
)


@given(functions())
def test_passes_keep_what_random_functions_compute(f: graph.Function) -> None:
    with lw.PassContext(opt_level=3, config={"verify": True}):
        made = CLEANING(_module(f))["main"]
    assert len(graph.post_order(made)) <= len(graph.post_order(f))
    for flag in (False, True):
        np.testing.assert_array_equal(_run(f, flag), _run(made, flag))


def test_equal_calls_become_one() -> None:
    x = graph.var("x", (4,))
    twice = op.add(op.tanh(x), op.tanh(x))
    made = transform.EliminateCommonSubexpr(_module(twice))["main"].body
    assert made.args[0] is made.args[1]  # type: ignore[attr-defined]
    different = op.add(op.sum(x, keepdims=True), op.sum(x, keepdims=False))
    made = transform.EliminateCommonSubexpr(_module(different))["main"].body
    assert made.args[0] is not made.args[1]  # type: ignore[attr-defined]


def test_bindings_that_nobody_reads_go() -> None:
    x = graph.var("x", (4,))
    a, b = graph.Var("a"), graph.Var("b")
    e = graph.Let(a, op.tanh(x), graph.Let(b, op.exp(a), op.nn.relu(x)))
    made = transform.DeadCodeElimination(_module(e))
    assert graph.structural_equal(made["main"], graph.Function((x,), op.nn.relu(x)))
    part = graph.TupleGetItem(graph.Tuple((op.exp(x), op.tanh(x))), 1)
    made = transform.DeadCodeElimination(_module(part))
    assert graph.structural_equal(made["main"], graph.Function((x,), op.tanh(x)))


def test_functions_that_nobody_calls_go() -> None:
    def calls(name: str) -> graph.Function:
        x = graph.var("x", (4,))
        return graph.Function((x,), graph.Call(graph.GlobalVar(name), (x,)))

    x = graph.var("x", (4,))
    leaf = graph.Function((x,), op.tanh(x))
    module = graph.IRModule({"main": calls("a"), "a": calls("b"), "b": leaf, "c": calls("b")})
    assert list(transform.RemoveUnusedFunctions(module).functions) == ["main", "a", "b"]
    library = graph.IRModule({"c": calls("b"), "b": leaf})
    assert transform.RemoveUnusedFunctions(library) is library


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_batch_normalisation_becomes_a_scale_and_a_shift(axis: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    n = x.shape[axis]
    gamma, beta, mean = (rng.standard_normal(n).astype("float32") for _ in range(3))
    variance = rng.random(n).astype("float32") + 0.5
    params = [gamma, beta, mean, variance]
    call = op.nn.batch_norm(graph.const(x), *params, axis=axis, epsilon=1e-3)
    made = transform.SimplifyInference(_module(call))
    assert "batch_norm" not in str(made)
    assert graph.infer_types(made)[made["main"].body] == graph.TensorType(x.shape)
    broad = [1, 1, 1]
    broad[axis] = n
    g, b, m, v = (p.reshape(broad) for p in params)
    wanted = (x - m) / np.sqrt(v + 1e-3) * g + b
    np.testing.assert_allclose(_numbers(made["main"].body), wanted, rtol=1e-5, atol=1e-6)


def _numbers(e: graph.Expr) -> np.ndarray:  # type: ignore[type-arg]
    """The value of calls of constants by NumPy."""
    if isinstance(e, graph.Constant):
        return e.data
    assert isinstance(e, graph.Call)
    assert isinstance(e.op, graph.OpRef)
    args = [_numbers(a) for a in e.args]
    if e.op.name == "rsqrt":
        return 1 / np.sqrt(args[0])
    return np.asarray(getattr(np, e.op.name)(*args, **e.attrs))


def test_functions_declare_what_they_return() -> None:
    x = graph.var("x", (4, 2))
    made = transform.InferType(_module(op.sum(x, axis=1)))
    assert str(made["main"].result) == "float32[4]"
    assert transform.InferType(made) is made


def test_contexts_choose_the_passes_of_graphs_too() -> None:
    x = graph.var("x", (4,))
    module = _module(op.add(op.tanh(x), op.tanh(x)))
    with lw.PassContext(disabled_pass=["EliminateCommonSubexpr"]) as context:
        assert CLEANING(module)["main"].body.args[0] is not CLEANING(module)["main"].body.args[1]  # type: ignore[attr-defined]
        assert context.to_json() == {}
    with lw.PassContext(opt_level=1):
        assert str(CLEANING(module)).count("tanh") == 2
    with lw.PassContext(opt_level=2):
        assert str(CLEANING(module)).count("tanh") == 1
    with pytest.raises(UsageError, match="did you mean 'InferType'"):
        lw.PassContext(disabled_pass=["InferTyp"])


def test_a_pass_gets_and_gives_modules() -> None:
    x = graph.var("x", (4,))
    with pytest.raises(LowerError, match="takes a IRModule"):
        transform.InferType(x)

    @transform.module_pass(opt_level=0, name="test/breaks")
    def breaks(module: graph.IRModule) -> graph.IRModule:
        return graph.IRModule.from_expr(op.add(x, graph.const(np.zeros(3))))

    with lw.PassContext(config={"verify": True}), pytest.raises(GraphError, match="test/breaks"):
        breaks(_module(x))
    with pytest.raises(UsageError, match="is a pass of loopwright"):
        transform.module_pass(opt_level=0, name="InferType")(lambda module: module)
