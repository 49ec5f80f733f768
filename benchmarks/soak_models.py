"""The part of the soak for models: `python -m benchmarks.soak_models --rounds 60`.

Each round makes a small model of other weights, compiles, saves, loads and runs it on CPUs, and
forgets it; then as many import a file of ONNX, and as many go through ``torch.compile``, where
these packages are installed. It says how far
results are from NumPy and from eager PyTorch at most, and by how much memory, threads and open
files grow in the second half: the first fills caches. The exit code is 1 where they grow, or
results are wrong.

TorchDynamo keeps the guards of every model that it compiled, with any backend and after a reset:
13 finalizers and 31 lines of stacks a round. So that growth is compared with that of another
process whose rounds use the backend "eager".
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.soak import growth
from loopwright import graph
from loopwright.graph import op

#: Growth of memory per 1000 rounds that counts as a leak, in MB, with PyTorch beyond that of the
#: backend "eager"; of threads and files any does.
_MOST_MB = 150.0
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


def _of_onnx(rng: np.random.Generator, folder: Path) -> float:
    """Import a file of ONNX, compile it, run it, and forget it; the distance from NumPy."""
    import onnx
    from onnx import helper, numpy_helper

    rows, float32 = int(rng.integers(1, 9)), onnx.TensorProto.FLOAT
    w, b = rng.standard_normal((32, 16), "float32"), rng.standard_normal(16, "float32")
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["kept"]),
        helper.make_node("Transpose", ["kept"], ["y"]),
    ]
    x_type = helper.make_tensor_value_info("x", float32, (rows, 32))
    y_type = helper.make_tensor_value_info("y", float32, (16, rows))
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    whole = helper.make_graph(nodes, "soak", [x_type], [y_type], weights)
    onnx.save(helper.make_model(whole), folder / "model.onnx")
    model = graph.compile(graph.from_onnx(folder / "model.onnx"), _TARGET)
    x = rng.standard_normal((rows, 32), "float32")
    return float(np.abs(model(x)[0] - np.maximum(x @ w + b, 0).T).max())


def _of_torch(rng: np.random.Generator, backend: str) -> float:
    """Compile a module by the backend, run it, and forget it; the distance from eager PyTorch."""
    import torch

    torch.manual_seed(int(rng.integers(1 << 31)))
    module = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.GELU()).eval()
    x = torch.randn(int(rng.integers(1, 9)), 32)
    compiled = torch.compile(module, backend=backend)
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


def _part(rounds: int, one: Callable[[], float]) -> tuple[float, float, list[int]]:
    """The largest distance, the growth of memory, and threads and files more than at half time."""
    worst, used = 0.0, []
    for _ in range(rounds):
        worst = max(worst, one())
        used.append(_used())
    sizes, *counts = zip(*used, strict=True)
    return worst, growth(list(enumerate(sizes))), [c[-1] - c[rounds // 2] for c in counts]


def _of_eager(rounds: int, seed: int) -> float:
    return _part(rounds, partial(_of_torch, np.random.default_rng(seed), "eager"))[1]


def run(rounds: int, seed: int) -> dict[str, Any]:
    """Hold this part of the soak; returns what it found."""
    rng, parts = np.random.default_rng(seed), {}
    with tempfile.TemporaryDirectory() as folder:
        parts["graph"] = _part(rounds, partial(_of_graph, rng, Path(folder)))
        if importlib.util.find_spec("onnx") is not None:
            parts["onnx"] = _part(rounds, partial(_of_onnx, rng, Path(folder)))
    if importlib.util.find_spec("torch") is not None:
        parts["torch"] = _part(rounds, partial(_of_torch, rng, "loopwright"))
    more = zip(*(part[2] for part in parts.values()), strict=True)
    return {
        "rounds": rounds,
        "largest distance": {name: part[0] for name, part in parts.items()},
        "MB at the end": round(_used()[0] / 1e6, 1),
        "MB per 1000 rounds": {name: part[1] for name, part in parts.items()},
        "threads and files more than at half time": list(map(max, more)),
    }


def main() -> int:
    """Hold this part of the soak and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_models", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="at least 4 [60]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rounds = max(options.rounds, 4)
    found = run(rounds, options.seed)
    grown = found["MB per 1000 rounds"]
    most = dict.fromkeys(grown, _MOST_MB)
    if "torch" in grown:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            eager = pool.apply(_of_eager, (rounds, options.seed))
        found["MB per 1000 rounds with eager"] = eager
        most["torch"] += max(eager, 0.0)
    for what, value in found.items():
        print(f"{what}: {value}")
    left = max(found["threads and files more than at half time"]) > 0
    leaks = left or any(grown[name] > most[name] for name in grown)
    return int(leaks or max(found["largest distance"].values()) > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
