"""The debug executor, which shows arguments and outputs of each kernel call. Named after TVM's.

Values share memory, so the inputs of a call are there only just after the calls before it.
Everything here therefore runs the model up to the call that is inspected.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, RunError, did_you_mean
from loopwright.executors.callees import HostStep, callees
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.program import Array, Program
from loopwright.files import FileKind, Output, marked, write
from loopwright.runtime import (
    BenchmarkResult,
    Module,
    NDArray,
    ProfiledCall,
    Report,
    array,
    sampled,
    save_params,
)

#: Rounds of a comparison, however long they take: with fewer there is no interval of 95 %.
_FEWEST_ROUNDS = 6
_PROGRAM = FileKind("a program", marked(b'"format": "loopwright.program"'))
_MADE_BY = {"otherData": {"made_by": "loopwright"}}  # readers of traces ignore unknown fields
_TRACE = FileKind("a trace", marked(b'"made_by": "loopwright"'))


class DebugExecutor(GraphExecutor):
    """A graph executor that shows every call of a kernel; ``nodes`` are their names, in order.

    Args:
        dump_root: a folder, made where there is none, into which each run writes the program
            (``program.json``), the outputs of each call (``outputs.safetensors``, by the call's
            number and kernel), and when each call ran (``trace.json``, for Chrome's
            ``about:tracing`` and Perfetto). None: nothing is written.

    Example:
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.softmax(lw.graph.var("x", (4,))))
        >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(y), "llvm")
        >>> executor = model.debug_executor()
        >>> executor.run(x=np.zeros(4, "float32"))
        >>> print(executor.nodes, executor.debug_get_output(0).numpy())
        ('softmax_0', 'softmax_0') [0.25 0.25 0.25 0.25]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        dump_root: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(program, kernels, constants)
        self.nodes = tuple(step.kernel for step in program.steps)
        self._dump_root = None if dump_root is None else Path(dump_root)

    def run(self, **inputs: object) -> None:
        """Set inputs by name, run all kernels, and dump their outputs if a folder was named, which
        is a RunError where it cannot be written.
        """
        if inputs:
            self.set_input(None, None, **inputs)
        events: list[dict[str, Any]] = []
        outputs: dict[str, Array] = {}
        begin = time.perf_counter()
        for number, call in self._steps():
            before = time.perf_counter()
            call()
            after = time.perf_counter()
            event = {"name": self.nodes[number], "ph": "X", "pid": 0, "tid": 0}
            event |= {"ts": 1e6 * (before - begin), "dur": 1e6 * (after - before)}
            events.append(event | {"args": {"call": number, "bytes": self._nbytes(number)}})
            if self._dump_root is None:
                continue
            step = self.program.steps[number]
            for k, n in enumerate(step.writes):  # copies: later steps overwrite them
                name = f"{number}_{step.kernel}_{k}"
                outputs[name] = np.array(self._arrays[n], order="C")
        if self._dump_root is None:
            return
        program = json.dumps(self.program.to_json(), indent=1).encode()
        trace = json.dumps({**_MADE_BY, "traceEvents": events}, indent=1).encode()
        try:
            self._dump_root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {self._dump_root}: {error.strerror or error}") from error
        write(
            Output(self._dump_root / "program.json", program, _PROGRAM),
            Output(self._dump_root / "trace.json", trace, _TRACE),
            force=None,
        )
        save_params(self._dump_root / "outputs.safetensors", outputs)

    def run_individual(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0.0
    ) -> list[BenchmarkResult]:
        """Time each call of the model by itself, again and again on the same data.

        Caches are warm then, which they may not be inside a run; `profile` times that. Each of the
        ``repeat`` samples has ``number`` calls, or more until it takes ``min_repeat_ms``. Returns
        the seconds of the samples of each call.
        """
        return [
            sampled(call.time, number, repeat, min_repeat_ms) for _, call in self._steps(ran=True)
        ]

    def run_individual_node(
        self, node: int | str, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0.0
    ) -> BenchmarkResult:
        """Time one call of the model, as `run_individual` times all of them; ArgumentError where
        there is no such call.
        """
        return sampled(self._run_up_to(node).time, number, repeat, min_repeat_ms)

    def profile(self, number: int = 10, **inputs: object) -> Report:
        """Run the model several times and report the time of each call inside the runs.

        Of the runs ``number`` count; one that does not count comes before them. The report has a
        row for each call, in order, with all its runs; its table adds up the calls of one kernel.
        ArgumentError as of `set_input`, or where ``number`` is no whole number above zero.
        """
        if type(number) is not int or number < 1:
            raise ArgumentError(f"profile: number is {number!r}; give a whole number above zero")
        self.set_input(None, None, **inputs)
        calls = [call for _, call in self._steps(ran=True)]
        took = [0.0] * len(calls)
        begin = time.perf_counter()
        for _ in range(number):
            for n, call in enumerate(calls):
                before = time.perf_counter()
                call()
                took[n] += time.perf_counter() - before
        wall = time.perf_counter() - begin
        rows = [
            ProfiledCall(name, str(call.device), seconds, number, number * self._nbytes(n))
            for n, (name, call, seconds) in enumerate(zip(self.nodes, calls, took, strict=True))
        ]
        return Report(tuple(rows), wall, number)

    def compare(
        self,
        kernels: Mapping[str, Sequence[Module]],
        rounds: int = 20,
        seconds: float = 30.0,
        inputs: Mapping[str, object] | None = None,
    ) -> dict[str, list[list[float]]]:
        """Time several kernels in the place of one, inside runs of the model.

        Repeated calls of one kernel find their data in caches as its last call left them; inside a
        model they find what the calls before it left. So the kernels take turns in
        whole runs: a round is as many runs as one place has kernels, in each of which every place
        has another one of its own, in an order that is drawn anew. The model stays as it is.
        ArgumentError as of `set_input`, or where the model has no such kernel, or a kernel takes
        other values; RunError where one failed.

        Args:
            kernels: by the name of a kernel of the model, those that compute the same.
            rounds: number of turns of each kernel.
            seconds: no round is begun after them, except the first six.
            inputs: to be set before, by name.

        Returns:
            By the name, for each of its kernels the seconds of all its calls in a run, one for each
            round.
        """
        for name in kernels:
            if name not in self.nodes:
                raise ArgumentError(f"there is no kernel {name!r}{did_you_mean(name, self.nodes)}")
        self.set_input(None, None, **(inputs or {}))
        calls = self._calls_of(kernels)
        turns = max(map(len, kernels.values()), default=0)
        for turn in range(turns):  # whatever is slow the first time
            _run_timed(calls, {name: turn % len(those) for name, those in kernels.items()})
        times: dict[str, list[list[float]]] = {n: [[] for _ in ks] for n, ks in kernels.items()}
        rng, end = random.Random(0), time.perf_counter() + seconds
        for number in range(rounds):
            if number >= _FEWEST_ROUNDS and time.perf_counter() > end:
                break
            orders = {n: rng.sample(range(len(those)), len(those)) for n, those in kernels.items()}
            for turn in range(turns):
                taken = {n: order[turn % len(order)] for n, order in orders.items()}
                took = _run_timed(calls, taken)
                for n, order in orders.items():
                    if turn < len(order):  # a place with fewer kernels is done with this round
                        times[n][order[turn]].append(took[n])
        return times

    def debug_get_output(
        self, node: int | str, out: Array | NDArray | None = None, index: int = 0
    ) -> Array | NDArray:
        """A copy of an output of one call for the present inputs: the model runs up to it.

        ``node`` is the number of the call, or the name of a kernel that is called once, ``index``
        that of its output; ``out``, where it is given, is filled and returned. ArgumentError where
        there is no such call or output, or ``out`` does not fit.
        """
        self._run_up_to(node)
        step = self.program.steps[self._node(node)]
        if not 0 <= index < step.outputs:
            raise ArgumentError(f"call {node!r} has {step.outputs} outputs; there is no {index}")
        elements = self._arrays[step.writes[index]]
        if out is None:
            return array(elements)
        target = out.numpy() if isinstance(out, NDArray) else out
        if target.shape != elements.shape or target.dtype != elements.dtype:
            raise ArgumentError(
                f"output {index} of call {node!r} is {elements.dtype}{list(elements.shape)}, got "
                f"{target.dtype}{list(target.shape)}"
            )
        target[...] = elements
        return out

    def _steps(self, *, ran: bool = False) -> Iterator[tuple[int, Any]]:
        """Number and call of each step; with ``ran`` the call has already run."""
        for number in range(len(self.nodes)):
            call = self._bound(self._placed.callees[number])
            self._share_workspace([call])
            if ran:
                call()
            yield number, call

    def _calls_of(self, kernels: Mapping[str, Sequence[Module]]) -> list[tuple[str, list[Any]]]:
        """For each step the name of its kernel, and one call for each candidate in its place."""
        own_calls = zip(self.nodes, self._calls, strict=True)
        found = [(name, [] if name in kernels else [call]) for name, call in own_calls]
        for turn in range(max(map(len, kernels.values()), default=0)):
            candidates = {name: those[turn] for name, those in kernels.items() if turn < len(those)}
            numbers = [n for n, name in enumerate(self.nodes) if name in candidates]
            steps = [self.program.steps[n] for n in numbers]
            called = callees(steps, candidates, self._placed.constants)
            for n, callee in zip(numbers, called, strict=True):
                found[n][1].append(self._bound(callee))
        self._share_workspace([call for _, calls in found for call in calls])
        return found

    def _run_up_to(self, node: int | str) -> Any:
        """Run the model up to a step; returns its call."""
        calls = [*map(self._bound, self._placed.callees[: self._node(node) + 1])]
        for call in calls:
            call()
        return calls[-1]

    def _node(self, node: int | str) -> int:
        if isinstance(node, str):
            places = [n for n, name in enumerate(self.nodes) if name == node]
            if len(places) == 1:
                return places[0]
            if places:
                raise ArgumentError(f"kernel {node!r} is called {len(places)} times: {places}")
            raise ArgumentError(f"there is no kernel {node!r}{did_you_mean(node, self.nodes)}")
        if not 0 <= node < len(self.nodes):
            raise ArgumentError(f"there is no call {node}; the model has {len(self.nodes)}")
        return node

    def _nbytes(self, number: int) -> int:
        return sum(self.program.values[n].nbytes for n in self.program.steps[number].args)


def _run_timed(
    calls: Sequence[tuple[str, Sequence[Any]]], taken: Mapping[str, int]
) -> dict[str, float]:
    """Run a model once; seconds of all calls of each kernel that has several candidates."""
    took = dict.fromkeys(taken, 0.0)
    for name, those in calls:
        call = those[taken.get(name, 0)]
        before = time.perf_counter()
        call()
        if name in took:
            took[name] += time.perf_counter() - before
    return took
