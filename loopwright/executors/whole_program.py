"""A program as one function: LLVM IR that calls its kernels one after the other.

The address of every value is a constant in that code, so that nothing is interpreted. The function
has the form of a kernel, and is used like one: its arguments are the inputs and the outputs of the
program in order, and its workspace holds the values between kernels. Kernels and constants are
undefined symbols, which become those of an executor in this process; or they are linked to a
library for C, which has a header: weights packed, in memory that processes share, read at their
first use.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loopwright.errors import UsageError
from loopwright.executors.c_headers import HEADER, c_header
from loopwright.executors.callees import Callee, HostStep
from loopwright.executors.executor import Executor
from loopwright.executors.places import HostPlace, PlacedProgram
from loopwright.executors.program import ALIGNMENT, Array, Program, Step, Value, placed
from loopwright.files import Output, check, write
from loopwright.runtime import (
    ArgSpec,
    Artifact,
    Function,
    FunctionSpec,
    Kernel,
    Linked,
    Manifest,
    Module,
    artifact_kind,
    calls_packed,
    linker,
)
from loopwright.runtime import libraries as export


class ProgramWriter:
    """Writes the function, call by call; ``functions`` and ``constants`` are in use, by symbol."""

    def __init__(self, name: str, program: Program, weights: Mapping[int, Array]) -> None:
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, Array] = {}
        #: Offset of the kernels' workspace, behind the values between them.
        self.values_bytes = -(-program.pool_bytes // ALIGNMENT) * ALIGNMENT
        self._name, self._program, self._weights = name, program, weights
        self._symbols: dict[int, str] = {}
        self._lines: list[str] = []
        self._calls = 0
        self._registers = 0
        self._widest = 1
        self._pointers = self._arguments()

    def _arguments(self) -> dict[int, str]:
        """Load the arguments; returns registers of values that are arguments, by number."""
        registers: dict[int, str] = {}
        numbers = (*self._program.inputs, *self._program.outputs)
        for place, n in enumerate(numbers):
            register = f"%argument{place}"
            self._lines += [
                f"  %place{place} = getelementptr ptr, ptr %args, i64 {place}",
                f"  {register} = load ptr, ptr %place{place}",
            ]
            if place < len(self._program.inputs) or self._program.values[n].kind == "stored":
                registers.setdefault(n, register)
        return registers

    def call(self, callee: Callee) -> None:
        """Call the callee of a step; where that fails, the function returns its code."""
        kernel = callee.function
        assert isinstance(kernel, Kernel)  # steps in Python were refused before
        function, given = kernel.function, kernel.given
        if not isinstance(function, Function) or function.values:
            raise UsageError(
                f"kernel {function.name!r} of the model takes sizes, or is for a device"
            )
        self.functions[function.name] = function
        rest = iter(callee.rest)
        pointers = [self._pointer(next(rest)) if a is None else self._constant(a) for a in given]
        self._widest = max(self._widest, len(pointers))
        n = self._calls = self._calls + 1
        for k, pointer in enumerate(pointers):
            self._lines += [
                f"  %slot{n}.{k} = getelementptr ptr, ptr %pointers, i64 {k}",
                f"  store ptr {pointer}, ptr %slot{n}.{k}",
            ]
        self._lines += [
            f"  %code{n} = call i32 @{function.name}(ptr %pointers, ptr %workspace)",
            f"  %good{n} = icmp eq i32 %code{n}, 0",
            f"  br i1 %good{n}, label %after{n}, label %failed",
            f"after{n}:",
        ]

    def _pointer(self, number: int) -> str:
        """Address of a value: an argument, a constant, or a place in the memory between kernels."""
        if number in self._pointers:
            return self._pointers[number]
        if number in self._weights:
            return self._constant(self._weights[number])
        offset = self._program.values[number].offset
        self._registers += 1
        register = f"%value{number}.{self._registers}"
        self._lines.append(f"  {register} = getelementptr i8, ptr %memory, i64 {offset}")
        return register

    def _constant(self, array: Array) -> str:
        symbol = self._symbols.setdefault(id(array), f"lw_constant_{len(self._symbols)}")
        self.constants[symbol] = array
        return f"@{symbol}"

    def _copies(self) -> list[str]:
        """Copy outputs that are also an input, a constant or another output, at the end."""
        lines, first = [], len(self._program.inputs)
        for place, n in enumerate(self._program.outputs, first):
            source, argument = self._pointer(n), f"%argument{place}"
            if source == argument:
                continue
            nbytes = self._program.values[n].nbytes
            lines.append(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr {argument}, ptr {source}, "
                f"i64 {nbytes}, i1 false)"
            )
        return lines

    def text(self) -> str:
        copies = self._copies()
        codes = ", ".join(
            f"[ %code{n}, %{f'after{n - 1}' if n > 1 else 'entry'} ]"
            for n in range(1, self._calls + 1)
        )
        return "\n".join(
            [
                *(f"declare i32 @{name}(ptr, ptr)" for name in self.functions),
                *(f"@{symbol} = external constant i8" for symbol in self.constants),
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
                f"define i32 @{self._name}(ptr %args, ptr %memory) {{",
                "entry:",
                f"  %pointers = alloca [{self._widest} x ptr]",
                f"  %workspace = getelementptr i8, ptr %memory, i64 {self.values_bytes}",
                *self._lines,
                *copies,
                "  ret i32 0",
                "failed:",
                f"  %code = phi i32 {codes}",
                "  ret i32 %code",
                "}",
                "",
            ]
        )


@dataclass(frozen=True)
class WholeProgram:
    text: str  # LLVM IR
    manifest: Manifest
    kernels: Mapping[str, Module]  # whose code it calls, by name
    functions: Mapping[str, Function]  # those of these that it calls, by symbol
    constants: Mapping[str, Array]  # those that it reads, by symbol

    def artifact(self) -> Artifact:
        """The compiled code, with its kernels and constants undefined."""
        cpu = self.manifest.cpu, self.manifest.features
        return Artifact(self.manifest.to_json(), linker.compile_text(self.text, cpu=cpu))

    def module(self) -> Module:
        """The function in this process, with the kernels and constants here."""
        return Module(self.artifact(), link=self._link)

    def _link(self, manifest: Manifest, objects: bytes) -> Linked:
        imports = {symbol: f.address for symbol, f in self.functions.items()}
        imports |= {symbol: int(a.ctypes.data) for symbol, a in self.constants.items()}
        linked = linker.link(objects, [manifest.entry], imports)
        # The code is valid as long as its kernels and constants.
        return Linked(linked.addresses, (linked, self))


def whole_program(name: str, prepared: PlacedProgram) -> WholeProgram:
    """A program of the host as one function of that name. UsageError where a kernel is not of
    compiled code of the host, calls Python, or has the name of the function.
    """
    program, used = prepared.program, dict[str, Module]()
    for step in program.steps:
        module = prepared.kernels[step.kernel]
        if isinstance(module, HostStep):
            raise UsageError(
                f"step {step.kernel!r} of the model runs in Python ({module.by}); compile it with "
                "fallback=False to see what its nodes lack"
            )
        used[step.kernel] = module
    contents = [_checked(kernel, module) for kernel, module in used.items()]
    if not contents:
        raise UsageError(
            "the model computes nothing (every output is an input or a constant); there is "
            "nothing to build"
        )
    code = ProgramWriter(name, program, prepared.constants)
    for callee in prepared.callees:
        code.call(callee)
    if name in code.functions:
        raise UsageError(f"a kernel of the model is called {name!r}, too; give another name")
    functions = code.functions.values()
    inputs = [ArgSpec(v.name, v.shape, v.dtype, False) for v in program.input_values]
    outputs = [ArgSpec(v.name, v.shape, v.dtype, True) for v in program.output_values]
    spec = FunctionSpec(
        name,
        (*inputs, *outputs),
        code.values_bytes + max(f.workspace_bytes for f in functions),
        max(f.parallel_workspace_bytes for f in functions),
        any(f.uses_pool for c in contents for f in c.functions),
    )
    needs = sorted({n for c in contents for n in c.needs})
    manifest = replace(contents[0], entry=name, functions=(spec,), needs=tuple(needs), workload={})
    return WholeProgram(code.text(), manifest, used, code.functions, code.constants)


def _checked(kernel: str, module: Module) -> Manifest:
    contents = module.artifact.contents
    if artifact_kind(contents.kind).holds != "object":
        raise UsageError(
            f"kernel {kernel!r} of the model is a {contents.kind}; kernels that one function calls "
            "are object files of this machine: compile the model for llvm, or c"
        )
    if calls_packed(contents):
        raise UsageError(f"kernel {kernel!r} of the model calls functions of Python")
    return contents


class AotExecutor(Executor):
    """A model that is one function, ready to run.

    Its memory is the inputs, the outputs and one workspace. Named after TVM's, whose methods it
    has. `Model.aot_executor` makes one in this process; of a library that `Model.export_library`
    wrote, `loopwright.load_module` gives the module, and neither LLVM nor a compiler is needed.

    Args:
        module: its entry function takes inputs and then outputs.
        constants: arrays of its model, by name; None: of a library, which has its own.

    UsageError where the function takes sizes, or is for a device.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (2,))))
        >>> path = lw.graph.compile(module, "llvm").export_library("relu.so")
        >>> executor = lw.executors.AotExecutor(lw.load_module(path))
        >>> executor.run(x=np.array([1, -1], "float32"))
        >>> print(executor.get_output(0).numpy())
        [1. 0.]
    """

    _apart = True

    def __init__(self, module: Module, constants: Mapping[str, Array] | None = None) -> None:
        function = module[module.entry_name]
        if not isinstance(function, Function):
            raise UsageError(f"{module.entry_name} takes sizes, or is for a device")
        weights = constants or {}
        values = [
            Value(a.name, a.shape, a.dtype.name, "stored" if a.output else "input")
            for a in function.args
        ]
        numbers = range(len(values))
        inputs = [n for n in numbers if values[n].kind == "input"]
        outputs = numbers[len(inputs) :]
        # The code reads these: here they are memory of any dtype that no output overlaps.
        values += [Value(n, (), "uint8", "constant") for n in weights]
        step = Step(function.name, tuple(numbers), len(outputs))
        names = [values[n].name for n in outputs]
        program = placed(values, [step], inputs, outputs, names)
        arrays = dict(enumerate(weights.values(), len(numbers)))
        callees = [Callee(function, (), step.args)]
        kernels = {function.name: module}
        prepared = PlacedProgram(program, kernels, HostPlace(), arrays, callees, arrays)
        self._begin(prepared)

    def another(self) -> AotExecutor:
        """The same model, ready to run beside this one: the code and the weights are shared."""
        return AotExecutor._over(self._placed)


_MOST = 1 << 31  # bytes of weights at most: code reaches them by distances of 32 bits


def c_name(path: Path) -> str:
    """C identifier of a library's function: the file's name without its ending."""
    name = re.sub(r"\W", "_", path.name.partition(".")[0], flags=re.ASCII)
    if not name.strip("_"):
        raise UsageError(f"export_library: {path.name!r} gives no name for a function of C")
    return f"model_{name}" if name[0].isdigit() else name


def export_model(
    whole: WholeProgram,
    path: Path,
    cc: str | None = None,
    fcompile: Callable[..., object] | None = None,
    *,
    force: bool = False,
) -> Path:
    header = path.with_suffix(".h")
    check((header, HEADER), force=force)
    with tempfile.TemporaryDirectory(prefix="loopwright-weights-") as folder:
        weights = _weights_object(whole.constants, Path(folder) / "weights.bin")
    kernels = {
        f"kernel_{n}.o": module.artifact.objects for n, module in enumerate(whole.kernels.values())
    }
    more = {"weights.o": weights, **kernels}
    written = export.export(whole.artifact(), path, cc, fcompile, more=more, force=force)
    write(Output(header, c_header(whole.manifest, "a model").encode(), HEADER), force=force)
    return written


def _weights_object(constants: Mapping[str, Array], room: Path) -> bytes:
    """An object file with the elements of arrays under their symbols, which LLVM's assembler takes
    from a file, so that they are never text.
    """
    lines, at = ['.section .rodata.lw_weights,"a",@progbits'], 0
    with room.open("wb") as file:
        for symbol, a in constants.items():
            lines += [f".balign {ALIGNMENT}", f".globl {symbol}", f"{symbol}:"]
            lines += [f'.incbin "{room}",{at},{a.nbytes}'] if a.nbytes else []
            file.write(np.ascontiguousarray(a).tobytes())
            at += a.nbytes
    if at >= _MOST:
        raise UsageError(
            f"export_library: the model has {at} bytes of weights; a library holds up to {_MOST}. "
            "Use save, which has no limit"
        )
    escaped = (line.replace("\\", "\\5C").replace('"', "\\22") for line in lines)
    text = "".join(f'module asm "{line}"\n' for line in escaped)
    return linker.compile_text(text, optimise=False, portable=True)
