"""The ways in which a model can be run, each as a call: our own, and those of the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.end_to_end.files import Subject
from benchmarks.torch_models import model_of
from loopwright import graph
from loopwright.graph.registry import MAX_ERROR
from loopwright.lowering.context import PassContext

Array = npt.NDArray[Any]
#: Ours, by what they are built from; the first of them is what a user gets who tunes nothing.
UNTUNED, UNTUNED_PLAIN = "untuned", "untuned without Winograd"
TUNED, TUNED_PLAIN, FINALISTS = "tuned", "tuned without Winograd", "tuned with finalists"
OURS = (UNTUNED, UNTUNED_PLAIN, TUNED, TUNED_PLAIN, FINALISTS)
#: The others.
RUNTIME, EAGER, INDUCTOR = "ONNX Runtime", "eager", "inductor"
OTHERS = (RUNTIME, EAGER, INDUCTOR)
#: Records of each kernel that take turns inside the model, besides its default.
_FINALISTS = 3


@dataclass
class Side:
    """A way to run a model.

    Attributes:
        name: of `OURS` or `OTHERS`.
        run: runs the model once.
        output: the first output of a run, by the call that follows one.
        prepare_s: seconds until it could be called: reading, compiling, and a first run.
        about: what else is told of it.
    """

    name: str
    run: Callable[[], object]
    output: Callable[[], Array]
    prepare_s: float
    about: dict[str, Any]


def side_of(name: str, subject: Subject, threads: int) -> Side:
    """Prepare one way to run a model.

    Args:
        name: of `OURS` or `OTHERS`.
        subject: the model; its ONNX file and, for what is tuned, its log are there.
        threads: that it runs on.
    """
    make = {RUNTIME: _runtime, EAGER: _eager, INDUCTOR: _inductor}.get(name)
    begin = time.perf_counter()
    run, output, about = make(subject, threads) if make else _ours(name, subject, threads)
    run()
    return Side(name, run, output, time.perf_counter() - begin, about)


_Made = tuple[Callable[[], object], Callable[[], Array], dict[str, Any]]


def compiled(name: str, subject: Subject, threads: int) -> graph.CompiledModel:
    """The model, built in one of our ways."""
    history = subject.log if name in (TUNED, TUNED_PLAIN, FINALISTS) else None
    max_error = 0.0 if name in (UNTUNED_PLAIN, TUNED_PLAIN) else MAX_ERROR
    with PassContext(config={"max_error": max_error}):
        return graph.compile(
            graph.from_onnx(str(subject.onnx)),
            f"llvm -num-threads={threads}",
            history,
            finalists=_FINALISTS if name == FINALISTS else None,
        )


def _ours(name: str, subject: Subject, threads: int) -> _Made:
    model = compiled(name, subject, threads)
    executor = model.executor()
    executor.set_input_zero_copy(0, _input(subject))
    used = model.implementations.values()
    about = {"kernels": len(model.kernels), "winograd": sum("winograd" in n for n in used)}
    if name in (TUNED, TUNED_PLAIN, FINALISTS):
        about["from_records"] = sum(c.record is not None for c in model.choices.values())
    if model.inside is not None:
        about |= {"places": len(model.inside), "changed": len(model.inside.changed)}
    return executor.run, lambda: np.asarray(executor.get_output(0)), about


def _runtime(subject: Subject, threads: int) -> _Made:
    session = session_of(subject, threads)
    given = {session.get_inputs()[0].name: _input(subject)}
    return lambda: session.run(None, given), lambda: session.run(None, given)[0], {}


def session_of(subject: Subject, threads: int) -> Any:
    """The model in ONNX Runtime, without anything of PyTorch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    path, providers = str(subject.onnx), ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers)


def _eager(subject: Subject, threads: int) -> _Made:
    return _torch(subject, threads, lambda model: model)


def _inductor(subject: Subject, threads: int) -> _Made:
    import torch

    return _torch(subject, threads, torch.compile)


def _torch(subject: Subject, threads: int, made: Callable[[Any], Any]) -> _Made:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model, inputs = model_of(subject.name, subject.batch)
    call = made(model)
    return lambda: call(*inputs), lambda: call(*inputs).numpy(), {}


def _input(subject: Subject) -> Array:
    """The input that all sides are given."""
    _, (given,) = model_of(subject.name, subject.batch)
    return np.array(given.numpy())
