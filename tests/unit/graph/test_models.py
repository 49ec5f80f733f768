"""Models run: what the executor gives is what NumPy gives, in memory that is shared out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import env, graph
from loopwright.errors import ArgumentError, GraphError, RunError
from loopwright.executors import GraphExecutor, Program, Step, Value
from loopwright.executors.program import share_out
from loopwright.graph import op
from loopwright.graph.plan import plan
from loopwright.graph.transform import FuseOps
from loopwright.runtime import ThreadPool
from tests.unit.graph.random_graphs import functions

TARGET = "llvm -num-threads=1"
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def _filled(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


W1, W2, BIAS = _filled(4, 3, 3, 3), _filled(4, 4, 3, 3) / 6, _filled(4)
DENSE = _filled(5, 4)


def _residual() -> graph.IRModule:
    """A convolution, a block around which its input goes, a mean and a classifier."""
    x = graph.var("image", (1, 3, 6, 6))
    y = op.nn.relu(op.nn.bias_add(op.nn.conv(x, W1, padding=1), BIAS))
    z = op.nn.relu(op.add(op.nn.conv(y, W2, padding=1), y))
    z = op.nn.conv(z, W2, padding=1)
    logits = op.nn.dense(op.mean(z, axis=(2, 3)), DENSE)
    return graph.IRModule.from_expr(graph.Tuple((op.nn.softmax(logits), logits)))


def _convolved(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwrs,ocrs->nohw", windows, w)


def _by_numpy(x: Array) -> list[Array]:
    y = np.maximum(_convolved(x, W1) + BIAS[:, None, None], 0)
    z = np.maximum(_convolved(y, W2) + y, 0)
    logits = _convolved(z, W2).mean((2, 3)) @ DENSE.T
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return [exps / exps.sum(-1, keepdims=True), logits]


@pytest.fixture(scope="module")
def model() -> graph.CompiledModel:
    return graph.compile(_residual(), TARGET)


def test_a_model_computes_what_numpy_computes(model: graph.CompiledModel) -> None:
    executor = model.executor()
    for _ in range(2):  # the second run finds what the first one left in memory
        x = _filled(1, 3, 6, 6)
        executor.run(image=x)
        for n, wanted in enumerate(_by_numpy(x)):
            np.testing.assert_allclose(executor.get_output(n).numpy(), wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(model(x)[n], wanted, rtol=1e-4, atol=1e-5)


def test_calls_follow_each_other_in_one_memory_and_results_stay(
    model: graph.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = []
    fresh = model.executor
    monkeypatch.setattr(model, "executor", lambda *a: executors.append(fresh(*a)) or executors[-1])
    model._idle.clear()
    xs = [_filled(1, 3, 6, 6) for _ in range(40)]
    results = [model(x) for x in xs[:3]]
    with pytest.raises(ArgumentError, match="'image' is float32"):
        model(xs[0][:, :2])
    assert len(executors) == 1  # the one that was refused an input is dropped
    with ThreadPool(4) as threads:
        results += [f.result() for f in [threads.submit(model, x) for x in xs[3:]]]
    assert len(model._idle) <= len(env.usable_cpus())
    for x, result in zip(xs, results, strict=True):
        for output, wanted in zip(result, _by_numpy(x), strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


def test_calls_read_arrays_where_they_lie_or_copy_them(model: graph.CompiledModel) -> None:
    plain = _filled(1, 3, 6, 6)
    constant, off = _filled(1, 3, 6, 6), np.zeros(plain.nbytes + 1, np.uint8)[1:]
    constant.flags.writeable = False
    off[:] = plain.view(np.uint8).reshape(-1)
    backward, transposed = _filled(1, 3, 6, 6)[..., ::-1], _filled(6, 6, 3, 1).T
    unaligned = off.view("float32").reshape(plain.shape)
    other = lw.nd.array(_filled(1, 3, 6, 6))
    for x in (plain, constant, backward, other, transposed, unaligned, plain, backward):
        for output, wanted in zip(model(x), _by_numpy(np.asarray(x)), strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


def test_functions_in_python_may_keep_their_arrays_and_call_the_model() -> None:
    seen: list[np.ndarray[Any, Any]] = []
    x = graph.var("x", (3,))

    def noted(a: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        seen.append(a)
        return [a if a[0] < 0 else a + model(a)[0]]

    host = graph.HostFunction("noted", noted, x.type, "NumPy", "it keeps them")
    call = graph.Call(host, (op.negative(x),))
    model = graph.compile(graph.IRModule.from_expr(call), TARGET)
    for value in (-1.0, -2.0):
        np.testing.assert_array_equal(model(np.full(3, value, "float32"))[0], 0.0)
    np.testing.assert_array_equal([a[0] for a in seen], [1.0, -1.0, 2.0, -2.0])


def test_equal_kernels_are_built_once_and_weights_are_given_beforehand(
    model: graph.CompiledModel,
) -> None:
    program = model.planned.program
    assert len(model.kernels) == len(program.steps) == 6
    assert [program.values[n].name for n in program.inputs] == ["image"]
    assert len(model.planned.constants) == 4  # two convolutions have one weight
    stored = sum(v.nbytes for v in program.values if v.kind == "stored")
    assert program.pool_bytes < stored


def test_methods_of_the_executor(model: graph.CompiledModel) -> None:
    executor = model.executor()
    assert (executor.get_num_inputs(), executor.get_num_outputs()) == (1, 2)
    assert executor.get_input_info() == ({"image": (1, 3, 6, 6)}, {"image": "float32"})
    assert [executor.get_input_index(n) for n in ("image", "other")] == [0, -1]
    x, out = _filled(1, 3, 6, 6), np.empty((1, 5), "float32")
    executor.set_input("image", x)
    np.testing.assert_array_equal(executor.get_input(0).numpy(), x)
    executor.run()
    copied = executor.get_output(1, np.empty((1, 5), "float32"))
    executor.set_output_zero_copy(1, out)
    executor.run()
    np.testing.assert_array_equal(out, copied)
    executor.set_input_zero_copy("image", x)
    x[...] = _filled(1, 3, 6, 6)
    executor.run()
    np.testing.assert_allclose(out, _by_numpy(x)[1], rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused_before_anything_runs(model: graph.CompiledModel) -> None:
    executor = model.executor()
    x = _filled(1, 3, 6, 6)
    executor.run(image=x)
    before = executor.get_output(0).numpy()
    with pytest.raises(ArgumentError, match="did you mean 'image'"):
        executor.run(imag=x)
    with pytest.raises(ArgumentError, match=r"'image' is float32\[1, 3, 6, 6\], got float64"):
        executor.run(image=x.astype("float64"))
    with pytest.raises(ArgumentError, match="there is no input 3"):
        executor.set_input(3, x)
    with pytest.raises(ArgumentError, match="there is no output 2"):
        executor.get_output(2)
    frozen = np.empty((1, 5), "float32")
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="cannot be written"):
        executor.set_output_zero_copy(0, frozen)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), before)
    with pytest.raises(ArgumentError, match=r"the model has 1 inputs \(image\), got 2"):
        model(x, x)
    np.testing.assert_array_equal(model(x[:, :, ::-1, ::-1][:, :, ::-1, ::-1])[0], model(x)[0])
    with pytest.raises(ArgumentError, match="constant"):
        GraphExecutor(model.planned.program, model.kernels, {})
    with pytest.raises(ArgumentError, match="is missing"):
        GraphExecutor(model.planned.program, {}, model.planned.constants)


def test_executors_share_what_is_computed_from_weights(model: graph.CompiledModel) -> None:
    first = model.executor()
    second = first.another()
    images = [_filled(1, 3, 6, 6), _filled(1, 3, 6, 6) * 2]
    for executor, x in zip((first, second), images, strict=True):
        executor.run(image=x)
    for executor, x in zip((first, second), images, strict=True):
        found = executor.get_output(1).numpy()
        np.testing.assert_allclose(found, _by_numpy(x)[1], rtol=1e-4, atol=1e-5)
    callees = zip(first._placed.callees, second._placed.callees, strict=True)
    assert all(a.function is b.function for a, b in callees)


def test_what_a_kernel_takes_as_constant_must_be_one(model: graph.CompiledModel) -> None:
    program = model.planned.program
    values = tuple(replace(v, kind="input") if v.kind == "constant" else v for v in program.values)
    inputs = tuple(n for n, v in enumerate(values) if v.kind == "input")
    changed = Program(values, program.steps, inputs, program.outputs, program.pool_bytes)
    with pytest.raises(ArgumentError, match="as a constant, the program gives value"):
        GraphExecutor(changed, model.kernels, {})


def test_inputs_and_constants_may_be_outputs() -> None:
    x = graph.var("x", (3,))
    weight = graph.const([1.0, 2.0, 3.0], name="w")
    module = graph.IRModule.from_expr(graph.Tuple((x, weight, op.negative(x), x)))
    given = np.array([5, 6, 7], "float32")
    found = graph.compile(module, TARGET)(given)
    for array, wanted in zip(found, (given, weight.data, -given, given), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_branch_has_no_place_in_a_program() -> None:
    x, flag = graph.var("x", (3,)), graph.var("flag", (), "bool")
    with pytest.raises(GraphError, match="If has no place"):
        plan(FuseOps(graph.IRModule.from_expr(graph.If(flag, op.tanh(x), x))))
    with pytest.raises(GraphError, match="run FuseOps before"):
        plan(graph.IRModule.from_expr(op.tanh(x)))


@given(functions(nodes=16))
def test_programs_of_random_functions_fit_together(f: graph.Function) -> None:
    """`Program` refuses a value that is read before it is made, or overwritten too early."""
    if any(isinstance(e, graph.If) for e in graph.post_order(f)):
        return
    planned = plan(FuseOps(graph.IRModule.from_expr(f)))
    assert Program.from_json(json.loads(json.dumps(planned.program.to_json()))) == planned.program
    assert sum(planned.calls.values()) == len(planned.program.steps)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2000)), max_size=12))
def test_values_that_live_at_one_time_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    lives = {n: (min(a, b), max(a, b)) for n, (a, b, _) in enumerate(drawn)}
    sizes = {n: size for n, (_, _, size) in enumerate(drawn)}
    offsets, pool = share_out(sizes, lives)
    for n in sizes:
        assert offsets[n] % 64 == 0
        assert offsets[n] + sizes[n] <= pool
        for m in range(n):
            apart = offsets[n] + sizes[n] <= offsets[m] or offsets[m] + sizes[m] <= offsets[n]
            together = lives[n][0] <= lives[m][1] and lives[m][0] <= lives[n][1]
            assert apart or not together
    at_once = [sum(sizes[n] for n, (a, b) in lives.items() if a <= t <= b) for t in range(10)]
    rounded = sum(-(-max(s, 1) // 64) * 64 for s in sizes.values())
    assert max(at_once) <= pool <= rounded


X, Y = Value("x", (4,), "float32", "input"), Value("y", (4,), "float32", "stored")
Z = Value("z", (4,), "float32", "stored", 64)
BAD = {
    "outside": (
        (X, Value("y", (4,), "float32", "stored", 64)),
        (Step("f", (0, 1)),),
        (0,),
        (1,),
        64,
    ),
    "not aligned": ((X, Value("y", (4,), "float32", "stored", 4)), (), (0,), (), 64),
    "no value": ((X, Y), (Step("f", (0, 7)),), (0,), (1,), 64),
    "not made": ((X, Y, Z), (Step("f", (2, 1)), Step("f", (0, 2))), (0,), (1,), 128),
    "overwritten": (
        (X, Y, Value("z", (4,), "float32", "stored")),
        (Step("f", (0, 1)), Step("f", (0, 2))),
        (0,),
        (1,),
        64,
    ),
    "in place": (
        (X, Y, Value("z", (4,), "float32", "stored")),
        (Step("f", (0, 1)), Step("f", (1, 2))),
        (0,),
        (2,),
        64,
    ),
    "writes an input": ((X, Y), (Step("f", (1, 0)),), (0,), (0,), 64),
    "no input": ((X, Y), (Step("f", (0, 1)),), (), (1,), 64),
    "outputs": ((X, Y), (Step("f", (0, 1), 0),), (0,), (1,), 64),
    "negative": ((Value("x", (-4,), "float32", "input"),), (), (0,), (), 64),
    "huge": ((X, Y), (Step("f", (0, 1)),), (0,), (1,), 1 << 60),
    "kind": ((Value("x", (4,), "float32", "other"),), (), (), (), 64),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_programs_that_do_not_fit_together_are_refused(name: str) -> None:
    with pytest.raises(RunError):
        Program(*BAD[name])


@pytest.mark.parametrize(
    "change", [{"format": "x"}, {"version": 9}, {"values": 3}, {"steps": [[]]}]
)
def test_changed_programs_are_refused(change: dict[str, Any]) -> None:
    data = Program((X, Y), (Step("f", (0, 1)),), (0,), (1,), 64).to_json()
    with pytest.raises(RunError):
        Program.from_json({**data, **change})
