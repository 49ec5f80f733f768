"""Whole ONNX models, compiled, beside ONNX Runtime: the same outputs, and in which time.

``python -m benchmarks.onnx_models resnet18 resnet50`` imports, compiles and runs each model with
random weights, compares the outputs with those of ONNX Runtime (of onnx's reference implementation
where that is not installed), and prints the seconds of each step and the times of a run. Models are
those of `BUILT`, made here, and the topologies that come with the package onnx (`LIGHT`), whose
weights are drawn anew: the stored ones are all equal, so that nearly everything would pass. So it
would behind a softmax of large numbers, which is 1 in one place: what it reads is compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_built import bert, mobilenet_v2, resnet18
from loopwright import graph
from loopwright.graph.registry import MAX_ERROR
from loopwright.lowering.context import PassContext

BUILT: dict[str, Callable[[], Any]] = {
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "bert4": bert,
}
LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
Array = np.ndarray[Any, Any]


def light(name: str, seed: int = 0) -> Any:
    """A topology that comes with onnx, with random weights."""
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    rng = np.random.default_rng(seed)
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(n) for n in known[node.input[0]]]
        weight = _drawn(rng, shape).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    # A weight that is an input as well could be given anew in every call: nobody may fold it.
    weights = {w.name for w in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(given)
    model.ir_version = 8
    _without_softmax(model.graph)
    return model


def _without_softmax(graph: Any) -> None:
    """Let a graph that ends in a softmax give what this reads."""
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output[0].name = last.input[0]
        del graph.node[-1]


def _drawn(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Weights that keep what goes through them of one size; factors and variances near 1."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape)
    return rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))


def inputs_of(model: Any, seed: int = 1) -> dict[str, Array]:
    """Random inputs of a model."""
    rng = np.random.default_rng(seed)
    weights = {t.name for t in model.graph.initializer}
    found = {}
    for info in model.graph.input:
        if info.name not in weights:
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            found[info.name] = rng.standard_normal(shape).astype("float32")
    return found


def reference(model: Any, threads: int) -> Callable[[dict[str, Array]], list[Array]]:
    """The model as ONNX Runtime runs it, or onnx itself where that is not installed."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return lambda given: ReferenceEvaluator(model).run(None, given)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda given: session.run(None, given)


#: Runs of one side before the other one's turn, and seconds after which the threads of the side
#: before have gone to sleep: until then they look for work, and take a CPU for that. ONNX Runtime's
#: do so for 60 ms and more.
_TURN, _REST = 5, 0.15


def _alternated(runs: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The median time of a run of each, in turns of some runs each, for so long."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times[-1]:
        for run, found in zip(runs, times, strict=True):
            time.sleep(_REST)
            run()  # what the other one left in caches is not counted
            for _ in range(_TURN):
                begin = time.perf_counter()
                run()
                found.append(time.perf_counter() - begin)
    return [float(np.median(t)) for t in times]


def measured(
    name: str,
    threads: int,
    seconds: float,
    history: str | None = None,
    max_error: float = MAX_ERROR,
) -> dict[str, Any]:
    """A model compiled and compared; seconds of each step, times of a run.

    Args:
        name: of the model.
        threads: of each kernel.
        seconds: of timing; 0 measures nothing.
        history: a log of its tuning.
        max_error: of implementations of operators, as of `loopwright.PassContext`; 0: no Winograd.
    """
    model = BUILT[name]() if name in BUILT else light(name)
    given = inputs_of(model)
    begin = time.perf_counter()
    module = graph.from_onnx(model)
    imported = time.perf_counter()
    with PassContext(config={"max_error": max_error}):
        compiled = graph.compile(module, f"llvm -num-threads={threads}", history)
    built = time.perf_counter()
    executor = compiled.executor()
    executor.run(**given)
    ready = time.perf_counter()
    other = reference(model, threads)
    wanted = other(given)
    worst = 0.0
    for n, b in enumerate(wanted):
        a = executor.get_output(n).numpy()
        worst = float(np.maximum(worst, np.abs(a - b).max() / np.abs(b).max()))  # NaN stays
    row = {
        "model": name,
        "kernels": len(compiled.kernels),
        "steps": len(compiled.planned.program.steps),
        "winograd": sum("winograd" in name for name in compiled.implementations.values()),
        "import_s": imported - begin,
        "compile_s": built - imported,
        "first_run_s": ready - built,
        "worst_difference": worst,
    }
    if seconds:
        own, theirs = _alternated([executor.run, lambda: other(given)], seconds)
        row.update(run_ms=own * 1e3, reference_ms=theirs * 1e3, ratio=theirs / own)
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "models", nargs="*", default=["resnet18"], help=f"of: {', '.join([*BUILT, *LIGHT])}"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing; 0 measures nothing")
    parser.add_argument(
        "--tolerance", type=float, help="the status is 1 where outputs differ by more, relatively"
    )
    parser.add_argument("--history", help="a log of the tuning of the models")
    parser.add_argument(
        "--max-error",
        type=float,
        default=MAX_ERROR,
        help="of implementations of operators: 0 is without Winograd, 1e-4 with F(4x4, 3x3)",
    )
    options = parser.parse_args(arguments)
    for name in options.models:
        row = measured(name, options.threads, options.seconds, options.history, options.max_error)
        parts = [f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()]
        print(", ".join(parts), flush=True)
        if options.tolerance is not None and not row["worst_difference"] <= options.tolerance:
            sys.exit(f"{name} differs by {row['worst_difference']:.3g}")


if __name__ == "__main__":
    main()
