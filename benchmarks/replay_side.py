"""One side of the process replay: what a source tree makes of programs with traces, and of models.

Run as a script, so that the tree to ask is the one that ``PYTHONPATH`` names. It uses only what
keeps its name from one commit to the next: a DAG and a trace as JSON, `compile_schedule`, and of
models `graph.compile` and `graph.extract_tasks`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopwright import graph
from loopwright.driver import compile_schedule
from loopwright.errors import LoopwrightError
from loopwright.schedule import replay
from loopwright.target import Target
from loopwright.te import Dag


def compile_entry(entry: dict[str, Any]) -> tuple[str, str]:
    """The lowered program as text, and a hash of the object code, of one entry of the set."""
    schedule = replay(Dag.from_json(entry["dag"]), entry["trace"])
    target = Target(entry["target"])
    artifact, sources = compile_schedule(schedule, entry["args"], target, "main")
    text = sources["ir"]
    ir = text if isinstance(text, str) else text()
    if target.kind == "interp":
        return ir, ""
    if target.kind == "c":  # a shared object holds the paths and the time of its compilation
        c = sources["c"]
        return ir, hashlib.sha256((c if isinstance(c, str) else c()).encode()).hexdigest()
    return ir, hashlib.sha256(artifact.objects).hexdigest()


def compile_model(entry: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Trace, program and object code of each kernel of a model."""
    model, target = entry["model"], entry["target"]
    kernels = graph.compile(model, target).kernels
    for task in graph.extract_tasks(model, target, include_simple_tasks=True):
        if task.rank:  # another implementation of a kernel is built, as there are no records
            continue
        schedule, _ = task.task.instantiate(task.task.config_space.default_index)
        trace = "\n".join(json.dumps(step) for step in schedule.trace_json())
        for name in task.kernels:
            ir = kernels[name].get_source("ir")
            code = hashlib.sha256(kernels[name].artifact.objects).hexdigest()
            yield {"name": f"{entry['name']} {name}", "trace": trace, "ir": ir, "code": code}


def results_of(entry: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The results of an entry: one, or one for each kernel of a model."""
    try:
        if "model" in entry:
            yield from compile_model(entry)
            return
        ir, code = compile_entry(entry)
    except LoopwrightError as error:
        ir, code = f"{type(error).__name__}: {error}", "refused"
    yield {"name": entry["name"], "trace": "", "ir": ir, "code": code}


def main(entries: Path, results: Path) -> None:
    """Compile all entries of a file, and write a line for each result."""
    with results.open("w", encoding="utf-8") as out:
        for line in entries.read_text(encoding="utf-8").splitlines():
            for result in results_of(json.loads(line)):
                out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
