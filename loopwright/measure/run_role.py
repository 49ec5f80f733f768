"""The runner's side: machine code comes in, times and verdicts go out.

Policy (who is dropped, who is checked, how long anything may take) is the parent's; here is only
what must happen in the process that holds the code and the data.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from loopwright import runtime
from loopwright.errors import InternalError, RunError
from loopwright.measure.buffers import Array, Buffers
from loopwright.measure.protocol import Frame
from loopwright.measure.result import ErrorKind
from loopwright.runtime import timing
from loopwright.runtime.artifacts.kinds import artifact_kind

Answer = tuple[dict[str, Any], bytes]

#: A warm-up that is this many times beyond the limit of the race decides it alone, if it is long.
_HOPELESS = 2.0
_HOPELESS_S = 0.02
#: Being cold makes no difference to a warm-up as long as this: it counts as the run.
_LONG_S = 0.2


class OutOfMemory(MemoryError):
    """A kernel needs more memory than there is."""


class Kernel:
    """One linked candidate, bound to the runner's arrays."""

    def __init__(self, manifest: dict[str, Any], objects: bytes, buffers: Buffers) -> None:
        needs = artifact_kind(manifest["kind"]).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked

        module = runtime.Module(runtime.Artifact(manifest, objects))
        self.function = module.get_function(manifest["entry"])
        entry = next(f for f in manifest["functions"] if f["name"] == manifest["entry"])
        self._threads = int(manifest["num_threads"]) or None if entry["uses_pool"] else 1
        _ = self.function.address  # link now: a failure here is not one of memory
        try:
            self._call = self.function.bind(*buffers.arrays)
        except RunError as e:
            raise OutOfMemory(str(e)) from e
        self._arrays = buffers.arrays

    def pinned(self) -> AbstractContextManager[None]:
        """Its threads stay on their CPUs inside the block."""
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""
        if flush:
            timing.flush(*self._arrays)
        try:
            return runtime.time_call(self._call, 1 if flush else number)
        except RunError as e:
            if "no memory" in str(e):
                raise OutOfMemory(str(e)) from e
            raise


class RunRole:
    """Answers ``prepare``, ``race``, ``sample``, ``check`` and ``outputs`` requests."""

    def __init__(self) -> None:
        self._buffers: Buffers | None = None
        self._kernels: dict[int, Kernel] = {}
        self._references: dict[str, list[Array]] = {}
        # The pool and the timing loop are compiled now, so that no candidate pays for it.
        with runtime.pinned():
            timing.flush(np.zeros(1))

    def answer(self, frame: Frame) -> Answer:
        """Do what the request's ``op`` says."""
        match frame.header["op"]:
            case "prepare":
                return self._prepare(frame.header, frame.payload)
            case "race":
                return self._race(frame.header, frame.payload)
            case "sample":
                return self._sample(frame.header)
            case "check":
                return self._check(frame.header, frame.payload)
            case "outputs":
                return self._outputs(frame.header, frame.payload)
            case op:
                raise InternalError(f"a runner was asked to {op!r}")

    def _prepare(self, header: dict[str, Any], data: bytes) -> Answer:
        self._kernels.clear()
        self._references.clear()
        self._buffers = None
        self._buffers = Buffers(header["args"], header["seed"], data)
        return {"ok": True}, b""

    @property
    def _data(self) -> Buffers:
        if self._buffers is None:
            raise InternalError("a runner was asked to run without data")
        return self._buffers

    def _kernel(self, slot: int) -> Kernel:
        if slot not in self._kernels:
            raise InternalError(f"a runner has no kernel in slot {slot}")
        return self._kernels[slot]

    def _race(self, header: dict[str, Any], objects: bytes) -> Answer:
        slot, drop, flush = header["slot"], header["drop"], header["flush"]
        if slot == 0:
            self._kernels.clear()
        self._kernels.pop(slot, None)
        kernel = Kernel(header["manifest"], objects, self._data)
        self._kernels[slot] = kernel
        with kernel.pinned():
            warm = first = kernel.run()
            hopeless = drop is not None and warm > max(_HOPELESS * drop, _HOPELESS_S)
            if not hopeless and warm < _LONG_S:
                first = kernel.run(flush=flush)
        return self._unless_trespass({"ok": True, "warm": warm, "first": first})

    def _sample(self, header: dict[str, Any]) -> Answer:
        kernel = self._kernel(header["slot"])
        with kernel.pinned():
            times = _counts(kernel, header) if "counts" in header else _windows(kernel, header)
        return self._unless_trespass({"ok": True, "times": times})

    def _check(self, header: dict[str, Any], reference: bytes) -> Answer:
        kernel, data = self._kernel(header["slot"]), self._data
        if reference:
            self._references[header["key"]] = data.split(reference)
        if header["key"] not in self._references:
            raise InternalError("a runner was asked to check against what it was never sent")
        data.restore()
        kernel.run()
        verdict = data.judge(self._references[header["key"]], header["length"])
        answer: dict[str, Any] = {"ok": True, "max_error": verdict.max_error}
        if verdict.problem is not None:
            answer |= {"ok": False, "kind": ErrorKind.WRONG_ANSWER, "text": verdict.problem}
        data.restore()
        return self._unless_trespass(answer)

    def _outputs(self, header: dict[str, Any], objects: bytes) -> Answer:
        data = self._data
        data.restore()
        Kernel(header["manifest"], objects, data).run()
        answer, _ = self._unless_trespass({"ok": True})
        payload = data.output_bytes() if answer["ok"] else b""
        data.restore()
        return answer, payload

    def _unless_trespass(self, answer: dict[str, Any]) -> Answer:
        problem = self._data.trespass()
        if problem is not None:
            text = f"{problem}; {answer['text']}" if "text" in answer else problem
            answer |= {"ok": False, "kind": ErrorKind.WRONG_ANSWER, "text": text, "tainted": True}
        return answer, b""


def _windows(kernel: Kernel, header: dict[str, Any]) -> list[float]:
    """Samples of about ``window_s`` each, as many as fit into the budget; of one call if cold.

    Two are enough where both are beyond ``clear``.
    """
    window, flush, left = header["window_s"], header["flush"], header["budget"]
    clear = math.inf if header["clear"] is None else header["clear"]
    enough = left - header["enough"]
    estimate = max(header["first"], 1e-9)
    number = 1 if flush else max(1, round(window / estimate))
    times: list[float] = []
    while len(times) < header["windows"] and number * estimate <= left:
        if times and (left <= enough or (len(times) > 1 and min(times) > clear)):
            break
        seconds = kernel.run(number, flush=flush)
        left -= seconds
        if not flush and seconds < window / 2 and number * estimate >= window / 2:
            # One call alone took far longer than one of many: a tiny kernel, cold.
            estimate = max(seconds / number, 1e-9)
            number = max(1, round(window / estimate))
            continue
        times.append(seconds / number)
    return times


def _counts(kernel: Kernel, header: dict[str, Any]) -> list[float]:
    """AutoTVM's samples: ``repeat`` of ``number`` calls, more calls to fill ``min_repeat_ms``."""
    number, repeat, min_repeat_ms = header["counts"]
    left, flush = header["budget"], header["flush"]
    if flush:  # as AutoTVM: a cold cache is only seen by one call
        number, min_repeat_ms = 1, 0.0
    estimate = header["first"]
    times: list[float] = []
    while len(times) < repeat and number * estimate <= left:
        seconds = kernel.run(number, flush=flush)
        left -= seconds
        if seconds * 1e3 < min_repeat_ms:
            number = timing.grown(number, max(seconds, 1e-9), min_repeat_ms)
            continue
        times.append(seconds / number)
        estimate = max(estimate, seconds / number)
    return times
