"""The contract of targets, as a test class to subclass, which names the target::

    class TestC(TargetContract):
        target = "c -num-threads=2"
        exports = True

Each program of `PROGRAMS` is built and compared with NumPy.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.driver import compile as compile_trace
from loopwright.errors import ArgumentError, BuildError, CodegenError, LoopwrightError
from loopwright.runtime import Artifact, Device, Module, NDArray, array, cpu, device, load_module
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target
from loopwright.te import Dag
from loopwright.testing.numpy_eval import Array


@dataclass
class ScheduledProgram:
    s: Schedule
    args: list[te.Tensor]  # inputs, then the one output
    reference: Callable[..., Array]  # the output by NumPy, from arrays of the inputs
    exact: bool = False  # whether the result has one right value to the bit

    def arrays(self) -> list[Array]:
        """Arrays of the arguments; the output is filled with a value that no program computes."""
        rng = np.random.default_rng(0)
        inputs = [(rng.random(t.static_shape) * 16 - 8).astype(t.dtype) for t in self.args[:-1]]
        return [*inputs, np.full(self.args[-1].static_shape, 77, self.args[-1].dtype)]

    def check(self, arrays: list[Array]) -> None:
        expected = np.asarray(self.reference(*arrays[:-1]), arrays[-1].dtype)
        if self.exact:
            np.testing.assert_array_equal(arrays[-1], expected)
        else:
            np.testing.assert_allclose(arrays[-1], expected, rtol=1e-5, atol=1e-5)


def elementwise() -> ScheduledProgram:
    """Two stages over a size that no factor divides; the first is inlined, a loop is a vector."""
    a = te.placeholder((37, 11), name="A")
    b = te.compute((37, 11), lambda i, j: a[i, j] * 2 + 1, name="B")
    c = te.compute((37, 11), lambda i, j: te.exp(-te.abs(b[i, j])), name="C")
    s = create_schedule(c)
    s[b].compute_inline()
    s[c].vectorize(s[c].split(c.op.axis[1], factor=4)[1])
    return ScheduledProgram(s, [a, c], lambda x: np.exp(-np.abs(x * 2 + 1)))


def matmul() -> ScheduledProgram:
    """A tiled product with a copy of its tile, rows in parallel, an unrolled and a vector loop."""
    a, b = te.placeholder((13, 24), name="A"), te.placeholder((24, 20), name="B")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((13, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    tile = s.cache_write(c, "local")
    i, j = c.op.axis
    io, jo, _, _ = s[c].tile(i, j, 4, 8)
    s[c].parallel(io)
    s[tile].compute_at(s[c], jo)
    ti, tj = s[tile].op.axis
    ko, ki = s[tile].split(s[tile].op.reduce_axis[0], factor=4)
    s[tile].reorder(ko, ki, ti, tj)
    s[tile].unroll(ki)
    s[tile].vectorize(tj)
    return ScheduledProgram(s, [a, b, c], lambda x, y: x @ y)


def integers() -> ScheduledProgram:
    """Division, remainder and shifts of int32; products wrap."""
    a, b = te.placeholder((50,), "int32", name="A"), te.placeholder((50,), "int32", name="B")
    c = te.compute(
        (50,), lambda i: (a[i] * (1 << 29) + b[i] // 3) ^ (a[i] % 5 - (b[i] >> 1)), name="C"
    )

    def reference(x: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray((x * np.int32(1 << 29) + y // 3) ^ (x % 5 - (y >> 1)))

    return ScheduledProgram(create_schedule(c), [a, b, c], reference, exact=True)


def padding() -> ScheduledProgram:
    """A padded window: reads at the edge are guarded, the padding is computed in a tile."""
    a = te.placeholder((9, 9), name="A")
    p = te.compute(
        (11, 11),
        lambda i, j: te.if_then_else(
            te.all(i >= 1, i < 10, j >= 1, j < 10), a[i - 1, j - 1], te.const(0.0)
        ),
        name="P",
    )
    x, y = te.reduce_axis((0, 3), name="x"), te.reduce_axis((0, 3), name="y")
    c = te.compute((9, 9), lambda i, j: te.max(p[i + x, j + y], axis=[x, y]), name="C")
    s = create_schedule(c)
    io, _ = s[c].split(c.op.axis[0], factor=2)
    s[p].compute_at(s[c], io)

    def reference(v: Array) -> Array:
        wide = np.pad(v, 1)
        return np.asarray(
            np.max([wide[i : i + 9, j : j + 9] for i in range(3) for j in range(3)], axis=0)
        )

    return ScheduledProgram(s, [a, c], reference, exact=True)


PROGRAMS: dict[str, Callable[[], ScheduledProgram]] = {
    "elementwise": elementwise,
    "matmul": matmul,
    "integers": integers,
    "padding": padding,
}


def runs_here(target: str) -> bool:
    """Whether this machine can build and run code for a target; ``c`` needs a compiler, and code
    for CUDA NVRTC alone: without a device, it is compiled and not run.
    """
    kind = Target(target).kind
    if kind == "cuda":
        return importlib.util.find_spec("cuda") is not None
    if is_for_devices(target):
        return Device(kind).exist
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if "-mcpu=x86-64" in target and not x86:
        return False
    resolved = Target(target)
    return not resolved.missing and (resolved.kind != "c" or shutil.which(resolved.cc) is not None)


def is_for_devices(target: str) -> bool:
    return "gpu" in Target(target).keys


class TargetContract:
    """Subclass, and set ``target`` to a target string."""

    target: ClassVar[str]
    exports: ClassVar[bool] = False  # whether kernels can be written as shared objects
    threads: ClassVar[bool] = False  # whether loops can be bound to the threads of a GPU

    @pytest.fixture(autouse=True)
    def _skip_where_it_does_not_run(self) -> None:
        if not runs_here(self.target):
            pytest.skip(f"{self.target} does not run on this machine")

    def build(self, program: ScheduledProgram, name: str = "main") -> Module:
        return build(program.s, program.args, target=self.target, name=name)

    def place(self, a: Array) -> Array | NDArray:
        """An array where kernels of the target take it: the array itself, or a copy on a device,
        without which the test ends here: the build was tested.
        """
        home = device(self.target)
        if home == cpu():
            return a
        if not home.exist:
            pytest.skip(f"built, and not run: {home.why_absent()}")
        return array(a, device=home)

    def call(self, f: Module, *arrays: Array) -> None:
        """Call a module on arrays of the host, the last of which becomes the result."""
        placed = [self.place(a) for a in arrays]
        f(*placed)
        for a, there in zip(arrays, placed, strict=True):
            a[...] = there.numpy() if isinstance(there, NDArray) else there

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_the_result_is_that_of_numpy(self, name: str) -> None:
        program = PROGRAMS[name]()
        arrays = program.arrays()
        before = [a.copy() for a in arrays[:-1]]
        self.call(self.build(program), *arrays)
        program.check(arrays)
        for a, b in zip(arrays, before, strict=False):
            np.testing.assert_array_equal(a, b)

    def test_a_size_is_an_argument_of_a_symbolic_program(self) -> None:
        n = te.var("n")
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1, name="B")
        f = build(create_schedule(b), [a, b], target=self.target)
        for length in (1, 7, 32):
            x, y = np.arange(length, dtype="float32"), np.zeros(length, "float32")
            self.call(f, x, y)
            np.testing.assert_array_equal(y, x + 1)

    def test_the_same_call_gives_the_same_bits(self) -> None:
        program = matmul()
        f, arrays = self.build(program), program.arrays()
        self.call(f, *arrays)
        first = arrays[-1].copy()
        self.call(f, *arrays)
        np.testing.assert_array_equal(arrays[-1], first)

    def test_a_builder_process_needs_only_json(self) -> None:
        program = matmul()
        dag = Dag.from_json(json.loads(json.dumps(program.s.dag.to_json())))
        trace = json.loads(json.dumps(program.s.trace_json()))
        ids = program.s.arg_ids(program.args)
        artifact = compile_trace(dag, trace, ids, Target(self.target))
        manifest = json.loads(json.dumps(artifact.manifest))
        arrays = program.arrays()
        self.call(Module(Artifact(manifest, bytes(artifact.objects))), *arrays)
        program.check(arrays)

    def test_what_is_saved_can_be_loaded(self, tmp_path: Path) -> None:
        program = elementwise()
        self.build(program, "scaled").save(tmp_path / "kernel.o")
        f, arrays = load_module(tmp_path / "kernel.o"), program.arrays()
        assert f.entry_name == "scaled"
        self.call(f, *arrays)
        program.check(arrays)

    def test_an_export_stands_alone_or_is_refused(self, tmp_path: Path) -> None:
        program, path = matmul(), tmp_path / "kernel.so"
        f = self.build(program)
        if not self.exports:
            with pytest.raises(LoopwrightError):
                f.export_library(path)
            return
        arrays = program.arrays()
        self.call(load_module(f.export_library(path)), *arrays)
        program.check(arrays)

    def test_wrong_arguments_are_refused_before_anything_runs(self) -> None:
        program = elementwise()
        f, (a, b) = self.build(program), program.arrays()
        with pytest.raises(ArgumentError, match="'A'"):
            f(self.place(a.astype("float64")), self.place(b))
        with pytest.raises(ArgumentError, match="'A'"):
            f(self.place(a[1:]), self.place(b))
        with pytest.raises(ArgumentError, match="2 arguments"):
            f(self.place(a))

    def test_a_name_that_is_none_is_refused(self) -> None:
        with pytest.raises(BuildError, match="cannot be used"):
            self.build(elementwise(), "not a name")

    def test_threads_run_or_are_refused(self) -> None:
        a = te.placeholder((32,), name="A")
        b = te.compute((32,), lambda i: a[i] * 3, name="B")
        s = create_schedule(b)
        outer, inner = s[b].split(b.op.axis[0], factor=8)
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.x"))
        if not self.threads:
            with pytest.raises(CodegenError, match=r"blockIdx\.x"):
                build(s, [a, b], target=self.target)
            return
        x, y = np.arange(32, dtype="float32"), np.zeros(32, "float32")
        self.call(build(s, [a, b], target=self.target), x, y)
        np.testing.assert_array_equal(y, x * 3)
