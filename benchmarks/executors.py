"""What lies between the kernels of a model: each executor, beside the kernels by themselves.

Run it with ``python -m benchmarks.executors [model.onnx | model.lw]...``. Without a model it is a
chain of kernels that compute next to nothing, so that what an executor costs is seen. Samples are
taken in turns; what is printed are medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from loopwright import graph
from loopwright.executors import GraphExecutor, Model, load_model
from loopwright.runtime import time_call

#: Kernels of the chain, and seconds of a sample.
_LENGTH, _SAMPLE_S, _SAMPLES = 50, 0.05, 11


def chain() -> Model:
    """Calls of one kernel, each of which reads what the one before it has made."""
    y: graph.Expr = graph.var("x", (4,))
    for _ in range(_LENGTH):
        y = graph.op.nn.softmax(y)
    return graph.compile(graph.IRModule.from_expr(y), "llvm -num-threads=1")


def runs(model: Model) -> Mapping[str, Callable[[], float]]:
    """For each way of running a model what runs it once, and gives the seconds."""
    rng = np.random.default_rng(0)
    executors: dict[str, GraphExecutor] = {
        "graph": model.executor(),
        "graph, side by side": model.executor(),
        "async": model.async_executor(),
        "async, shared memory": model.async_executor(share_memory=True),
    }
    one = model.aot_executor()
    inputs = [rng.standard_normal(v.shape).astype(v.dtype) for v in one.inputs]
    for executor in (*executors.values(), one):
        for n, x in enumerate(inputs):
            executor.set_input(n, x)
    executors["graph, side by side"].run_side_by_side()
    calls = executors["graph"]._calls

    def one_by_one() -> None:
        for call in calls:
            call()

    found = {name: _timed(executor.run) for name, executor in executors.items()}
    found |= {"one function": _timed(one.run), "a loop in Python": _timed(one_by_one)}
    found["a call of the model"] = _timed(lambda: model(*inputs))
    return {"kernels alone": lambda: sum(time_call(call, 1) for call in calls), **found}


def _timed(run: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    return timed


def measure(ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Median seconds of a run each way, sampled in turns."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    number = max(1, round(_SAMPLE_S / max(ways["graph"](), 1e-9)))
    for _ in range(_SAMPLES):
        for name, run in ways.items():
            run()
            samples[name].append(sum(run() for _ in range(number)) / number)
    return {name: median(found) for name, found in samples.items()}


def lines(name: str, steps: int, seconds: Mapping[str, float]) -> list[str]:
    """The table of a model."""
    kernels = seconds["kernels alone"]
    found = [f"{name}: {steps} calls of kernels"]
    for way, s in seconds.items():
        beside = "" if s == kernels else f"{1e6 * (s - kernels) / steps:8.3f} us a call beside"
        found.append(
            f"  {way:22}{1e3 * s:10.4f} ms {kernels / s:8.1%} in kernels {beside}".rstrip()
        )
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Print a table for each model, or for the chain."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="ONNX models, or files of loopwright build")
    parser.add_argument("--target", default="llvm", help="what ONNX models are compiled for")
    options = parser.parse_args(words)
    models = {Path(m).name: m for m in options.models} or {"a chain": ""}
    for name, file in models.items():
        if not file:
            model: Model = chain()
        else:
            lw = file.endswith(".lw")
            model = load_model(file) if lw else graph.compile(file, options.target)
        print("\n".join(lines(name, len(model.program.steps), measure(runs(model)))), flush=True)


if __name__ == "__main__":
    main()
