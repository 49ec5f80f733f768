"""`Model`, a model whose kernels are built, and the file that keeps it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopwright import env
from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.executors import saved
from loopwright.executors.callees import HostStep, SharedArrays
from loopwright.executors.debug_executor import DebugExecutor
from loopwright.executors.device_executor import DeviceGraphExecutor, DeviceProgram
from loopwright.executors.graph_executor import AsyncGraphExecutor, GraphExecutor
from loopwright.executors.places import PlacedProgram, host_program
from loopwright.executors.program import Array, Program
from loopwright.executors.whole_program import (
    AotExecutor,
    c_name,
    export_model,
    whole_program,
)
from loopwright.runtime import (
    HOST,
    Device,
    DeviceArray,
    Module,
    artifact_kind,
    device_of,
    is_on_host,
)
from loopwright.runtime import device as as_device


def idle_executors() -> deque[GraphExecutor]:
    """Room for executors between calls of a model: more runs than CPUs at one time gain nothing."""
    return deque(maxlen=len(env.usable_cpus()))


class Model:
    """A program of kernels with its weights.

    Args:
        constants: arrays by the names of the program's values.
        host_steps: steps that are Python functions, by name.
        shared: arrays that are kept once for several models, such as those of several batches.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (2,))))
        >>> model = lw.graph.compile(module, "llvm")
        >>> print(isinstance(model, lw.executors.Model), model(np.array([1, -1], "float32"))[0])
        True [1. 0.]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module],
        constants: Mapping[str, Array],
        host_steps: Mapping[str, HostStep] | None = None,
        shared: SharedArrays | None = None,
    ) -> None:
        self.program, self.kernels, self.constants = program, kernels, constants
        self.host_steps = host_steps or {}
        self._shared = shared
        self._lock, self._devices = threading.Lock(), dict[Device, DeviceProgram]()
        self._idle = idle_executors()

    @cached_property
    def device_type(self) -> str:
        """Type of the devices that its kernels are for, such as ``cpu`` or ``cuda``."""
        kinds = {artifact_kind(m.artifact.kind).device for m in self.kernels.values()}
        return next(iter(kinds), "cpu")

    def executor(
        self,
        device: Device | str | None = None,
        *,
        graph: bool = False,
        in_place: Collection[str] = (),
    ) -> GraphExecutor:
        """The model, ready to run; each executor has memory of its own, and all share weights.

        UsageError where the device is of another type, or not here; or it records no graphs;
        TargetError, OutOfMemoryError as of `DeviceGraphExecutor`.

        Args:
            device: where it runs, such as ``"cuda:1"``; default the first device of the type that
                it was built for.
            graph: of a device whose driver records launches as a graph, as CUDA's does: record
                those of a run, and launch them all at once from then on.
            in_place: on a CPU, weights that kernels read where they lie, by name, as of
                `GraphExecutor`; the executor shares nothing with others then.

        Returns:
            A `GraphExecutor`; on another device than the CPU a `DeviceGraphExecutor`.
        """
        home = as_device(self.device_type if device is None else device)
        if home.name != self.device_type:
            raise UsageError(
                f"the model is built for {self.device_type}, and cannot run on {home}; compile it "
                "for that"
            )
        home.require()
        if home.device_type != HOST:
            with self._lock:  # weights are copied there once
                if home not in self._devices:
                    parts = self.program, self._called, self.constants
                    self._devices[home] = DeviceProgram(*parts, home)
            return DeviceGraphExecutor(self._devices[home], graph=graph)
        if graph:
            raise UsageError("graph=True: cpu(0) records no graphs; leave it out")
        if in_place:
            return GraphExecutor(self.program, self._called, self.constants, self._shared, in_place)
        return GraphExecutor._over(self._host_program)

    @cached_property
    def _host_program(self) -> PlacedProgram:
        """The program with values that are computed from weights, once for all executors."""
        self._refuse_devices()
        return host_program(self.program, self._called, self.constants, self._shared)

    def _refuse_devices(self) -> None:
        if self.device_type != "cpu":
            raise UsageError(
                f"the model is built for {self.device_type}, where executor() runs it; others are "
                "for CPUs"
            )

    @property
    def _called(self) -> dict[str, Module | HostStep]:
        return {**self.kernels, **self.host_steps}

    @property
    def _weights(self) -> dict[str, Array]:
        """The constants that the program has."""
        used = {v.name for v in self.program.values if v.kind == "constant"}
        return {n: a for n, a in self.constants.items() if n in used}

    def _check_whole(self, done: str) -> None:
        """Raise an error where the model cannot be ``done``, such as ``"saved"``."""
        refuse_host_steps(self.host_steps, done)

    def debug_executor(self, dump_root: str | os.PathLike[str] | None = None) -> DebugExecutor:
        """A `DebugExecutor` of the model for CPUs, which shows every call of a kernel, and writes
        each run into the folder ``dump_root``.
        """
        self._refuse_devices()
        return DebugExecutor(self.program, self._called, self.constants, dump_root)

    def async_executor(
        self, num_workers: int | None = None, share_memory: bool = False
    ) -> AsyncGraphExecutor:
        """An `AsyncGraphExecutor` of the model: independent steps run in parallel."""
        return AsyncGraphExecutor._over(self._host_program, num_workers, share_memory)

    def aot_executor(self) -> AotExecutor:
        """The model as one function that calls its kernels; weights are shared. UsageError
        where a kernel is not of compiled code of the host, or there is none.
        """
        self._check_whole("one function")
        return AotExecutor(whole_program("model", self._host_program).module(), self._weights)

    def export_library(
        self,
        path: str | os.PathLike[str],
        cc: str | None = None,
        fcompile: Callable[..., object] | None = None,
        *,
        force: bool = False,
    ) -> Path:
        """Write the model as one library that stands alone, and a header for C beside it.

        The library has one function, which calls all kernels; no interpreter, and no Python. It
        has the file's name, and the form of a kernel: ``int32_t resnet18(void **args, void
        *workspace)``. The weights are in it as kernels read them, packed already. It is linked as
        `Module.export_library` links kernels. ``lw.load_module`` reads it as a module of this
        function, whose arguments are the inputs and the outputs.

        Args:
            path: the file, such as ``resnet18.so``, or ``resnet18.a`` for a static library; the
                header is ``resnet18.h``. The library's path is returned.
            cc: the linker; default the first of ``cc``, ``gcc`` and ``clang`` that is installed.
            fcompile: as of `Module.export_library`.
            force: replace files that are no such library and header, too.

        Raises:
            UsageError: a kernel is not of compiled code of the host, there is none, the weights
                have 2 GiB or more, the system is not Linux, or other files are there.
            TargetError: no linker is installed; the message says what to install.
            RunError: a file cannot be written, or linking failed.
        """
        self._check_whole("a library")
        target = Path(path)
        whole = whole_program(c_name(target), self._host_program)
        return export_model(whole, target, cc, fcompile, force=force)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Run once; takes an array for each input, in order. Threads may call at one time.

        On the host, memory of a run is kept for the calls that follow, and arrays that are
        contiguous are read where they lie: leave them as they are until it returns.

        Of a model for devices, inputs may lie on one of them, such as tensors of PyTorch: then it
        runs there. Outputs are arrays of NumPy, or of that device, for ``torch.from_dlpack``.

        ArgumentError where there are more or fewer inputs, or one has another shape or dtype.
        """
        placed = [device_of(x) for x in inputs if not is_on_host(x)]
        home = next((d for d in placed if d.name == self.device_type), None)
        executor = self._idle_one() or self.executor(home)
        check_count([v.name for v in executor.inputs], inputs)
        if self.device_type == "cpu":
            copies = executor._call(inputs)
            if not self.host_steps:  # whose functions may keep the arrays that they were given
                self._idle.append(executor)
            return copies
        for n, x in enumerate(inputs):
            executor.set_input(n, x)
        executor.run()
        outputs = [executor.get_output(n) for n in range(executor.get_num_outputs())]
        if home is not None:
            return outputs
        return [a.numpy() if isinstance(a, DeviceArray) else np.asarray(a) for a in outputs]

    def _idle_one(self) -> GraphExecutor | None:
        """An executor that no call uses; None where there is none for this program."""
        try:
            executor = self._idle.pop()
        except IndexError:
            return None
        return executor if executor.program is self.program else None

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the model to one file: its program, the machine code of its kernels, its weights.

        The file is a zip archive without compression: ``model.json``, for each kernel its code and
        manifest, and ``weights.safetensors``. It is replaced in one step.

        ``path``, such as ``resnet18.lw``, is returned; ``force`` replaces a file that is no model,
        which is a UsageError otherwise. RunError where the file cannot be written, or a step is a
        Python function, which no file holds.
        """
        self._check_whole("saved")
        head = {
            "format": saved.FORMAT,
            "version": saved.VERSION,
            "program": self.program.to_json(),
            "kernels": list(self.kernels),
        }
        return saved.write(path, head, self.kernels.values(), self._weights, force=force)

    def __repr__(self) -> str:
        values = self.program.input_values
        shapes = ", ".join(f"{v.name}: {v.dtype}{list(v.shape)}" for v in values)
        return f"<{type(self).__name__} of {shapes}: {len(self.kernels)} kernels>"


def check_count(names: Sequence[str], inputs: Sequence[object]) -> None:
    if len(inputs) != len(names):
        raise ArgumentError(
            f"the model has {len(names)} inputs ({', '.join(names)}), got {len(inputs)}"
        )


def refuse_host_steps(steps: Mapping[str, HostStep], done: str) -> None:
    """Raise RunError where steps of a model are Python functions, which no machine code holds."""
    if steps:
        named = "; ".join(f"{name} ({s.by})" for name, s in steps.items())
        raise RunError(
            f"a model with steps that run in Python cannot be {done}: {named:.300}; compile "
            "it with fallback=False to see what its nodes lack"
        )
