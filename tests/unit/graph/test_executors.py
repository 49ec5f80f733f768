"""Executors: timing, weights that are changed, shared and saved, and the names of outputs."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.executors import Program, Value
from loopwright.executors import callees as sequence
from loopwright.graph import op
from loopwright.graph.ir.module import MAIN, OUTPUT_NAMES
from tests.unit.graph.small_onnx import layers_by_numpy, perceptron

TARGET = "llvm -num-threads=1"
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)


def _filled(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


A, B = _filled(4, 3), _filled(2, 4)


def _two_layers() -> graph.IRModule:
    x = graph.var("x", (2, 3))
    y = op.nn.relu(op.nn.dense(x, graph.const(A, name="a")))
    z = op.nn.dense(y, graph.const(B, name="b"))
    main = graph.Function((x,), graph.Tuple((z, y)), attrs={OUTPUT_NAMES: ("logits", "hidden")})
    return graph.IRModule({MAIN: main})


def _by_numpy(x: Array, a: Array, b: Array) -> Array:
    return np.maximum(x @ a.T, 0) @ b.T


@pytest.fixture(scope="module")
def model() -> graph.CompiledModel:
    return graph.compile(_two_layers(), TARGET)


def test_outputs_are_found_by_their_names(model: graph.CompiledModel) -> None:
    executor, x = model.executor(), _filled(2, 3)
    executor.run(x=x)
    assert executor.get_output_info() == (
        {"logits": (2, 2), "hidden": (2, 4)},
        {"logits": "float32", "hidden": "float32"},
    )
    assert [executor.get_output_index(n) for n in ("hidden", "other")] == [1, -1]
    np.testing.assert_allclose(executor.get_output("logits").numpy(), _by_numpy(x, A, B), rtol=1e-5)
    np.testing.assert_array_equal(
        executor.get_output("hidden").numpy(), executor.get_output(1).numpy()
    )
    with pytest.raises(ArgumentError, match=r"no output 'logit' \(did you mean 'logits'"):
        executor.get_output("logit")
    again = Program.from_json(model.program.to_json())
    assert again.output_names == ("logits", "hidden")


def test_an_onnx_model_keeps_the_names_of_its_outputs() -> None:
    pytest.importorskip("onnx")
    executor = graph.compile(perceptron(), TARGET).executor()
    x = _filled(4, 16)
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output("p").numpy(), layers_by_numpy(x)[-1], rtol=1e-4)


def test_names_of_outputs_are_one_for_each() -> None:
    x = Value("x", (1,), "float32", "input")
    assert Program((x,), (), (0,), (0, 0), 0).output_names == ("output_0", "output_1")
    for names in (("a",), ("a", "a")):
        with pytest.raises(RunError, match="2 outputs, and for them"):
            Program((x,), (), (0,), (0, 0), 0, names)


def test_weights_that_are_changed_are_prepared_again(
    model: graph.CompiledModel, tmp_path: Any
) -> None:
    executor, untouched, x = model.executor(), model.executor(), _filled(2, 3)
    path, b = executor.save_params(tmp_path / "w.safetensors"), _filled(2, 4)
    executor.load_params({"b": b})
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), _by_numpy(x, A, b), rtol=1e-5)
    b[...] = 0  # it was copied
    copied = executor.another()
    copied.run(x=x)
    np.testing.assert_array_equal(copied.get_output(0).numpy(), executor.get_output(0).numpy())
    untouched.run(x=x)
    np.testing.assert_allclose(untouched.get_output(0).numpy(), _by_numpy(x, A, B), rtol=1e-5)
    executor.load_params(path.read_bytes())
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), untouched.get_output(0).numpy())
    untouched.share_params(copied)
    untouched.run(x=x)
    np.testing.assert_array_equal(untouched.get_output(0).numpy(), copied.get_output(0).numpy())


def test_weights_that_do_not_fit_change_nothing(model: graph.CompiledModel) -> None:
    executor, x = model.executor(), _filled(2, 3)
    with pytest.raises(ArgumentError, match=r"'b' is float32\[2, 4\]"):
        executor.load_params({"a": A * 2, "b": B.T})
    with pytest.raises(ArgumentError, match="no weight and no input 'c'"):
        executor.load_params({"a": A * 2, "c": B})
    executor.load_params({"x": x})
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), _by_numpy(x, A, B), rtol=1e-5)
    other = graph.compile(graph.IRModule.from_expr(op.tanh(graph.var("x", (2,)))), TARGET)
    with pytest.raises(ArgumentError, match="another program"):
        executor.share_params(other.executor())


def test_equal_calls_on_equal_weights_are_prepared_once() -> None:
    x, w = graph.var("x", (2, 4)), graph.const(_filled(4, 4), name="w")
    y = op.nn.dense(op.nn.dense(x, w), w)
    executor = graph.compile(graph.IRModule.from_expr(y), TARGET).executor()
    first, second = executor._placed.callees
    assert first.function is second.function


def test_a_benchmark_is_a_sample_for_each_repeat(model: graph.CompiledModel) -> None:
    executor, x = model.executor(), _filled(2, 3)
    ran = executor.benchmark(None, repeat=3, number=2, x=x)
    copied = executor.benchmark(repeat=2, number=1, min_repeat_ms=1, end_to_end=True)
    assert (len(ran.results), len(copied.results)) == (3, 2)
    assert ran.min <= ran.median <= ran.max
    np.testing.assert_array_equal(executor.get_input("x").numpy(), x)
    with pytest.raises(UsageError, match="repeat is 0; it must be at least 1"):
        executor.benchmark(repeat=0)
    with pytest.raises(UsageError, match="has the function 'run', got 'forward'"):
        executor.benchmark(func_name="forward")


def test_inputs_may_be_called_as_parameters_are() -> None:
    key, value = graph.var("key", (2,)), graph.var("value", (2,))
    executor = graph.compile(graph.IRModule.from_expr(op.subtract(key, value)), TARGET).executor()
    executor.run(key=np.full(2, 3, "float32"), value=np.ones(2, "float32"))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), 2)
    executor.set_input("value", np.zeros(2, "float32"))
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), 3)


def test_an_array_that_is_refused_changes_nothing(model: graph.CompiledModel) -> None:
    executor, x = model.executor(), _filled(2, 3)
    executor.run(x=x)
    with pytest.raises(ArgumentError):
        executor.set_input_zero_copy("x", np.asfortranarray(_filled(2, 3)))
    np.testing.assert_array_equal(executor.get_input("x").numpy(), x)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), _by_numpy(x, A, B), rtol=1e-5)


def test_methods_are_found_by_name(model: graph.CompiledModel) -> None:
    executor = model.executor()
    executor["run"](x=np.zeros((2, 3), "float32"))
    assert executor["get_num_outputs"]() == 2
    with pytest.raises(ArgumentError, match=r"no function 'runs' \(did you mean 'run'"):
        executor["runs"]


def test_steps_in_one_piece_of_code_give_what_single_calls_give(
    model: graph.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, found = _filled(2, 3), []
    for loaded in (True, False):
        monkeypatch.setattr(sequence.linker, "is_loaded", lambda known=loaded: known)
        executor = model.executor()
        executor.run(x=x)
        found.append(executor.get_output(0).numpy())
    np.testing.assert_array_equal(*found)


def test_other_arrays_reach_calls_that_were_bound_again(model: graph.CompiledModel) -> None:
    executor, other = model.executor(), _filled(4, 3)
    for a in (A, other):
        if a is other:
            executor.load_params({"a": other})
        for _ in range(2):
            x, out = _filled(2, 3), np.zeros((2, 2), "float32")
            executor.set_input_zero_copy("x", x)
            executor.set_output_zero_copy("logits", out)
            executor.run()
            np.testing.assert_allclose(out, _by_numpy(x, a, B), rtol=1e-5)
    executor.set_input("x", x * 2)
    executor.run()
    np.testing.assert_allclose(out, _by_numpy(x * 2, other, B), rtol=1e-5)


def test_inputs_that_were_one_array_are_bound_apart_again(tmp_path: Path) -> None:
    a, b = (graph.var(name, (2, 3)) for name in "ab")
    executor = graph.compile(graph.IRModule.from_expr(op.subtract(a, b)), TARGET).executor()
    (tmp_path / "zeros").write_bytes(bytes(4096))
    with (tmp_path / "zeros").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        executor.set_input_zero_copy("a", np.frombuffer(mapped, "float32", 6).reshape(2, 3))
        executor.set_input_zero_copy("b", np.frombuffer(mapped, "float32", 6).reshape(2, 3))
        executor.share_params(executor.another())
        x, y = _filled(2, 3), _filled(2, 3)
        executor.set_input_zero_copy("a", x)
        executor.run()
        np.testing.assert_array_equal(executor.get_output(0).numpy(), x)
        executor.set_input_zero_copy("b", y)
    executor.run()  # the file was closed: nothing holds it
    np.testing.assert_array_equal(executor.get_output(0).numpy(), x - y)


def test_other_arrays_reach_calls_that_run_side_by_side() -> None:
    x = graph.var("x", (2, 3))
    module = graph.IRModule.from_expr(graph.Tuple((op.nn.relu(x), op.negative(x))))
    executor = graph.compile(module, TARGET).executor()
    executor.set_input_zero_copy("x", _filled(2, 3))
    assert executor.run_side_by_side(number=1, gain=-1e9)
    for array in (_filled(2, 3), _filled(2, 3)):
        executor.set_input_zero_copy("x", array)
        executor.run()
        np.testing.assert_array_equal(executor.get_output(0).numpy(), np.maximum(array, 0))
        np.testing.assert_array_equal(executor.get_output(1).numpy(), -array)


def test_weights_in_place_count_as_they_are_in_each_run() -> None:
    a, b = A.copy(), B.copy()
    x = graph.var("x", (1, 3))  # one row: nothing is packed
    consts = graph.Constant(a, "a"), graph.Constant(b, "b")
    hidden = op.nn.relu(op.nn.dense(x, consts[0]))
    module = graph.IRModule.from_expr(op.nn.dense(hidden, consts[1]))
    executor = graph.compile(module, TARGET).executor(in_place=["a", "b"])
    given = _filled(1, 3)
    for _ in range(2):
        executor.run(x=given)
        np.testing.assert_allclose(executor.get_output(0), _by_numpy(given, a, b), rtol=1e-5)
        a *= 2
        b -= 1
