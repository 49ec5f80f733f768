"""Passes keep what a program computes, and do what they are for."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph
from loopwright.errors import GraphError, LowerError, UsageError
from loopwright.graph import op, transform
from tests.unit.graph.random_graphs import SHAPE, functions
from tests.unit.graph.test_programs import _module, _run
from tests.unit.graph.values import drawn

CLEANING = transform.Sequential(
    [
        transform.InferType,
        transform.EliminateCommonSubexpr,
        transform.DeadCodeElimination,
        transform.RemoveUnusedFunctions,
    ]
)


@drawn(functions())
def test_passes_keep_what_random_functions_compute(f: graph.Function) -> None:
    with lw.PassContext(opt_level=3, config={"verify": True}):
        made = CLEANING(_module(f))["main"]
    assert len(graph.post_order(made)) <= len(graph.post_order(f))
    for flag in (False, True):
        np.testing.assert_array_equal(_run(f, flag), _run(made, flag))


@drawn(functions(nodes=16))
def test_fused_random_functions_compute_the_same(f: graph.Function) -> None:
    made = transform.FuseOps(_module(f))
    types = graph.infer_types(made)
    assert types[made["main"].body] == graph.TensorType(SHAPE)
    for flag in (False, True):
        np.testing.assert_array_equal(_run(f, flag), _run(made["main"], flag))
    kernels = _kernels(made)
    assert sum(map(len, kernels)) <= sum(isinstance(e, graph.Call) for e in graph.post_order(f))
    outside = [e for e in graph.post_order(made["main"]) if isinstance(e, graph.Call)]
    inside = {e for k in _functions(made) for e in graph.post_order(k)}
    assert all(isinstance(e.op, graph.Function) for e in outside if e not in inside)


def _functions(module: graph.IRModule) -> list[graph.Function]:
    nodes = graph.post_order(module["main"].body)
    return [e for e in nodes if isinstance(e, graph.Function) and e.primitive]


def _kernels(module: graph.IRModule) -> list[list[str]]:
    """The operators of each function of one kernel."""
    return [
        [e.op.name for e in graph.post_order(k) if isinstance(e, graph.Call)]  # type: ignore[attr-defined]
        for k in _functions(module)
    ]


def _fused(e: graph.Expr) -> list[list[str]]:
    return _kernels(transform.FuseOps(_module(e)))


IMAGE = graph.var("x", (1, 4, 8, 8))
WEIGHT = graph.const(np.ones((4, 4, 3, 3), "float32"))


def _conv(x: graph.Expr) -> graph.Expr:
    return op.nn.conv(x, WEIGHT, padding=1)


def test_what_follows_a_convolution_is_computed_with_it() -> None:
    bias = np.ones(4, "float32")
    y = op.nn.relu(op.nn.bias_add(_conv(IMAGE), bias))
    assert _fused(y) == [["nn.conv", "nn.bias_add", "nn.relu"]]
    # Both ways from the convolution meet again.
    y = _conv(IMAGE)
    assert _fused(op.multiply(op.sigmoid(y), y)) == [["nn.conv", "sigmoid", "multiply"]]


def test_a_function_has_one_anchor() -> None:
    chain = op.nn.relu(_conv(op.nn.relu(_conv(IMAGE))))
    assert _fused(chain) == [["nn.conv", "nn.relu"], ["nn.conv", "nn.relu"]]
    both = op.add(_conv(IMAGE), _conv(op.tanh(IMAGE)))
    assert sorted(_fused(both)) == [["nn.conv"], ["nn.conv", "add"], ["tanh"]]


def test_what_others_read_too_stays_a_result() -> None:
    y = _conv(IMAGE)
    kept = graph.Tuple((op.nn.relu(y), op.tanh(y)))
    assert _fused(kept) == [["nn.conv"], ["nn.relu"], ["tanh"]]
    kept = graph.Tuple((y, op.nn.relu(y)))
    assert _fused(kept) == [["nn.conv"], ["nn.relu"]]


def test_elementwise_calls_go_into_a_reduction() -> None:
    assert _fused(op.sum(op.exp(op.negative(IMAGE)), axis=1)) == [["negative", "exp", "sum"]]
    assert _fused(op.sum(op.transpose(IMAGE), axis=1)) == [["transpose"], ["sum"]]
    assert _fused(op.nn.softmax(op.exp(op.nn.batch_flatten(IMAGE)))) == [
        ["nn.batch_flatten", "exp"],
        ["nn.softmax"],
    ]


def test_branches_are_fused_each_by_itself() -> None:
    flag = graph.var("flag", (), "bool")
    y = op.tanh(IMAGE)
    e = graph.If(flag, op.exp(op.negative(y)), op.nn.relu(y))
    assert _fused(e) == [["tanh"], ["negative", "exp"], ["nn.relu"]]


def test_scalars_are_written_into_functions() -> None:
    made = transform.FuseOps(
        _module(op.add(op.multiply(IMAGE, 2.0), np.ones((1, 4, 1, 1), "float32")))
    )
    (function,) = _functions(made)
    assert len(function.params) == 2
    assert "multiply(%p0, 2.0)" in str(made)


def test_long_chains_are_cut() -> None:
    e: graph.Expr = IMAGE
    for _ in range(200):
        e = op.tanh(e)
    assert sum(map(len, _fused(e))) == 200
    assert max(map(len, _fused(e))) <= 64


def test_equal_calls_become_one() -> None:
    x = graph.var("x", (4,))
    twice = op.add(op.tanh(x), op.tanh(x))
    made = transform.EliminateCommonSubexpr(_module(twice))["main"].body
    assert made.args[0] is made.args[1]  # type: ignore[attr-defined]
    different = op.add(op.sum(x, keepdims=True), op.sum(x, keepdims=False))
    made = transform.EliminateCommonSubexpr(_module(different))["main"].body
    assert made.args[0] is not made.args[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [0, 1, 5, 16, 1000])
def test_equal_constants_are_shared_and_no_others(size: int) -> None:
    zeros = np.zeros(size, "float32")
    others = [np.where(np.arange(size) == n, 1, zeros).astype("float32") for n in range(size)]
    arrays = [zeros, zeros.view("int32"), *others, zeros.copy(), *others[:7]]
    module = _module(graph.Tuple(tuple(map(graph.const, arrays))))
    fields = transform.EliminateCommonSubexpr(module)["main"].body.fields  # type: ignore[attr-defined]
    assert [f.data.tobytes() for f in fields] == [a.tobytes() for a in arrays]
    assert len({id(f) for f in fields}) == size + 2


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


def _batch_norms() -> tuple[graph.IRModule, np.ndarray]:  # type: ignore[type-arg]
    """A convolution, its normalisation, and one of the input; the input."""
    rng = np.random.default_rng(0)
    x = graph.var("x", (1, 4, 8, 8))

    def normal(e: graph.Expr) -> graph.Expr:
        gamma, beta, mean, variance = (rng.random(4).astype("float32") + 0.5 for _ in range(4))
        return op.nn.batch_norm(e, gamma, beta, mean, variance)

    weight = rng.standard_normal((4, 4, 3, 3)).astype("float32")
    y = op.nn.relu(normal(op.nn.conv(normal(x), weight, padding=1)))
    return _module(y), rng.standard_normal((1, 4, 8, 8)).astype("float32")


def test_normalisations_are_folded_into_weights() -> None:
    module, x = _batch_norms()
    steps = [transform.SimplifyInference, transform.FoldConstant, transform.FoldScaleAxis]
    with lw.PassContext(opt_level=3):
        folded = transform.Sequential(steps)(module)
    # The scale of the input's stays: the convolution adds up what it is multiplied with.
    assert [str(folded).count(f" {name}(") for name in ("multiply", "add", "rsqrt")] == [1, 2, 0]
    with lw.PassContext(opt_level=0):
        plain = graph.compile(module, "llvm -num-threads=1")(x)[0]
    with lw.PassContext(opt_level=3):
        found = graph.compile(module, "llvm -num-threads=1")(x)[0]
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5)


@drawn(functions())
def test_what_is_known_is_computed_beforehand(f: graph.Function) -> None:
    """With constants for its inputs a function without branches is one constant."""
    if any(isinstance(e, (graph.If, graph.Let)) for e in graph.post_order(f)):
        return
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(SHAPE)
    values = dict(zip(f.params, map(graph.const, (x, x[::-1] * 2, True)), strict=True))
    body = graph.substitute(f.body, values)
    cleaning = [transform.DeadCodeElimination, transform.FoldConstant]
    made = transform.Sequential(cleaning)(_module(body))["main"].body
    assert isinstance(made, graph.Constant)
    np.testing.assert_allclose(made.data, np.asarray(_run(f, True)), rtol=1e-5)


def test_a_factor_stays_where_it_is_not_one_for_each_channel() -> None:
    x = graph.var("x", (1, 4, 8, 8))
    weight = np.ones((4, 4, 1, 1), "float32")
    y = op.nn.conv(x, weight)
    rows = np.ones((8, 1), "float32")
    per_channel = np.full((4, 1, 1), 2, "float32")
    for kept in (op.multiply(y, rows), op.add(op.multiply(y, per_channel), y)):
        module = _module(kept)
        assert transform.FoldScaleAxis(module) is module
    made = transform.FoldScaleAxis(_module(op.multiply(per_channel, y)))["main"].body
    assert isinstance(made, graph.Call)
    np.testing.assert_array_equal(made.args[1].data, weight * 2)  # type: ignore[attr-defined]


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
    with pytest.raises(AttributeError, match="__name__"):
        transform.function_pass(opt_level=0)(partial(lambda f: f))
