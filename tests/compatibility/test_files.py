"""Programs, traces, models and compiled code of an earlier version are read as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.ir.interp.interpreter import interpret
from loopwright.measure import load_space
from loopwright.runtime import Artifact
from loopwright.runtime.params import load_params, save_params
from loopwright.runtime.profiling import Report
from loopwright.schedule import Schedule, replay
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag, read_arg_id
from loopwright.testing.numpy_eval import evaluate
from tests.compatibility import definitions, write_files
from tests.compatibility.definitions import native
from tests.compatibility.write_files import FILES


def entries(name: str) -> dict[str, Any]:
    """The entries of a stored JSON file."""
    return dict(json.loads((FILES / name).read_text()))


def assert_same(value: Any, stored: Any) -> None:
    """Assert that two values are the same text as JSON: a float is no integer, and order counts."""
    assert json.dumps(value) == json.dumps(stored)


def assert_computes(s: Schedule, arg_ids: list[Any]) -> None:
    """Assert that the interpreter computes by a schedule what NumPy does of its DAG."""
    ids = [read_arg_id(a) for a in arg_ids]
    rng = np.random.default_rng(3)
    arrays = []
    for op, _ in ids:
        node = s.dag.ops[op]
        values = rng.integers(-9, 9, node.shape) if "int" in node.dtype else rng.random(node.shape)
        arrays.append(values.astype(node.dtype))
    operands = {op: a for (op, _), a in zip(ids, arrays, strict=True) if s.dag.ops[op].body is None}
    wanted = evaluate(s.dag, {op: a.copy() for op, a in operands.items()})
    interpret(lw.lower(s, [s.tensor(i) for i in ids]), arrays)
    for (op, k), array in zip(ids, arrays, strict=True):
        np.testing.assert_allclose(array, wanted[op if k == 0 else (op, k)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", definitions.PROGRAMS)
def test_programs(name: str) -> None:
    stored = entries("programs.json")[name]
    tensors = definitions.PROGRAMS[name]()
    current, read = write_files.dag_of(tensors), Dag.from_json(stored["dag"])
    for dag in (current, read):
        assert_same(dag.to_json(), stored["dag"])
        assert dag.hash == stored["hash"]
    read = read.bind({"n": 5, "m": 3}) if read.sizes else read
    assert_computes(replay(read, []), [*range(len(tensors) - 1), len(read.ops) - 1])


def test_traces_have_every_primitive() -> None:
    stored = entries("traces.json")
    assert {step[0] for entry in stored.values() for step in entry["trace"]} >= set(Step.registry)


@pytest.mark.parametrize("name", definitions.SCHEDULES)
def test_traces(name: str) -> None:
    stored = entries("traces.json")[name]
    current, tensors = definitions.SCHEDULES[name]()
    read = replay(Dag.from_json(stored["dag"]), stored["trace"])
    for s in (current, read):
        assert_same([s.dag.to_json(), s.trace_json()], [stored["dag"], stored["trace"]])
    assert_same(current.arg_ids(tensors), stored["arg_ids"])
    assert_computes(read, stored["arg_ids"])


@pytest.mark.parametrize("name", definitions.INTRINSICS)
def test_statements_of_intrinsics(name: str) -> None:
    stored = entries("intrinsics.json")[name]
    digest = stored.pop("digest")
    for intrinsic in (definitions.INTRINSICS[name](), te.TensorIntrin.from_json(stored)):
        assert_same(intrinsic.to_json(), stored)
        assert intrinsic.digest == digest


@pytest.mark.parametrize("name", ["every_node.json", "torch_block.json"])
def test_modules_of_graphs(name: str) -> None:
    stored = (FILES / name).read_text()
    assert graph.save_json(graph.load_json(stored)) == stored
    if name == "every_node.json":
        assert graph.save_json(definitions.every_node()) == stored


def images(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 2, 4, 4)).astype("float32")


@native
def test_a_saved_model(tmp_path: Path) -> None:
    model = graph.load(FILES / "images.lw")
    x = images(1)
    np.testing.assert_allclose(model(x)[0], definitions.images_by_numpy(x), rtol=1e-5)
    again = model.save(tmp_path / "again.lw")
    assert again.read_bytes() == (FILES / "images.lw").read_bytes()


@native
def test_a_saved_model_of_any_batch(tmp_path: Path) -> None:
    model = graph.load(FILES / "batches.lw")
    for x in (images(2), images(3)):
        np.testing.assert_allclose(model(x)[0], definitions.images_by_numpy(x), rtol=1e-5)
    again = model.save(tmp_path / "again.lw")
    assert again.read_bytes() == (FILES / "batches.lw").read_bytes()


@native
def test_a_library() -> None:
    x, y = images(1), np.empty((1, 5), "float32")
    lw.load_module(FILES / "images.so")(x, y)
    np.testing.assert_allclose(y, definitions.images_by_numpy(x), rtol=1e-5)


@native
def test_a_kernel(tmp_path: Path) -> None:
    kernel = lw.load_module(FILES / "kernel.o")
    a, b = (np.random.default_rng(4).random(shape, "float32") for shape in ((8, 4), (4, 8)))
    c = np.empty((8, 8), "float32")
    kernel(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    check_saved_again("kernel.o", tmp_path)


def test_a_kernel_for_devices(tmp_path: Path) -> None:
    function = Artifact.load(FILES / "kernel.cl").contents.function("product")
    assert [(a.name, tuple(a.shape)) for a in function.args] == [
        ("A", (8, 4)),
        ("B", (4, 8)),
        ("C", (8, 8)),
    ]
    check_saved_again("kernel.cl", tmp_path)


def check_saved_again(name: str, folder: Path) -> None:
    """Assert that an artifact and its manifest are written as they were."""
    Artifact.load(FILES / name).save(folder / name)
    for file in (name, f"{name}.json"):
        assert (folder / file).read_bytes() == (FILES / file).read_bytes()


@native
def test_layouts_that_were_chosen(tmp_path: Path) -> None:
    stored, x = FILES / "layouts.json", images(1)
    choice = graph.LayoutChoice.load(stored)
    pytest.importorskip("onnx")
    module = graph.from_onnx((FILES / "images.onnx").read_bytes(), shape={"x": x.shape})
    model = graph.compile(module, definitions.CPU, layouts=choice)
    np.testing.assert_allclose(model(x)[0], definitions.images_by_numpy(x), rtol=1e-5)
    assert choice.save(tmp_path / "again").read_bytes() == stored.read_bytes()


def test_a_report_of_times() -> None:
    stored = (FILES / "report.json").read_text()
    report = Report.from_json(stored)
    assert report.json() == stored
    assert [(c.name, c.seconds, c.count, c.gflop) for c in report.calls] == [
        ("copy", 1e-3, 2, None),
        ("product", 0.25, 1, 3.0),
    ]


def test_parameters(tmp_path: Path) -> None:
    stored = FILES / "weights.safetensors"
    arrays = load_params(stored)
    np.testing.assert_array_equal(arrays["kernel"].numpy(), definitions.KERNEL)
    assert save_params(tmp_path / "again", arrays).read_bytes() == stored.read_bytes()


def test_a_measured_space(tmp_path: Path) -> None:
    stored = load_space(FILES / "space.npz")
    task = lw.create_task("matmul", definitions.OPERATORS["matmul"], definitions.CPU)
    assert (stored.task, tuple(stored.args)) == (task.key, task.args)
    assert stored.target == task.target.canonical
    assert [n for _, n in stored.ranking()] == [2, 0]
    assert stored.points[2].dropped
    assert stored.points[7].error is not None
    assert stored.points[7].error.kind == "COMPILE"
    stored.save(tmp_path / "again.npz")
    assert load_space(tmp_path / "again.npz") == stored
