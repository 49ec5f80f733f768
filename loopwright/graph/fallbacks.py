"""Nodes of a model that have no kernel, and their share of runs on random data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import dtypes
from loopwright.executors import DeviceGraphExecutor
from loopwright.history import Choice, Report

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.executors import Model, Program
    from loopwright.graph.ir.expr import HostFunction


def random_inputs(program: Program) -> Mapping[str, npt.NDArray[Any]]:
    """Normal numbers for float inputs; zeros for all else, which are valid as indices."""
    rng = np.random.default_rng(0)
    arrays = {}
    for n in program.inputs:
        v = program.values[n]
        if dtypes.is_float(v.dtype):
            arrays[v.name] = rng.standard_normal(v.shape, np.float32).astype(v.dtype)
        else:
            arrays[v.name] = np.zeros(v.shape, v.dtype)
    return arrays


def seconds_by_step(model: Model, runs: int) -> dict[str, list[float]]:
    """Seconds of all calls of each kernel or Python function, of each of ``runs`` runs.

    The data are random, and a run that does not count goes before. On a CPU calls are timed back to
    back; on a device each is waited for, so that the launch overhead of the host is included.
    """
    inputs = random_inputs(model.program)
    names = [step.kernel for step in model.program.steps]
    samples: dict[str, list[float]] = {name: [] for name in names}
    if model.device_type == "cpu":
        debug = model.debug_executor()
        debug.set_input(None, None, **inputs)
        for _ in range(runs):
            for call in debug.profile(1).rows():
                samples[call.name].append(call.seconds)
        return samples
    executor = model.executor()
    assert isinstance(executor, DeviceGraphExecutor)
    executor.run(**inputs)
    executor.sync()
    for _ in range(runs):
        total = dict.fromkeys(names, 0.0)
        for name, seconds in zip(names, executor.seconds_of_steps(), strict=True):
            total[name] += seconds
        for name, seconds in total.items():
            samples[name].append(seconds)
    return samples


def shares_by_step(samples: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Share of each step in the time of a run: the median over the runs, and half the distance of
    the quartiles.

    A share is that of one run, so that a machine that changes its clock between runs moves it
    little.
    """
    if not samples:
        return {}
    times = np.array(list(samples.values()))
    low, middle, high = np.quantile(times / times.sum(axis=0), (0.25, 0.5, 0.75), axis=1)
    middle, spread = middle / middle.sum(), (high - low) / 2  # so that the shares make a whole
    return dict(zip(samples, zip(middle.tolist(), spread.tolist(), strict=True), strict=True))


@dataclass(frozen=True)
class Fallback:
    """A node that another library computes."""

    step: str  #: its name in the program
    node: str  #: its operator, with its name where it has one
    by: str  #: such as ``"PyTorch"`` or ``"onnx.reference"``
    reason: str  #: why there is no kernel
    share: float  #: of the time of a run, 0 to 1

    def __str__(self) -> str:
        return f"{self.node} runs by {self.by}, {self.share:.1%} of the time: {self.reason}"


class ModelReport(Report):
    """A table of the choices of records for the kernels of a model and of nodes without one."""

    fallbacks: tuple[Fallback, ...]  #: largest share of the time first

    def __new__(cls, choices: Iterable[Choice], fallbacks: Sequence[Fallback] = ()) -> ModelReport:
        report = super().__new__(cls, choices)
        report.fallbacks = tuple(fallbacks)
        return report

    def __str__(self) -> str:
        if not self.fallbacks:
            return super().__str__()
        share = sum(f.share for f in self.fallbacks)
        count = len(self.fallbacks)
        nodes = "1 node has" if count == 1 else f"{count} nodes have"
        head = f"{nodes} no kernel, {share:.1%} of the time:"
        lines = [head, *(f"  {f}" for f in self.fallbacks)]
        return "\n".join([super().__str__(), *lines] if self else lines)


def fallbacks_of(model: Model, hosts: Mapping[str, HostFunction]) -> tuple[Fallback, ...]:
    if not hosts:
        return ()
    shares = shares_by_step(seconds_by_step(model, runs=3))
    where = model.device_type
    moved = "" if where == "cpu" else f"; its values go from {where} to the host and back"
    fallbacks = [
        Fallback(name, host.span or host.name, host.by, host.reason + moved, shares[name][0])
        for name, host in hosts.items()
    ]
    return tuple(sorted(fallbacks, key=lambda f: -f.share))
