"""Process replay: which programs and object files differ between this tree and a commit.

``python -m benchmarks.replay --base HEAD`` takes the operators of the benchmark under several
configurations, random programs under random schedules, and three models, compiles each in this tree
and in a checkout of the commit, and compares the lowered programs (as text) and the object code (as
hashes); of every kernel of a model also the trace that it is built from. A refactoring changes
none. A change of lowering, of fusion or of default schedules shows here what it changed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.onnx_built import bert, mobilenet_v2, resnet18
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
    from fuzzing.fuzz import KINDS, examples

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


def small_models() -> dict[str, Any]:
    """Models of the usual layers, at sizes that compile in seconds: 63 different kernels."""
    return {
        "resnet18": resnet18(size=64, width=16, classes=10),
        "mobilenet_v2": mobilenet_v2(size=64, classes=10),
        "bert": bert(layers=1, tokens=32, width=128, heads=4),
    }


def model_entries(models: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """ONNX models, saved in a folder; each side makes kernels and schedules of them by itself."""
    for name, model in models.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        yield {"name": name, "model": str(path), "target": "llvm -num-threads=2"}


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
        env={**os.environ, "PYTHONPATH": str(tree), "LOOPWRIGHT_CACHE": "0"},
        cwd=tree,
        check=True,
    )
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def differences(
    before: Sequence[dict[str, str]], after: Sequence[dict[str, str]]
) -> list[tuple[str, str]]:
    """Name and explanation of each entry of which the two sides make something else."""
    was, found = {old["name"]: old for old in before}, []
    for new in after:
        old = was.pop(new["name"], None)
        if old is None:
            found.append((new["name"], "new: before, nothing was compiled of this name"))
        elif changed := next((key for key in ("trace", "ir") if old[key] != new[key]), None):
            texts = old[changed].splitlines(), new[changed].splitlines()
            lines = difflib.unified_diff(*texts, "before", "after", n=1, lineterm="")
            found.append((new["name"], "\n".join(lines)))
        elif old["code"] != new["code"]:
            found.append((new["name"], "the same program gives other code"))
    found += [(name, "gone: nothing is compiled of this name") for name in was]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; returns 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (default HEAD)")
    parser.add_argument("--count", type=int, default=150, help="random programs (default 150)")
    parser.add_argument("--show", type=int, default=3, help="differences to print (default 3)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        known = [*operator_entries(), *random_entries(options.count)]
        known += model_entries(small_models(), Path(folder))
        entries = Path(folder) / "entries.jsonl"
        entries.write_text("".join(json.dumps(e) + "\n" for e in known), encoding="utf-8")
        with checkout(options.base) as tree, ThreadPoolExecutor(2) as sides:
            results = Path(folder) / "before.jsonl", Path(folder) / "after.jsonl"
            before, after = sides.map(results_of, (tree, ROOT), (entries, entries), results)
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
