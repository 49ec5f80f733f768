"""Slightly broken inputs: models, graphs, programs, logs and artifacts, each drawn from a seed.

What reads one may refuse it, by a `LoopwrightError`, and nothing else: any other exception is a
fault, and so is a reader that takes longer than `SECONDS`, or more memory than `memory_limit`
allows for the bytes of the input. One in eight inputs is whole. Nothing of an artifact runs.

The whole inputs are those of ``tests/compatibility/files``, of `fuzzing.random.models`, and for the
kind ``"nodes"`` the cases that come with the package onnx.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import random
import tempfile
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

from fuzzing.random.damage import Json, damage_message, damaged_bytes, damaged_json
from fuzzing.random.expr import Draw
from fuzzing.random.models import random_model
from loopwright.errors import LoopwrightError, TimeLimitError
from loopwright.time_limit import limited

#: CPU time of one input.
SECONDS = 20.0
_FILES = Path(__file__).parents[1] / "tests" / "compatibility" / "files"
_LOGS = ("images", "operators", "passes", "spellings", "torch_block")
#: Verbs of ``loopwright records``, and whether each writes a file.
_VERBS = {
    **dict.fromkeys(("list", "best", "top", "curve", "errors", "importance", "validate"), False),
    **dict.fromkeys(("merge", "distill"), True),
}


@dataclass(frozen=True)
class Input:
    """An input: its bytes, and what reads it."""

    nbytes: int
    read: Callable[[], object]


def memory_limit(nbytes: int) -> int:
    """The bytes that reading an input of ``nbytes`` may hold at one time."""
    return (64 << 20) + 256 * nbytes


def take(kind: str, seed: int) -> str:
    """Read the input of a seed: ``"taken"`` or ``"refused"``; other exceptions pass.

    AssertionError where it takes too long, or too much memory.
    """
    _warm_up(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        item = KINDS[kind](Draw.random(random.Random(seed)))
        tracemalloc.start()
        try:
            end = _taken(item)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    if peak > memory_limit(item.nbytes):
        raise AssertionError(f"{peak >> 20} MiB are taken for an input of {item.nbytes} bytes")
    return end


def _taken(item: Input) -> str:
    try:
        limited(SECONDS, "reading it", item.read)
    except TimeLimitError as error:
        raise AssertionError(str(error)) from error
    except LoopwrightError:
        return "refused"
    return "taken"


@cache
def _warm_up(kind: str) -> None:
    """Import what reads a kind, so that the memory of modules counts for no input."""
    with contextlib.suppress(LoopwrightError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind](Draw(lambda lo, hi: lo)).read()


def _changed(d: Draw, data: Json) -> Json:
    return damaged_json(d, data) if d.chance(88) else data


# ---------------------------------------------------------------- models


def _model(d: Draw) -> Input:
    return _damaged_model(d, random_model(d))


def _node(d: Draw) -> Input:
    return _damaged_model(d, d.pick(_cases()))


@cache
def _cases() -> list[Any]:
    """The models of onnx's own cases of nodes, of which each is mostly one node."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what onnx computes to make them overflows
        return [case.model for case in load_model_tests(kind="node") if case.model is not None]


def _damaged_model(d: Draw, whole: Any) -> Input:
    from onnx import TensorProto

    model = type(whole)()
    model.CopyFrom(whole)
    if d.chance(88):
        damage_message(d, model)
    for tensor in model.graph.initializer if d.chance(5) else ():
        tensor.data_location = TensorProto.EXTERNAL
        place = d.pick(("weights.bin", "../weights.bin", "/dev/zero", ""))
        tensor.external_data.add(key="location", value=place)
        tensor.external_data.add(key="offset", value=d.pick(("0", "-1", "x", str(1 << 62))))
    data = model.SerializeToString()
    form = d.integer(0, 3)
    if form == 3:
        data = damaged_bytes(d, data)
    return Input(len(data), lambda: _use_model(model if form < 2 else data))


def _use_model(model: Any) -> None:
    from loopwright.graph.frontend.onnx import from_onnx

    _use_module(from_onnx(model))


def _use_module(module: Any) -> None:
    from loopwright import graph
    from loopwright.graph.transform.pipeline import prepared

    graph.infer_types(module)
    str(module)
    prepared(module)


# ---------------------------------------------------------------- graphs and programs


def _graph(d: Draw) -> Input:
    from loopwright import graph
    from loopwright.graph.frontend.onnx import from_onnx

    if d.chance(40):
        text = (_FILES / "every_node.json").read_text()
    else:
        text = graph.save_json(from_onnx(random_model(d)))
    changed = json.dumps(_changed(d, json.loads(text)))
    if d.chance(10):
        changed = damaged_bytes(d, changed.encode()).decode(errors="replace")
    return Input(len(changed), lambda: _use_module(graph.load_json(changed)))


def _program(d: Draw) -> Input:
    """An expression with a trace, as records and manifests have them."""
    stored = json.loads((_FILES / "traces.json").read_text())
    entry = _changed(d, stored[d.pick(sorted(stored))])
    return Input(len(json.dumps(entry)), lambda: _replay(entry))


def _replay(entry: Json) -> None:
    from loopwright.codegen.build import lower_trace
    from loopwright.te import Dag

    match entry:
        case {"dag": dag, "arg_ids": list(arg_ids), "trace": list(trace)}:
            read = Dag.from_json(dag)
            str(read)
            lower_trace(read, trace, arg_ids, "main")


# ---------------------------------------------------------------- logs


@cache
def _lines() -> list[bytes]:
    lines = (_FILES / "autotvm.log").read_bytes().splitlines()
    for name in _LOGS:
        lines += gzip.decompress((_FILES / f"{name}.log.gz").read_bytes()).splitlines()
    return [line for line in lines if line.startswith(b"{")]


def _log(d: Draw) -> Input:
    """Some lines of logs; most of the changed ones have the right checksum."""
    from loopwright.records.line import sealed

    lines = []
    for line in (d.pick(_lines()) for _ in range(d.integer(1, 6))):
        if d.chance(15):
            lines.append(damaged_bytes(d, line))
        elif d.chance(50):
            fields = json.loads(line)
            own = fields.pop("sum", None) is not None
            text = json.dumps(_changed(d, fields), sort_keys=True, separators=(",", ":"))
            with contextlib.suppress(LoopwrightError):
                text = sealed(text) if own and d.chance(80) else text
            lines.append(text.encode())
        else:
            lines.append(line)
    data = b"\n".join(lines) + b"\n"
    verb = d.pick(("report", *_VERBS))
    return Input(len(data), lambda: _use_log(data, verb))


def _use_log(data: bytes, verb: str) -> None:
    from loopwright import autotvm
    from loopwright.cli import app
    from loopwright.history import apply_history_best

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        path.write_bytes(data)
        words = [verb] if verb == "report" else ["records", verb]
        out = ["-o", f"{folder}/out"] if _VERBS.get(verb, True) else []
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            with contextlib.suppress(LoopwrightError, click.ClickException):
                app.app.main([*words, str(path), *out], standalone_mode=False, obj=0)
            with contextlib.suppress(LoopwrightError):
                list(autotvm.record.load_from_file(str(path)))
            with apply_history_best(str(path)):
                pass


# ---------------------------------------------------------------- artifacts


def _artifact(d: Draw) -> Input:
    name = d.pick(("images.lw", "batches.lw", "kernel.o", "kernel.cl", "weights.safetensors"))
    data = (_FILES / name).read_bytes()
    if name.endswith(".lw"):
        files = {name: damaged_bytes(d, data) if d.chance(20) else _archive(d, data)}
    elif name.startswith("kernel"):
        files = _kernel(d, name)
    else:
        files = {name: _weights(d, data)}
    return Input(sum(map(len, files.values())), lambda: _use_artifact(files, name))


def _archive(d: Draw, data: bytes) -> bytes:
    """A model file of which a part was changed; the checksums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as parts, zipfile.ZipFile(out, "w") as changed:
        names = parts.namelist()
        chosen = d.pick([n for n in names if not n.endswith(".bin")])
        for name in names:
            part = parts.read(name)
            if name == chosen and name.endswith(".json"):
                part = json.dumps(_changed(d, json.loads(part))).encode()
            elif name == chosen:
                part = _weights(d, part)
            changed.writestr(zipfile.ZipInfo(name), part)
    return out.getvalue()


def _kernel(d: Draw, name: str) -> dict[str, bytes]:
    from loopwright.runtime.artifacts.artifact import _SEAL, manifest_checksum

    objects = (_FILES / name).read_bytes().rpartition(_SEAL)[0]
    manifest = _changed(d, json.loads((_FILES / f"{name}.json").read_bytes()))
    if isinstance(manifest, dict) and d.chance(90):
        manifest["object_sha256"] = hashlib.sha256(objects).hexdigest()
        manifest["sha256"] = manifest_checksum(manifest)
        objects += _SEAL + manifest["sha256"].encode()
    return {name: objects, f"{name}.json": json.dumps(manifest).encode()}


def _weights(d: Draw, data: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(_changed(d, json.loads(data[8 : 8 + length]))).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _use_artifact(files: dict[str, bytes], name: str) -> None:
    from loopwright import runtime
    from loopwright.executors import load_model

    with tempfile.TemporaryDirectory() as folder:
        for part, data in files.items():
            Path(folder, part).write_bytes(data)
        path = Path(folder, name)
        if name.endswith(".lw"):
            str(load_model(path))
        elif name.startswith("kernel"):
            module = runtime.load_module(path)
            str(module)
        else:
            runtime.load_params(path)


#: The inputs by kind.
KINDS: dict[str, Callable[[Draw], Input]] = {
    "models": _model,
    "nodes": _node,
    "graphs": _graph,
    "programs": _program,
    "logs": _log,
    "artifacts": _artifact,
}
