"""The debug executor shows what each call of a kernel gives, and how long it takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import ArgumentError, RunError
from loopwright.executors import Program
from loopwright.runtime import load_params
from tests.unit.graph.small_onnx import layers_by_numpy, perceptron

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def model() -> graph.CompiledModel:
    return graph.compile(perceptron(), "llvm -num-threads=1")


def test_each_call_gives_what_numpy_gives(model: graph.CompiledModel) -> None:
    executor = model.debug_executor()
    executor.run(x=X)
    layers = layers_by_numpy(X)
    assert len(executor.nodes) == len(layers)
    assert executor.nodes[0] == executor.nodes[1]  # one kernel, called twice
    np.testing.assert_allclose(executor.get_output(0).numpy(), layers[-1], **CLOSE)
    for n in (2, 0, 3, 1):  # in any order: later calls have written over what earlier ones gave
        np.testing.assert_allclose(executor.debug_get_output(n).numpy(), layers[n], **CLOSE)
    out = np.empty((4, 8), "float32")
    assert executor.debug_get_output(executor.nodes[3], out) is out
    np.testing.assert_allclose(out, layers[3], **CLOSE)


def test_calls_that_there_are_not_are_refused(model: graph.CompiledModel) -> None:
    executor = model.debug_executor()
    twice = executor.nodes[0]
    with pytest.raises(ArgumentError, match=rf"kernel '{twice}' is called 2 times: \[0, 1\]"):
        executor.debug_get_output(twice)
    with pytest.raises(ArgumentError, match="there is no call 4; the model has 4"):
        executor.run_individual_node(4)
    with pytest.raises(ArgumentError, match=r"there is no kernel 'sofmax_2'.*did you mean"):
        executor.debug_get_output("sofmax_2")
    with pytest.raises(ArgumentError, match="has 1 outputs; there is no 1"):
        executor.debug_get_output(0, index=1)
    with pytest.raises(ArgumentError, match=r"call 0 is float32\[4, 16\], got float32\[4\]"):
        executor.debug_get_output(0, np.empty(4, "float32"))
    with pytest.raises(ArgumentError, match="give a whole number above zero"):
        executor.profile(0)


def test_times_of_calls(model: graph.CompiledModel) -> None:
    executor = model.debug_executor()
    executor.set_input("x", X)
    found = executor.run_individual(number=3, repeat=2)
    assert [len(r.results) for r in found] == [2] * 4
    assert all(r.min > 0 for r in found)
    one = executor.run_individual_node(1, number=1, min_repeat_ms=1.0)
    assert len(one.results) == 1
    np.testing.assert_allclose(executor.debug_get_output(3).numpy(), layers_by_numpy(X)[3], **CLOSE)


def test_a_profile_has_a_row_for_each_call(model: graph.CompiledModel) -> None:
    executor = model.debug_executor()
    report = executor.profile(5, x=X)
    assert [call.name for call in report.calls] == list(executor.nodes)
    assert {call.count for call in report.calls} == {5}
    assert 0 < report.seconds <= report.wall_seconds
    nbytes = 4 * (4 * 16 + 16 * 16 + 16 + 4 * 16)  # input, weights, bias, output of the first layer
    assert report.calls[0].nbytes == 5 * nbytes
    assert len(report.rows()) == 3
    np.testing.assert_allclose(executor.get_output(0).numpy(), layers_by_numpy(X)[-1], **CLOSE)


def test_a_run_is_dumped(model: graph.CompiledModel, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dump"
    executor = model.debug_executor(folder)
    executor.run(x=X)
    outputs = load_params(folder / "outputs.safetensors")
    assert set(outputs) == {f"{n}_{name}_0" for n, name in enumerate(executor.nodes)}
    for n, layer in enumerate(layers_by_numpy(X)):
        found = outputs[f"{n}_{executor.nodes[n]}_0"].numpy()
        np.testing.assert_allclose(found, layer, **CLOSE)
    told = Program.from_json(json.loads((folder / "program.json").read_text()))
    assert told == model.program
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == list(executor.nodes)
    assert {e["ph"] for e in events} == {"X"}
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(e["dur"] > 0 for e in events)
    assert all(end <= e["ts"] for end, e in zip(ends, events[1:], strict=False))


def test_a_folder_that_cannot_be_written_is_refused(
    model: graph.CompiledModel, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        model.debug_executor(tmp_path / "file").run(x=X)
