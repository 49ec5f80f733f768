"""Runs compiled functions in a separate process, on memory with guarded edges. POSIX only.

Each array, and the workspace, lies against a page that may not be touched, at its end or its start;
the rest of its pages holds a pattern that must survive.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from loopwright.errors import RunError
from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.guarded_memory import GuardedMemory, Side
from loopwright.runtime.kernels.constants import Parts
from loopwright.runtime.kernels.device_function import DeviceFunction
from loopwright.runtime.kernels.function import Function
from loopwright.runtime.kernels.symbolic import SymbolicFunction
from loopwright.runtime.module import Module
from loopwright.testing.numpy_eval import Array

#: Bytes on each side of an array; devices begin parts of memory at multiples of this.
_EDGE = 4096
_PATTERN = 0xA5


class EdgedArray:
    def __init__(self, device: Device, data: npt.NDArray[np.generic]) -> None:
        self._device, self._like = device, data
        self._all = device.api.allocate(device.device_id, data.nbytes + 2 * _EDGE)
        image = np.full(self._all.nbytes, _PATTERN, np.uint8)
        image[_EDGE : _EDGE + data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
        self._exchange(image, into_host=False)
        part = self._all.part(_EDGE, data.nbytes)
        self.array = DeviceArray(part, data.shape, data.dtype.name, device, self)

    def take(self) -> tuple[npt.NDArray[np.generic], bool]:
        """The elements now, and whether the edges are unchanged; frees the memory."""
        image = np.empty(self._all.nbytes, np.uint8)
        self._exchange(image, into_host=True)
        self._device.api.free(self._all)
        end = _EDGE + self._like.nbytes
        intact = bool((image[:_EDGE] == _PATTERN).all() and (image[end:] == _PATTERN).all())
        inside = image[_EDGE:end].copy()
        return inside.view(self._like.dtype).reshape(self._like.shape), intact

    def _exchange(self, image: npt.NDArray[np.uint8], into_host: bool) -> None:
        api, device_id = self._device.api, self._device.device_id
        host = Memory(HOST, 0, int(image.ctypes.data), image.nbytes, owner=image)
        source, target = (self._all, host) if into_host else (host, self._all)
        api.copy(source, 0, target, 0, image.nbytes)
        api.synchronize(device_id, api.current_stream(device_id))


def run_on_device(
    function: DeviceFunction, arrays: Sequence[npt.NDArray[np.generic]], parts: Parts | None = None
) -> tuple[list[npt.NDArray[np.generic]], str]:
    """Run a function, or its parts one after the other, on copies of arrays; returns their contents
    afterwards, and the text of an error, or ''."""
    placed = [EdgedArray(function.device, a) for a in arrays]
    kept = () if parts is None else parts.kept
    between = [EdgedArray(function.device, np.zeros(arg.shape, arg.dtype)) for arg in kept]
    if parts is not None:
        given = {n: x.array for n, x in enumerate(placed)}
        shared = [x.array for x in between]
        parts.prepare(given, shared)
        parts.second.bind(*parts.main(given, shared)).run()
    elif any(arg.output and arg.nbytes for arg in function.args):
        function.bind(*(x.array for x in placed)).run()
    taken = [x.take() for x in placed]
    all_taken = zip((*function.args, *kept), (*taken, *(x.take() for x in between)), strict=True)
    wrong = [arg.name for arg, (_, intact) in all_taken if not intact]
    error = f"the function wrote outside {', '.join(wrong)}" if wrong else ""
    return [a for a, _ in taken], error


_FRESH = 0xFF  # NaN as a float, -1 as an integer


class ProcessKilledError(RunError):
    """A function, or the driver that was to run it, ended its process."""


class ProcessTimedOutError(ProcessKilledError):
    pass


class GuardedRunner:
    """A worker process, started on demand and again after a fault. A run may take ``seconds``,
    compilation by a driver included."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, seconds: float = 120.0
    ) -> None:
        self._environment, self._seconds = dict(environment or {}), seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        # PoCL writes drawings of what it cannot compile into the folder that it runs in.
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(
        self,
        artifact: Artifact,
        arrays: Sequence[Array],
        side: Side = "end",
        prepared: bool = False,
    ) -> list[Array]:
        """Run an artifact's entry on copies of some arrays; returns their contents afterwards.

        ``side`` is the edge of each array at the forbidden page. ``prepared`` runs the two parts of
        the entry one after the other; the arrays that they share are guarded as well.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        request = artifact, [np.asarray(a, order="C") for a in arrays], side, prepared
        late = threading.Timer(self._seconds, process.kill)
        late.start()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            out, error = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            code, said = process.wait(), self._last_words()
            self.close()
            if late.finished.is_set():
                raise ProcessTimedOutError(
                    f"the function did not end in {self._seconds:g} s"
                ) from None
            raise ProcessKilledError(
                f"the function killed its process (exit status {code}){said}"
            ) from None
        finally:
            late.cancel()
        if error:
            raise RunError(error)
        contents: list[Array] = out
        return contents

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- `close` closes it
        self._folder = tempfile.TemporaryDirectory(prefix="loopwright-guarded-")
        root = str(Path(__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzzing.guarded"],
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=1 << 20,
        )
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
        if self._errors is not None:
            self._errors.close()
        if self._folder is not None:
            self._folder.cleanup()


class _Regions:
    def __init__(self) -> None:
        self._free: dict[int, list[GuardedMemory]] = {}
        self._used: list[GuardedMemory] = []

    def take(self, nbytes: int) -> GuardedMemory:
        size = max(mmap.PAGESIZE, 1 << (max(nbytes, 1) - 1).bit_length())
        free = self._free.setdefault(size, [])
        region = free.pop() if free else GuardedMemory(size, mmap.PAGESIZE)
        self._used.append(region)
        return region

    def give_back(self) -> None:
        for r in self._used:
            self._free.setdefault(r.size, []).append(r)
        self._used.clear()


def _run(
    artifact: Artifact, arrays: list[Array], side: Side, prepared: bool, regions: _Regions
) -> tuple[list[Array], str]:
    """Run once; returns the contents of the arrays and an error text or ''."""
    module = Module(artifact)
    f = module[module.entry_name]
    parts = module.parts() if prepared else None
    if isinstance(f, SymbolicFunction):
        f, _ = f.resolve(arrays)
        parts = None if parts is None else parts.of_sizes(arrays)
    if isinstance(f, DeviceFunction):
        return run_on_device(f, arrays, parts)
    kept = [] if parts is None else [b"\xff" * arg.nbytes for arg in parts.kept]
    names = [arg.name for arg in (*f.args, *(parts.kept if parts is not None else ()))]
    placed = [(regions.take(len(b)), b) for b in (*(a.tobytes() for a in arrays), *kept)]
    views = [r.place(len(b), side) for r, b in placed]
    for view, (_, b) in zip(views, placed, strict=True):
        view[:] = np.frombuffer(b, np.uint8)
    error = ""
    assert isinstance(f, Function)
    for function, numbers in _calls(f, parts):
        work = regions.take(function.workspace_bytes)
        space = work.place(function.workspace_bytes, side)
        space[:] = _FRESH
        code = _call(function, [views[n] for n in numbers], space)
        error = error or (f"the function returned {code}" if code else "")
        for name, (region, _) in zip([*names, "workspace"], [*placed, (work, b"")], strict=True):
            if not region.intact():
                error = f"the function wrote outside {name}"
    out = [
        np.frombuffer(view.tobytes(), a.dtype).reshape(a.shape)
        for view, a in zip(views, arrays, strict=False)
    ]
    regions.give_back()
    return out, error


def _calls(f: Function, parts: Parts | None) -> list[tuple[Function, list[int]]]:
    """The functions to call, with the numbers of their arrays; shared ones come last."""
    if parts is None:
        return [(f, list(range(len(f.args))))]
    kept = [len(f.args) + k for k in range(len(parts.kept))]
    first, second = parts.first, parts.second
    assert isinstance(first, Function)
    assert isinstance(second, Function)
    return [(first, [*parts.read_first, *kept]), (second, [*parts.read_later, *kept])]


def _call(f: Function, views: Sequence[Array], space: Array) -> int:
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(f.address)
    values = [*(v.ctypes.data for v in views), *f.values]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*values)
    return int(entry(pointers, space.ctypes.data if f.workspace_bytes else None))


def _serve(source: IO[bytes], sink: IO[bytes]) -> None:
    regions = _Regions()
    while True:
        try:
            artifact, arrays, side, prepared = pickle.load(source)
        except EOFError:
            return
        pickle.dump(_run(artifact, arrays, side, prepared, regions), sink)
        sink.flush()


#: As they are counted.
COMPILER_FAILED = "PoCL's compiler failed"
COMPILER_DID_NOT_END = "the driver did not end"
OPTIMISER_CRASHED = "the driver's optimiser crashed, right without it"
#: The environment of a process that compiles without optimiser: pyopencl adds these options, and
#: no binary is taken that was compiled with other ones.
UNOPTIMISED = {"PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable", "LOOPWRIGHT_CACHE": "0"}


def is_pocl_assertion(error: Exception) -> bool:
    """Whether a process ended in `pocl::ParallelRegion::Verify`, which PoCL 3.1 raises for some
    barriers in loops beside conditions."""
    return "pocl::" in f"{error}" and "Assertion" in f"{error}"


def is_endless_compilation(error: Exception) -> bool:
    """Whether a kernel that the interpreter has run to its end did not end: in PoCL 3.1 each
    barrier in a condition doubles the work of `pocl::BarrierTailReplication`."""
    return isinstance(error, ProcessTimedOutError)


def is_of_the_optimiser(error: Exception, without: str) -> bool:
    """Whether a failure is a crash of the driver's optimiser, from the error ``without`` it, empty
    if none. A wrong answer with it alone may still be a mistake of the program, such as a race."""
    return isinstance(error, ProcessKilledError) and not without


def with_second_run(error: RunError | AssertionError, without: str) -> RunError | AssertionError:
    first, newline, rest = f"{error}".partition("\n")
    said = f"{first} (without the driver's optimiser: {without or 'right'})"
    return type(error)(said + newline + rest)


if __name__ == "__main__":
    # What a driver prints goes to the errors: replies have the pipe for themselves.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as sink:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _serve(sys.stdin.buffer, sink)
