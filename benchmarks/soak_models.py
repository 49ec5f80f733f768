"""The part of the soak for models: `python -m benchmarks.soak_models --rounds 60`.

Each round makes a small model of other weights, compiles, saves, loads and runs it, on CPUs and
through ``torch.compile`` where PyTorch is installed, and forgets it. It says how far results are
from NumPy and from eager PyTorch at most, and by how much memory, threads and open files grow in
the second half: the first fills caches. The exit code is 1 where they grow, or results are wrong.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.soak import growth
from loopwright import graph
from loopwright.graph import op

#: Growth of memory per 1000 rounds that counts as a leak, in MB; of threads and files any does.
_MOST_MB = 500.0
_TARGET = "llvm -num-threads=2"


def _of_graph(rng: np.random.Generator, folder: Path) -> float:
    """Compile, save, load and run a model; the largest distance from NumPy."""
    rows = int(rng.integers(1, 9))
    w = rng.standard_normal((16, 32), "float32")
    x = rng.standard_normal((rows, 32), "float32")
    dense = op.nn.relu(op.nn.dense(graph.var("x", (rows, 32)), graph.const(w, name="w")))
    model = graph.compile(graph.IRModule.from_expr(dense), _TARGET)
    model.save(folder / "model.lw", force=True)
    loaded = lw.executors.load_model(folder / "model.lw")
    executor = loaded.async_executor(2)
    executor.run(x=x)
    results = [model(x)[0], loaded(x)[0], np.asarray(executor.get_output(0))]
    return max(float(np.abs(r - np.maximum(x @ w.T, 0)).max()) for r in results)


def _of_torch(rng: np.random.Generator) -> float:
    """Compile a module by the backend, run it, and forget it; the distance from eager PyTorch."""
    import torch

    torch.manual_seed(int(rng.integers(1 << 31)))
    module = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.GELU()).eval()
    x = torch.randn(int(rng.integers(1, 9)), 32)
    compiled = torch.compile(module, backend="loopwright")
    with torch.no_grad():
        distance = (compiled(x) - module(x)).abs().max().item()
    torch._dynamo.reset()
    return float(distance)


def _used() -> tuple[int, int, int]:
    """Resident bytes, threads and open files of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    files = len(os.listdir("/proc/self/fd"))
    return pages * os.sysconf("SC_PAGE_SIZE"), threading.active_count(), files


def run(rounds: int, seed: int) -> dict[str, Any]:
    """Hold this part of the soak; returns what it found."""
    rng, used, worst = np.random.default_rng(seed), [], {"graph": 0.0}
    has_torch = importlib.util.find_spec("torch") is not None
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            worst["graph"] = max(worst["graph"], _of_graph(rng, Path(folder)))
            if has_torch:
                worst["torch"] = max(worst.get("torch", 0.0), _of_torch(rng))
            used.append(_used())
    sizes, threads, files = zip(*used, strict=True)
    return {
        "rounds": rounds,
        "with torch.compile": has_torch,
        "largest distance": worst,
        "MB at the end": round(sizes[-1] / 1e6, 1),
        "MB per 1000 rounds": growth(list(enumerate(sizes))),
        "threads and files more than at half time": [
            counts[-1] - counts[rounds // 2] for counts in (threads, files)
        ],
    }


def main() -> int:
    """Hold this part of the soak and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_models", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="at least 4 [60]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = run(max(options.rounds, 4), options.seed)
    for what, value in found.items():
        print(f"{what}: {value}")
    left = max(found["threads and files more than at half time"]) > 0
    leaks = left or found["MB per 1000 rounds"] > _MOST_MB
    return int(leaks or max(found["largest distance"].values()) > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
