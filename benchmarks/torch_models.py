"""Whole models of PyTorch, compiled, beside PyTorch itself: the same outputs, and in which time.

``python -m benchmarks.torch_models resnet18 mlp`` exports, imports, compiles and runs each model
with random weights, compares the outputs with those of PyTorch, and prints the seconds of each step
and the times of a run: PyTorch eager, ``torch.compile`` as it is by default (inductor), this
compiled model, and ``torch.compile`` with the backend loopwright, in turns. It needs torch and, for
all but ``bert4`` and ``mlp``, torchvision; weights are drawn, none are fetched.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_models import Array, _alternated
from loopwright import graph
from loopwright.executors import Model
from loopwright.graph.torch_backend import loopwright

VISION = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "squeezenet1_1",
    "efficientnet_b0",
    "vit_b_16",
)
BUILT = ("bert4", "mlp")


def model_of(name: str, batch: int = 1) -> tuple[Any, tuple[Any, ...]]:
    """A model with random weights in the mode of inference, and inputs of it."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    if name == "mlp":
        layers = [
            nn.Linear(784, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        ]
        return nn.Sequential(*layers).eval(), (torch.randn(64 * batch, 784),)
    if name == "bert4":
        layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return model.eval(), (torch.randn(batch, 128, 768),)
    import torchvision.models

    model = getattr(torchvision.models, name)(weights=None)
    if name == "vit_b_16":  # its last layer is zero before training, and so were its outputs
        nn.init.normal_(model.heads.head.weight, std=0.02)
    return model.eval(), (torch.randn(batch, 3, 224, 224),)


def measured(
    name: str,
    threads: int,
    batch: int,
    seconds: float,
    others: Sequence[str],
    saved: Path | None = None,
) -> dict[str, Any]:
    """A model compiled and compared; seconds of each step, milliseconds of a run of each."""
    import torch

    torch.set_num_threads(threads)
    torch._dynamo.reset()
    model, inputs = model_of(name, batch)
    target = f"llvm -num-threads={threads}"
    row: dict[str, Any] = {"model": name}
    with torch.no_grad():
        compiled = _built(model, inputs, target, row, saved and saved / f"{name}_{batch}.lw")
        begin = time.perf_counter()
        executor = compiled.executor()
        for n, x in enumerate(inputs):
            executor.set_input_zero_copy(n, x.numpy())
        executor.run()
        ready = time.perf_counter()
        wanted = model(*inputs).numpy()
        found = np.asarray(executor.get_output(0))
        row |= {
            "kernels": len(compiled.kernels),
            "fallbacks": len(compiled.host_steps),
            "first_run_s": ready - begin,
            "worst_difference": _difference(found, wanted),
        }
        runs: dict[str, Callable[[], object]] = {"eager": lambda: model(*inputs)}
        if "inductor" in others:
            runs["inductor"] = _compiled(model, inputs, row, "inductor")
        runs["loopwright"] = executor.run
        if "backend" in others:
            backend = {"backend": loopwright, "options": {"target": target}}
            runs["backend"] = _compiled(model, inputs, row, "backend", **backend)
        if seconds:
            times = _alternated(list(runs.values()), seconds)
            found_ms = {n: 1e3 * t for n, t in zip(runs, times, strict=True)}
            row |= {f"{n}_ms": t for n, t in found_ms.items()}
            best = min(t for n, t in found_ms.items() if n in ("eager", "inductor"))
            row["ratio"] = best / found_ms["loopwright"]
    return row


def _built(model: Any, inputs: Any, target: str, row: dict[str, Any], file: Path | None) -> Model:
    """The model compiled, or loaded where a file has it; notes how long that takes."""
    begin = time.perf_counter()
    if file is not None and file.exists():
        loaded = graph.load(file)
        row["load_s"] = time.perf_counter() - begin
        return loaded
    module = graph.from_torch(model, inputs)
    row["import_s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    compiled = graph.compile(module, target)
    row["compile_s"] = time.perf_counter() - begin
    if file is not None:
        compiled.save(file)
    return compiled


def _compiled(
    model: Any, inputs: Any, row: dict[str, Any], name: str, **options: Any
) -> Callable[[], object]:
    """The model by ``torch.compile``; notes how long the first call takes."""
    import torch

    begin = time.perf_counter()
    made = torch.compile(model, **options)
    found = made(*inputs).numpy()
    row[f"{name}_s"] = time.perf_counter() - begin
    row[f"{name}_difference"] = _difference(found, model(*inputs).numpy())
    return lambda: made(*inputs)


def _difference(found: Array, wanted: Array) -> float:
    """The largest difference, as a share of the largest element."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "models", nargs="*", default=["mlp"], help=f"of: {', '.join([*VISION, *BUILT])}"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing; 0 measures nothing")
    parser.add_argument(
        "--others",
        default="inductor,backend",
        help="what is timed beside PyTorch eager and the compiled model",
    )
    parser.add_argument(
        "--saved",
        type=Path,
        help="a folder for compiled models: one that is there is loaded, so that little but the "
        "timing takes time",
    )
    parser.add_argument(
        "--tolerance", type=float, help="the status is 1 where outputs differ by more, relatively"
    )
    options = parser.parse_args(arguments)
    for name in options.models:
        others = options.others.split(",")
        row = measured(name, options.threads, options.batch, options.seconds, others, options.saved)
        parts = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()]
        print(", ".join(parts), flush=True)
        if options.tolerance is not None and not row["worst_difference"] <= options.tolerance:
            sys.exit(f"{name} differs by {row['worst_difference']:.3g}")


if __name__ == "__main__":
    main()
