"""Models in int8 and bfloat16 beside float32, and beside ONNX Runtime: how near, and how fast.

``python -m benchmarks.quantized resnet18`` quantises a model of `benchmarks.onnx_built` over random
inputs, compiles it, and prints for inputs that the calibration has not seen the error of the
outputs, relative to their size, and for classes how often the largest is the same one; then the
times of a run in turns. ONNX Runtime's int8 is its static quantisation of the same inputs: QDQ
form, uint8 data, int8 weights with a scale for each channel, the range of all numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.onnx_models import BUILT, Array, _alternated, reference
from loopwright import graph

#: Runs for calibration, and runs for the comparison.
_CALIBRATED, _COMPARED = 8, 32
Run = Callable[[Mapping[str, Array]], Array]


def inputs(model: Any, count: int, seed: int) -> list[dict[str, Array]]:
    """Random inputs of some runs."""
    rng = np.random.default_rng(seed)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    return [
        {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()}
        for _ in range(count)
    ]


def compiled(module: graph.IRModule, threads: int) -> Run:
    """A module as a function of its inputs."""
    executor = graph.compile(module, f"llvm -num-threads={threads}").executor()

    def run(given: Mapping[str, Array]) -> Array:
        executor.run(**given)
        return np.asarray(executor.get_output(0))

    return run


def onnxruntime_int8(model: Any, data: Sequence[Mapping[str, Array]], threads: int) -> Run | None:
    """The model in ONNX Runtime's own int8; None where it is not installed."""
    try:
        from onnxruntime import quantization
    except ImportError:
        return None
    import onnx

    class Reader(quantization.CalibrationDataReader):
        rest: Iterator[Mapping[str, Array]] = iter(data)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.rest, None)

    with tempfile.TemporaryDirectory() as folder:
        source, ready = Path(folder, "float.onnx"), Path(folder, "ready.onnx")
        made = Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantization.quant_pre_process(source, ready)
        quantization.quantize_static(
            ready,
            made,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        run = reference(onnx.load(made), threads)
    return lambda given: run(dict(given))[0]


def told(name: str, run: Run, wanted: Sequence[Array], given: Sequence[Mapping[str, Array]]) -> str:
    """The error of a function and its agreement with another one, in words."""
    found = [run(g) for g in given]
    errors = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, wanted, strict=True)]
    text = f"{name}: relative error {np.mean(errors):.3g}"
    if found[0].ndim > 2:  # no numbers for classes
        return text
    same = [a.argmax() == b.argmax() for a, b in zip(found, wanted, strict=True)]
    return f"{text}, same largest {sum(same)} of {len(same)}"


def measured(name: str, kinds: Sequence[str], threads: int, seconds: float) -> None:
    """Print errors and times of a model."""
    model = BUILT[name]()
    data, given = inputs(model, _CALIBRATED, seed=1), inputs(model, _COMPARED, seed=2)
    module = graph.from_onnx(model)
    exact = compiled(module, threads)
    runs: dict[str, Run] = {"float32": exact}
    for kind in kinds:
        if kind == "bfloat16":
            runs[kind] = compiled(graph.transform.ToMixedPrecision(kind)(module), threads)
        else:
            quantized = graph.quantize(module, data, calibration=cast(Any, kind))
            runs[f"int8 {kind}"] = compiled(quantized, threads)
    plain = reference(model, threads)
    runs["ONNX Runtime float32"] = lambda g: plain(dict(g))[0]
    other = onnxruntime_int8(model, data, threads)
    if other is not None:
        runs["ONNX Runtime int8"] = other
    wanted = [exact(g) for g in given]
    for kind, run in runs.items():
        print(f"{name}, {told(kind, run, wanted, given)}", flush=True)
    if seconds:
        every = [lambda r=run: r(given[0]) for run in runs.values()]
        for kind, taken in zip(runs, _alternated(every, seconds), strict=True):
            print(f"{name}, {kind}: {taken * 1e3:.3f} ms", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print some lines for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["resnet18"], help=f"of: {', '.join(BUILT)}")
    parser.add_argument("--kinds", default="min_max", help="calibrations, and bfloat16; by commas")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing; 0 measures nothing")
    options = parser.parse_args(arguments)
    for name in options.models:
        measured(name, options.kinds.split(","), options.threads, options.seconds)


if __name__ == "__main__":
    main()
