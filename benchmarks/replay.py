"""Process replay: which programs and object files differ between this tree and a commit.

``python -m benchmarks.replay --base HEAD`` takes the operators of the benchmark under several
configurations, and random programs under random schedules, compiles each in this tree and in a
checkout of the commit, and compares the lowered programs (as text) and the object code (as hashes).
A refactoring changes none. A change of lowering shows here what it changed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.workloads import CASES, MORE_CASES
from loopwright.errors import InstantiationError
from loopwright.task import ConfigSpace

ROOT = Path(__file__).resolve().parents[1]
#: Configurations of each operator beside the default one.
CONFIGS = 3


def operator_entries() -> Iterator[dict[str, Any]]:
    """The benchmark's operators under the default and some random configurations."""
    from loopwright.cli.workload import find_workload

    for case, target in product((*CASES, *MORE_CASES), ("llvm", "c")):
        task = find_workload(case.op, list(case.params), target, 2).task
        for index in _configurations(task.config_space, CONFIGS if target == "llvm" else 0):
            with suppress(InstantiationError):  # the space has points that its template refuses
                s, tensors = task.instantiate(index)
                yield {
                    "name": f"{case.name} {target} #{index}",
                    "dag": s.dag.to_json(),
                    "trace": s.trace_json(),
                    "args": s.arg_ids(tensors),
                    "target": f"{task.target}",
                }


def _configurations(space: ConfigSpace, count: int) -> list[int]:
    """The default configuration, and ``count`` others that are spread over the space."""
    step = max(1, len(space) // max(1, count))
    return [space.default_index, *(i * step + step // 2 for i in range(count))]


def random_entries(count: int) -> Iterator[dict[str, Any]]:
    """Random programs under random schedules: for CPUs, of symbolic sizes, and for threads."""
    from loopwright.testing.fuzz import KINDS, examples

    for seed in range(count):
        kind = KINDS[seed % len(KINDS)]
        cases, targets, _ = examples(seed, kind)
        if not cases:
            continue
        target = "interp" if kind == "threads" else targets[seed % len(targets)]
        yield {
            "name": f"seed {seed} ({kind}) {target}",
            "dag": cases[0].dag,
            "trace": cases[0].trace,
            "args": cases[0].arg_ids,
            "target": target,
        }


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A checkout of a commit in a folder of its own, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def results_of(tree: Path, entries: Path, results: Path) -> list[dict[str, str]]:
    """What a source tree makes of the entries."""
    side = ROOT / "benchmarks" / "replay_side.py"
    subprocess.run(
        [sys.executable, "-P", str(side), str(entries), str(results)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        check=True,
    )
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def differences(
    before: Sequence[dict[str, str]], after: Sequence[dict[str, str]]
) -> list[tuple[str, str]]:
    """Name and explanation of each entry of which the two sides make something else."""
    found = []
    for old, new in zip(before, after, strict=True):
        if old["ir"] != new["ir"]:
            lines = difflib.unified_diff(
                old["ir"].splitlines(), new["ir"].splitlines(), "before", "after", n=1, lineterm=""
            )
            found.append((new["name"], "\n".join(lines)))
        elif old["code"] != new["code"]:
            found.append((new["name"], "the same program gives other code"))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; returns 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (default HEAD)")
    parser.add_argument("--count", type=int, default=150, help="random programs (default 150)")
    parser.add_argument("--show", type=int, default=3, help="differences to print (default 3)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        entries = Path(folder) / "entries.jsonl"
        known = [*operator_entries(), *random_entries(options.count)]
        entries.write_text("".join(json.dumps(e) + "\n" for e in known), encoding="utf-8")
        with checkout(options.base) as tree:
            before = results_of(tree, entries, Path(folder) / "before.jsonl")
        after = results_of(ROOT, entries, Path(folder) / "after.jsonl")
    found = differences(before, after)
    for name, text in found[: options.show]:
        print(f"== {name}\n{text}")
    for name, _ in found[options.show :]:
        print(f"== {name}")
    refused = sum(r["code"] == "refused" for r in after)
    print(f"{len(after)} programs ({refused} of them refused), {len(found)} differ from before")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
