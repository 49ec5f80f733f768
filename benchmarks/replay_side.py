"""One side of the process replay: what one source tree makes of a set of programs and traces.

Run as a script, so that the tree to ask is the one that ``PYTHONPATH`` names. It uses only what
keeps its name from one commit to the next: a DAG and a trace as JSON, and `compile_schedule`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from loopwright.driver.build import compile_schedule
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


def main(entries: Path, results: Path) -> None:
    """Compile all entries of a file, and write a line for each."""
    with results.open("w", encoding="utf-8") as out:
        for line in entries.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            try:
                ir, code = compile_entry(entry)
            except LoopwrightError as error:
                ir, code = f"{type(error).__name__}: {error}", "refused"
            out.write(json.dumps({"name": entry["name"], "ir": ir, "code": code}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
