"""Write stored files that are missing: ``python -m tests.compatibility.write_files``.

The files are those of a version that users may have run: later ones must read them, so that none is
ever written again. Remove no file, and add one where a format is new. Making all of them takes some
minutes, and needs onnx, PyTorch, a C compiler and an OpenCL device.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import loopwright as lw
from loopwright import autotvm, graph, te
from loopwright.measure import MeasuredSpace, MeasureError
from loopwright.measure.space_file import Point
from loopwright.records import Record, build_hash, load
from loopwright.runtime.profiling import ProfiledCall, Report
from loopwright.task import Task
from tests.compatibility import definitions
from tests.compatibility.definitions import CPU, GPU, OPERATORS, TEMPLATES

FILES = Path(__file__).parent / "files"
WRITERS: dict[str, Callable[[Path], object]] = {}


def writes(name: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Enter a function that writes a file, given its path."""
    return lambda function: WRITERS.setdefault(name, function)


def operator_tasks() -> Iterator[Task]:
    """Each operator on a CPU and a GPU; the expressions of templates with an automatic space."""
    for name, args in OPERATORS.items():
        yield lw.create_task(name, args, CPU)
        yield lw.create_task(name, args, GPU)
        if name in TEMPLATES:
            yield automatic(name)


def automatic(name: str) -> Task:
    """The automatic task of the expression of a template."""
    _, tensors = lw.create_task(name, OPERATORS[name], CPU).expression()
    return lw.create_task(tensors, target=CPU)


def tune(task: Task, log: Path) -> None:
    lw.tuner.RandomTuner(task, seed=1).tune(
        n_trial=4,
        measure_option=lw.measure_option(runner=lw.LocalRunner(number=1, repeat=3)),
        callbacks=[lw.callback.log_to_file(str(log))],
    )


def writes_log(name: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Enter a function that writes a log, given its path; the log is stored compressed."""

    def enter(function: Callable[[Path], object]) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / name
                function(log)
                path.write_bytes(gzip.compress(log.read_bytes(), mtime=0))

        return writes(f"{name}.gz")(write)

    return enter


@writes_log("operators.log")
def write_operators(path: Path) -> None:
    """For each task the expression, and the record of a configuration that is not the default."""
    lines: dict[str, None] = {}
    for number, task in enumerate(operator_tasks()):
        run = path.with_name(f"run_{number}")
        tune(task, run)
        log = load(run)
        default = task.config(task.config_space.default_index).values
        own = (r for r in log if r.usable and not r.phase and not r.same_as)
        others = [r for r in own if r.config != default]
        record = min(others, key=lambda r: (r.checked != "yes", r.median))
        expression = log.expression(record)
        assert expression is not None
        lines |= dict.fromkeys((expression.to_line(), record.to_line()))
    path.write_text("\n".join(lines) + "\n")


@writes_log("passes.log")
def write_passes(path: Path) -> None:
    """A whole run in settings of the passes that are not the default ones."""
    with lw.PassContext(opt_level=3, disabled_pass=["UnrollLoop"]):
        tune(lw.create_task("matmul", OPERATORS["matmul"], CPU), path)


@writes_log("spellings.log")
def write_spellings(path: Path) -> None:
    """Records with numbers, letters and fields that writers of JSON spell in different ways."""
    odd = {"text": 'Zen™ 5 \u2028\n\t"\\\x7f🙂', "empty": ["", [], {}, None, True]}
    numbers = [1e-7, 1e16, 1e22, 0.1, -0.0, 5e-324, 1.0, 2**53 + 1, 2**64, -(2**70)]
    config = {"ü": "a/b", "tile": [-1, 8], "none": None, "flag": False, **odd}
    times = (1e-7, 2.5e-05, 0.1 + 0.2, 1e16, 3.0)
    good = Record("a task", "ö", numbers, {"kind": "llvm"}, config, times, seed=0, ts=1.7e9)
    failure = {"kind": "COMPILE", "text": odd["text"]}
    bad = Record("a task", "ö", [], {"kind": "c"}, {}, (), error=failure, extra={"new": numbers})
    path.write_text("".join(f"{record.to_line()}\n" for record in (good, bad)), encoding="utf-8")


@writes_log("images.log")
def write_images_log(path: Path) -> None:
    lw.tune(images(), CPU, log=path, trials=8, tuner="random", include_simple_tasks=True)


@writes_log("torch_block.log")
def write_torch_block_log(path: Path) -> None:
    lw.tune(definitions.torch_block(), CPU, log=path, trials=6, tuner="random")


def images() -> graph.IRModule:
    return graph.from_onnx(definitions.images(), shape={"x": (1, 2, 4, 4)})


@writes("autotvm.log")
def write_autotvm(path: Path) -> None:
    """A success and a failure as AutoTVM writes them."""
    task = autotvm.task.create("matmul", args=OPERATORS["matmul"][:3], target=CPU)
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(n)) for n in (3, 99)]
    results = [
        autotvm.MeasureResult((0.25, 0.5), 0, 1.5, 1.0e9),
        autotvm.MeasureResult((1e9,), 2, 1.5, 1.0e9),
    ]
    lines = map(autotvm.record.encode, inputs, results)
    path.write_text("".join(f"{line}\n" for line in lines))


def dag_of(tensors: list[te.Tensor]) -> te.Dag:
    dag: te.Dag = te.create_schedule(tensors[-1].op).dag
    return dag


@writes("programs.json")
def write_programs(path: Path) -> None:
    dags = {name: dag_of(program()) for name, program in definitions.PROGRAMS.items()}
    write_json(path, {name: {"hash": dag.hash, "dag": dag.to_json()} for name, dag in dags.items()})


@writes("traces.json")
def write_traces(path: Path) -> None:
    schedules = {name: schedule() for name, schedule in definitions.SCHEDULES.items()}
    write_json(
        path,
        {
            name: {"dag": s.dag.to_json(), "arg_ids": s.arg_ids(tensors), "trace": s.trace_json()}
            for name, (s, tensors) in schedules.items()
        },
    )


@writes("intrinsics.json")
def write_intrinsics(path: Path) -> None:
    intrinsics = {name: intrinsic() for name, intrinsic in definitions.INTRINSICS.items()}
    write_json(path, {name: {"digest": i.digest, **i.to_json()} for name, i in intrinsics.items()})


def write_json(path: Path, entries: dict[str, Any]) -> None:
    """A line for each entry, in the spelling of the formats themselves."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
    path.write_text("{" + ",\n".join(lines) + "}\n")


@writes("every_node.json")
def write_every_node(path: Path) -> None:
    path.write_text(graph.save_json(definitions.every_node()))


@writes("torch_block.json")
def write_torch_block(path: Path) -> None:
    path.write_text(graph.save_json(definitions.torch_block()))


@writes("images.onnx")
def write_onnx(path: Path) -> None:
    path.write_bytes(definitions.images())


@writes("images.lw")
def write_model(path: Path) -> None:
    graph.compile(images(), CPU).save(path)


@writes("batches.lw")
def write_batches(path: Path) -> None:
    """Programs for a batch of 2, and for any."""
    graph.compile(graph.from_onnx(definitions.images()), CPU, batches=(2,)).save(path)


@writes("images.so")
def write_library(path: Path) -> None:
    graph.compile(images(), CPU).export_library(path)


@writes("kernel.o")
def write_kernel(path: Path) -> None:
    lw.build(definitions.product(8, 8, 4), CPU, name="product").save(path)


@writes("kernel.cl")
def write_device_kernel(path: Path) -> None:
    lw.build(definitions.product(8, 8, 4), GPU, name="product").save(path)


@writes("weights.safetensors")
def write_weights(path: Path) -> None:
    arrays = {"kernel": definitions.KERNEL, "on": np.array([True]), "half": np.ones(3, "float16")}
    lw.runtime.save_params(path, arrays)


@writes("space.npz")
def write_space(path: Path) -> None:
    points = {0: Point((3e-3, 2e-3)), 2: Point((1e-3,), dropped=True)}
    failed = Point(error=MeasureError("COMPILE", "no code"))
    task = lw.create_task("matmul", OPERATORS["matmul"], CPU)
    MeasuredSpace(
        task.key, task.name, list(task.args), dict(task.target.canonical), "a hash",
        {**points, 7: failed}, {0: (2e-3, 4e-3)}, {"date": "2026-11-28"},
    ).save(path)  # fmt: skip


@writes("layouts.json")
def write_layouts(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph.tune_layouts(images(), CPU, unpacked("images.log", Path(folder))).save(path)


@writes("report.json")
def write_report(path: Path) -> None:
    copy = ProfiledCall("copy", "cuda(0)", 1e-3, 2, metrics={"stalls": 3})
    calls = (copy, ProfiledCall("product", "cpu(0)", 0.25, nbytes=4096, gflop=3.0))
    path.write_text(Report(calls, 0.5, 2, {"threads": "1"}).json())


@writes("hashes.json")
def write_hashes(path: Path) -> None:
    """Ids of all records, and what `build_hash` makes of one and the same source."""
    ids = {}
    with tempfile.TemporaryDirectory() as folder:
        for stored in sorted(FILES.glob("*.log.gz")):
            log = unpacked(stored.stem, Path(folder))
            ids[log.name] = [record.id for record in load(log)]
    write_json(path, {**ids, "builds": builds()})


def unpacked(name: str, folder: Path) -> Path:
    """A stored log, unpacked into a folder."""
    path = folder / name
    path.write_bytes(gzip.decompress((FILES / f"{name}.gz").read_bytes()))
    return path


def builds() -> list[list[Any]]:
    """The ``build`` of records, were the hash of the sources and all versions those of here."""
    passes = lw.PassContext(opt_level=3, disabled_pass=["UnrollLoop"]).to_json()
    cases = [({"kind": kind}, some) for kind in ("llvm", "cuda") for some in ({}, passes)]
    where = "loopwright.records.provenance"
    with (
        mock.patch(f"{where}._source_hash", return_value="0123456789abcdef"),
        mock.patch(f"{where}.version", return_value="1.0"),
    ):
        return [[target, some, build_hash(target, some)] for target, some in cases]


def main() -> None:
    FILES.mkdir(exist_ok=True)
    for name, write in WRITERS.items():
        if not (FILES / name).exists():
            print(name, flush=True)
            write(FILES / name)


if __name__ == "__main__":
    main()
