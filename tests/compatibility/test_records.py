"""Logs of an earlier version are read, written and applied as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import autotvm, graph
from loopwright.history.rebuilding import rebuild
from loopwright.ir.interp.interpreter import interpret
from loopwright.ops import WORKLOADS
from loopwright.records import Log, Record, load
from loopwright.records.line import body_of, parse_line, sealed
from loopwright.task import Task
from tests.compatibility import definitions, write_files
from tests.compatibility.definitions import OPERATORS, TEMPLATES, native
from tests.compatibility.write_files import FILES, unpacked
from tests.kernels import build

HASHES = json.loads((FILES / "hashes.json").read_text())
LOGS = [name for name in HASHES if name.endswith(".log")]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    return {name: unpacked(name, folder) for name in LOGS}


@pytest.fixture(scope="module")
def operators(paths: dict[str, Path]) -> Log:
    return load(paths["operators.log"])


@pytest.mark.parametrize("name", LOGS)
def test_lines_are_read_and_written_byte_for_byte(name: str, paths: dict[str, Path]) -> None:
    log = load(paths[name])
    assert not log.skipped
    assert [record.id for record in log] == HASHES[name]
    lines = paths[name].read_text(encoding="utf-8").removesuffix("\n").split("\n")
    expressions = [e.to_line() for there in log.dags.values() for e in there]
    headers = [sealed(body_of(parse_line(x), "a header")) for x in lines if '{"header"' in x[:9]]
    assert len(headers) == len(log.headers)
    assert sorted(lines) == sorted([*(r.to_line() for r in log), *expressions, *headers])


def test_the_build_of_records_is_made_of_the_same_parts() -> None:
    assert write_files.builds() == HASHES["builds"]


def test_a_record_of_each_operator_is_there(operators: Log) -> None:
    assert set(OPERATORS) >= set(WORKLOADS)
    named = [(r.op, r.kind) for r in operators if r.op in OPERATORS]
    assert sorted(named) == sorted((op, kind) for op in OPERATORS for kind in ("llvm", "opencl"))
    assert len(operators) - len(named) == len(TEMPLATES)


@cache
def task_of(record: Record) -> tuple[str, Task]:
    """The operator of a record, and its task made anew."""
    if record.op in OPERATORS:
        return record.op, lw.create_task(record.op, record.args, lw.Target(dict(record.target)))
    return next((n, task) for n, task in automatic_tasks().items() if task.dag_hash == record.dag)


@cache
def automatic_tasks() -> dict[str, Task]:
    return {name: write_files.automatic(name) for name in TEMPLATES}


def test_operators_have_the_keys_spaces_and_traces_of_their_records(operators: Log) -> None:
    for record in operators:
        _, task = task_of(record)
        assert (task.alias, task.key, task.dag_hash) == (
            record.task,
            record.expression,
            record.dag,
        )
        expression = operators.expression(record)
        assert expression is not None
        config = task.config(record.config)
        schedule, tensors = task.instantiate(config)
        assert task.config_space.hash_of(config) == record.space
        assert schedule.dag.to_json() == expression.dag
        assert schedule.arg_ids(tensors) == expression.arg_ids
        assert schedule.trace_json() == record.trace


def applied(operators: Log, kind: str) -> Iterator[tuple[str, Task, Any, list[Any]]]:
    """Each record of a kind of target, applied with no other record there."""
    for record in operators:
        if record.kind != kind:
            continue
        expression = operators.expression(record)
        assert expression is not None
        name, task = task_of(record)
        lines = [expression.to_line(), record.to_line()]
        history = lw.apply_history_best(lines, any_hardware=True)
        schedule, tensors = history.apply(task)
        choice = history.explain(task)
        assert choice.record == record
        assert choice.match.value != "default"
        assert schedule.trace_json() == record.trace
        yield name, task, schedule, tensors


def arrays(tensors: list[Any]) -> list[Any]:
    """Operands, and an output that holds what no operator gives."""
    rng = np.random.default_rng(0)
    *inputs, out = tensors
    scale = {"float32": 1, "uint8": 99, "int8": 99}
    values = [rng.random(t.static_shape) * scale[t.dtype] for t in inputs]
    return [
        *(x.astype(t.dtype) for x, t in zip(values, inputs, strict=True)),
        np.full(out.static_shape, 99999, out.dtype),
    ]


def right(name: str, inputs: list[Any]) -> Any:
    """What NumPy makes of the operands of an operator."""
    template = WORKLOADS[name].template
    return lw.create_task(template, OPERATORS[name], "llvm").reference(*inputs)


@native
def test_kernels_of_the_records_compute_what_numpy_does(operators: Log) -> None:
    names = []
    for name, task, schedule, tensors in applied(operators, "llvm"):
        *inputs, out = arrays(tensors)
        build(schedule, tensors, task.target)(*inputs, out)
        np.testing.assert_allclose(out, right(name, inputs), rtol=1e-4, atol=1e-4, err_msg=name)
        names.append(name)
    assert sorted(names) == sorted([*OPERATORS, *TEMPLATES])


def test_kernels_for_gpus_compute_what_numpy_does(operators: Log) -> None:
    names = []
    for name, task, schedule, tensors in applied(operators, "opencl"):
        *inputs, out = arrays(tensors)
        with task.target:
            interpret(lw.lower(schedule, tensors), [*inputs, out])
        np.testing.assert_allclose(out, right(name, inputs), rtol=1e-4, atol=1e-4, err_msg=name)
        names.append(name)
    assert sorted(names) == sorted(OPERATORS)


def test_settings_of_passes_are_those_of_the_record(paths: dict[str, Path]) -> None:
    log = load(paths["passes.log"])
    for record in log:
        rebuilt = rebuild(log, record)
        assert rebuilt.passes.to_json() == HASHES["builds"][1][1]
        assert rebuilt.schedule.trace_json() == record.trace
    best = lw.records.best(log)
    assert best is not None
    history = lw.apply_history_best(paths["passes.log"], any_hardware=True, verdicts=False)
    history.apply(lw.create_task("matmul", OPERATORS["matmul"], definitions.CPU))
    assert [choice.record for choice in history.report()] == [best]


def check_model(module: graph.IRModule, log: Path, x: Any, wanted: Any) -> None:
    """The records of a model's kernels are of its tasks, and the model made of them is right."""
    records = load(log).records
    tasks = graph.extract_tasks(module, definitions.CPU, include_simple_tasks=True)
    keys = {t.task.key: t.task for t in tasks}
    assert {r.expression for r in records} <= set(keys)
    assert len({r.task for r in records}) >= 4
    for record in records:
        task = keys[record.expression]
        config = task.config(record.config)
        assert task.alias == record.task
        assert task.config_space.hash_of(config) == record.space
        assert task.instantiate(config)[0].trace_json() == record.trace
    history = lw.apply_history_best(log, any_hardware=True, verdicts=False)
    model = graph.compile(module, definitions.CPU, history=history)
    own = {choice.key: choice.record for choice in history.report()}
    np.testing.assert_allclose(model(x)[0], wanted, rtol=1e-4, atol=1e-5)
    for key in {r.expression for r in records}:
        assert own[key] == lw.records.best([r for r in records if r.expression == key])


@native
def test_records_of_an_onnx_model_apply(paths: dict[str, Path]) -> None:
    pytest.importorskip("onnx")
    stored = (FILES / "images.onnx").read_bytes()
    x = np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype("float32")
    module = graph.from_onnx(stored, shape={"x": x.shape})
    check_model(module, paths["images.log"], x, definitions.images_by_numpy(x))


@native
def test_records_of_a_model_of_pytorch_apply(paths: dict[str, Path]) -> None:
    x = np.random.default_rng(2).standard_normal((3, 8)).astype("float32")
    module = graph.load_json((FILES / "torch_block.json").read_text())
    check_model(module, paths["torch_block.log"], x, definitions.torch_block_by_numpy(x))


def test_pytorch_still_gives_the_tasks_of_the_stored_model() -> None:
    pytest.importorskip("torch")
    stored = graph.load_json((FILES / "torch_block.json").read_text())
    keys = [
        [t.task.key for t in graph.extract_tasks(module, definitions.CPU)]
        for module in (stored, definitions.torch_block())
    ]
    assert keys[0] == keys[1]


def test_lines_of_autotvm_are_read_applied_and_written(tmp_path: Path) -> None:
    path = FILES / "autotvm.log"
    lines = path.read_text().splitlines()
    pairs = list(autotvm.record.load_from_file(path))
    assert [result.error_no for _, result in pairs] == [0, 2]
    written = [autotvm.record.encode(*autotvm.record.decode(line)) for line in lines]
    options = ("-num-threads=1 -mcpu=x86-64-v2", "-mcpu=x86-64-v2 -num-threads=1")
    assert [line.replace(*options[::-1]) for line in written] == lines
    task = lw.create_task("matmul", OPERATORS["matmul"], definitions.CPU)
    history = lw.apply_history_best(path, any_hardware=True)
    schedule, _ = history.apply(task)
    assert history.explain(task).record is not None
    assert schedule.trace_json() == task.instantiate(3)[0].trace_json()
