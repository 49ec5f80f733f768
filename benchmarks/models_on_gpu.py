"""Whole models on a GPU beside PyTorch: the same answers, no copies by the host, in which time.

    python -m benchmarks.models_on_gpu --model resnet18 --minutes 8
    python -m benchmarks.models_on_gpu --target opencl --small      without a GPU and PyTorch

A model of PyTorch with random weights is compiled for the device, and reads PyTorch's tensors on
the GPU by DLPack. Its answers are compared with those of PyTorch on the GPU, without TF32, and the
bytes are counted that a run copies between host and device. Then all sides are timed in turns: this
model launched kernel by kernel, and as a graph of CUDA; PyTorch eager, as a graph of CUDA, and by
``torch.compile``. With ``--trials N`` its kernels are tuned first, for half of the time that is
left, and the tuned model is another side. Nothing is fetched. The run ends by itself when its
minutes are over, with what it has by then; the exit code is 1 where answers differ or the host
copied something, 3 where the time was over too early.

Times are wall-clock time: of many runs queued one behind the other until the last has ended
("queued"), and of single runs that are waited for ("single"). The median of all turns, and the
quarter and the three-quarter point.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import onnx_built
from loopwright import graph
from loopwright.runtime.profiling import counted_copies

Array = np.ndarray[Any, Any]
MODELS = ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "vit_b_16", "bert4", "mlp")
#: Seconds of a sample of queued runs, and single runs of one turn.
_SAMPLE_S, _SINGLES = 0.05, 5
_FAILED, _UNFINISHED = 1, 3


class Side:
    """What is timed.

    Attributes:
        name: of the side.
        start: queues a run.
        wait: until all runs have ended.
        queued, single: seconds of a run, a sample a turn.
    """

    def __init__(self, name: str, start: Callable[[], object], wait: Callable[[], object]) -> None:
        self.name, self.start, self.wait = name, start, wait
        self.queued: list[float] = []
        self.single: list[float] = []
        self._number = 1

    def warm(self) -> None:
        """Run a few times, and find how many runs make a sample."""
        for _ in range(3):
            self.start()
        self.wait()
        begin = time.perf_counter()
        for _ in range(5):
            self.start()
        self.wait()
        once = (time.perf_counter() - begin) / 5
        self._number = max(1, round(_SAMPLE_S / max(once, 1e-6)))

    def turn(self) -> None:
        """Take a sample of both kinds; a run that does not count comes first."""
        self.start()
        self.wait()
        begin = time.perf_counter()
        for _ in range(self._number):
            self.start()
        self.wait()
        self.queued.append((time.perf_counter() - begin) / self._number)
        for _ in range(_SINGLES):
            begin = time.perf_counter()
            self.start()
            self.wait()
            self.single.append(time.perf_counter() - begin)

    def told(self) -> dict[str, Any]:
        """Milliseconds: median, and the quarter and the three-quarter point."""
        found: dict[str, Any] = {}
        for kind, times in (("queued", self.queued), ("single", self.single)):
            if times:
                low, mid, high = (float(1e3 * np.percentile(times, q)) for q in (25, 50, 75))
                found[f"{kind}_ms"] = {
                    "median": mid,
                    "from": low,
                    "to": high,
                    "samples": len(times),
                }
        return found


class Run:
    """One run of the script: what it knows so far, and until when it may go on."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.end = time.monotonic() + 60 * options.minutes
        self.found: dict[str, Any] = {"command": sys.argv[1:], "model": options.model}
        self.problems: list[str] = []
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def note(self, **facts: Any) -> None:
        """Write down what is known, on the screen and in the file."""
        for name, value in facts.items():
            print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
        sys.stdout.flush()
        with self._lock:
            self.found |= facts
            self._write()

    def fail(self, text: str) -> None:
        """Note what is wrong; the run goes on."""
        print(f"WRONG: {text}", flush=True)
        self.problems.append(text)
        self.note(problems=list(self.problems))

    def _write(self) -> None:
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.found, indent=1) + "\n")

    def watch(self) -> None:
        """End the process when the time is over, whatever it does then."""

        def over() -> None:
            print("the time is over", flush=True)
            with self._lock:
                self.found["unfinished"] = True
                self._write()
                os._exit(_UNFINISHED)

        timer = threading.Timer(max(self.left, 1), over)
        timer.daemon = True
        timer.start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, compare and time; returns the exit code."""
    run = Run(_parser().parse_args(arguments))
    run.watch()
    device = lw.device(run.options.device or run.options.target.split()[0])
    device.require()
    run.note(target=str(lw.Target(run.options.target)), device=f"{device} {device.device_name}")
    sides = _against_llvm(run, device) if run.options.small else _against_torch(run, device)
    _timed(run, sides)
    return _FAILED if run.problems else 0


# ---------------------------------------------------------------- without PyTorch


def _against_llvm(run: Run, device: lw.Device) -> list[Side]:
    """A tiny model beside the same one on the CPU: the script works, and the times mean nothing."""
    module = graph.from_onnx(onnx_built.resnet18(size=16, width=4, classes=5, stages=1))
    given = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype("float32")
    wanted = lw.compile(module, "llvm")(given)[0]
    x = lw.nd.array(given, device=device)
    sides = []
    for name, model in _models(run, module):
        executor = model.executor(device)
        _compare(run, name, executor, x, lambda a: a.numpy(), wanted)
        executor.set_input_zero_copy(0, x)
        sides.append(Side(name, executor.run, executor.sync))
    return sides


# ---------------------------------------------------------------- with PyTorch


def _against_torch(run: Run, device: lw.Device) -> list[Side]:
    import torch

    from benchmarks.torch_models import model_of

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    network, inputs = model_of(run.options.model, run.options.batch)
    module = _imported(run, network, inputs)
    where = torch.device("cuda", device.device_id)
    network, x = network.to(where), inputs[0].to(where)
    with torch.inference_mode():
        wanted = network(x).cpu().numpy()
    run.note(torch=torch.__version__, gpu=torch.cuda.get_device_name(where))
    sides = []
    for name, model in _models(run, module):
        for graphed in (False, True):
            title = f"{name}, graph" if graphed else name
            try:
                executor = model.executor(device, graph=graphed)
                _compare(run, title, executor, x, _through_dlpack, wanted)
                executor.set_input_zero_copy(0, x)
                sides.append(Side(title, executor.run, executor.sync))
            except lw.LoopwrightError as error:
                traceback.print_exc()
                run.fail(f"{title}: {error}")
    return sides + _torch_sides(run, network, x, wanted)


def _through_dlpack(a: Any) -> Array:
    """An array on the GPU by way of a tensor of PyTorch, which shares its memory."""
    import torch

    tensor = torch.from_dlpack(a)
    if tensor.device.type != "cuda" or tensor.data_ptr() != a.data:
        raise AssertionError(f"DLPack made a copy: {tensor.device}, {tensor.data_ptr():#x}")
    found: Array = tensor.cpu().numpy()  # by PyTorch, outside of what is counted
    return found


def _imported(run: Run, network: Any, inputs: Any) -> Any:
    """The module of a model of PyTorch, by torch.export, or by ONNX where that fails."""
    begin = time.perf_counter()
    try:
        module = graph.from_torch(network, inputs)
        how = "torch.export"
    except Exception as error:  # of a version of PyTorch that is not known
        traceback.print_exc()
        print(f"torch.export: {type(error).__name__}: {error}; by ONNX", flush=True)
        import io

        import torch

        data = io.BytesIO()
        torch.onnx.export(network, inputs, data, dynamo=False, opset_version=17)
        module, how = graph.from_onnx(data.getvalue()), "torch.onnx"
    run.note(imported_by=how, import_s=time.perf_counter() - begin)
    return module


def _torch_sides(run: Run, network: Any, x: Any, wanted: Array) -> list[Side]:
    """PyTorch eager, as a graph, and compiled; what fails is left out and noted."""
    import torch

    def inferring(call: Callable[[], Any]) -> Callable[[], Any]:
        def start() -> Any:
            with torch.inference_mode():
                return call()

        return start

    def eager() -> Callable[[], Any]:
        return inferring(lambda: network(x))

    def graphed() -> Callable[[], Any]:
        recorded, beside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.inference_mode():
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                for _ in range(3):
                    network(x)
            torch.cuda.current_stream().wait_stream(beside)
            with torch.cuda.graph(recorded):
                result = network(x)

        def start() -> Any:
            recorded.replay()
            return result

        return start

    def compiled() -> Callable[[], Any]:
        made = torch.compile(network, mode="max-autotune" if run.options.autotune else None)
        return inferring(lambda: made(x))

    makers = {"PyTorch eager": eager, "PyTorch, graph": graphed}
    if run.left > 150 and not run.options.no_compile:
        makers["torch.compile"] = compiled
    sides = []
    for name, make in makers.items():
        begin = time.perf_counter()
        try:
            start = make()
            found = start().cpu().numpy()
        except Exception as error:  # whatever PyTorch and its compilers raise
            run.note(**{f"left out: {name}": f"{type(error).__name__}: {str(error)[:300]}"})
            continue
        run.note(**{f"{name}, seconds to make": time.perf_counter() - begin})
        run.note(**{f"{name}, difference": _difference(found, wanted)})
        sides.append(Side(name, start, torch.cuda.synchronize))
    return sides


# ---------------------------------------------------------------- ours


def _models(run: Run, module: Any) -> list[tuple[str, Any]]:
    """The model built with defaults, and tuned where that is asked for."""
    begin = time.perf_counter()
    model = graph.compile(module, run.options.target, run.options.history)
    run.note(compile_s=time.perf_counter() - begin, kernels=len(model.kernels))
    run.note(host_steps=[f"{name} by {s.by}" for name, s in model.host_steps.items()])
    if run.options.save:
        run.note(saved=str(model.save(run.options.save)))
    found = [("loopwright", model)]
    if not run.options.trials:
        return found
    log, seconds = run.options.log, run.left / 2
    try:
        summary = lw.tune(
            module, run.options.target, log=log, trials=run.options.trials, timeout=seconds
        )
        run.note(trials=summary.trials, tuned_latency_ms=1e3 * summary.latency, log=log)
        tuned = graph.compile(module, run.options.target, log)
    except lw.LoopwrightError as error:
        run.fail(f"tuning: {error}")
        return found
    print(tuned.report, flush=True)
    return [*found, ("loopwright, tuned", tuned)]


def _compare(
    run: Run, name: str, executor: Any, x: Any, fetched: Callable[[Any], Array], wanted: Array
) -> None:
    """Hold the answers against those that are right, and count what the host copies."""
    executor.set_input(0, x)
    executor.run()
    executor.sync()
    with counted_copies() as copied:
        executor.set_input(0, x)
        executor.run()
        result = executor.get_output(0)
    again = fetched(result)
    worst = _difference(again, wanted)
    run.note(
        **{
            f"{name}, difference": worst,
            f"{name}, bytes copied": {
                "to the device": copied.to_device,
                "to the host": copied.to_host,
                "on the device": copied.on_devices,
            },
        }
    )
    if not worst <= run.options.rtol:
        run.fail(
            f"{name}: outputs differ by {worst:.3g} of the largest, {run.options.rtol} is allowed"
        )
    if copied.to_device or copied.to_host:
        run.fail(f"{name}: a run copied {copied} between host and device")


def _difference(found: Array, wanted: Array) -> float:
    """The largest difference, as a share of the largest element; NaN stays."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _timed(run: Run, sides: list[Side]) -> None:
    """Time all sides in turns, and print a table."""
    for side in sides:
        side.warm()
    for turn in range(run.options.rounds):
        if run.left < 10:
            run.note(rounds_done=turn)
            break
        first = turn % max(len(sides), 1)
        for side in [*sides[first:], *sides[:first]]:
            side.turn()
    run.note(times={side.name: side.told() for side in sides})
    print(f"\n{'':24}{'queued':>12}{'25 % to 75 %':>22}{'single':>12}{'25 % to 75 %':>22}")
    for side in sides:
        told = side.told()
        cells = []
        for kind in ("queued_ms", "single_ms"):
            t = told.get(kind)
            cells += (
                [f"{t['median']:.4g} ms", f"{t['from']:.4g} to {t['to']:.4g}"] if t else ["", ""]
            )
        print(f"{side.name:24}{cells[0]:>12}{cells[1]:>22}{cells[2]:>12}{cells[3]:>22}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models_on_gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=MODELS, default="resnet18", help="[resnet18]")
    parser.add_argument("--batch", type=int, default=1, help="images, or sequences [1]")
    parser.add_argument("--target", default="cuda", help="with options, such as -arch=sm_90 [cuda]")
    parser.add_argument("--device", default="", help="such as cuda:1 [the first]")
    parser.add_argument("--small", action="store_true", help="a tiny model, without PyTorch")
    parser.add_argument("--history", help="a log whose records the model is built from")
    parser.add_argument("--trials", type=int, default=0, help="tune so many candidates first [0]")
    parser.add_argument("--log", default="models_on_gpu.jsonl", help="of the tuning")
    parser.add_argument("--minutes", type=float, default=8.0, help="the end, whatever is done [8]")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side [15]")
    parser.add_argument("--rtol", type=float, default=1e-4, help="of the largest output [1e-4]")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--autotune", action="store_true", help="torch.compile: max-autotune")
    parser.add_argument("--save", help="write the model that was built, such as resnet18.lw")
    parser.add_argument("--json", default="models_on_gpu.json", help="the file of results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
