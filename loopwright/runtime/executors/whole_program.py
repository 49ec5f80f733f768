"""A program as one function: LLVM IR that calls its kernels one after the other.

The address of every value is a constant in that code, so that nothing is interpreted. The
function has the form of a kernel, ``int32_t f(void **args, void *workspace)``: its arguments are
the inputs and the outputs of the program in order, and its workspace holds the values between
kernels. It is used like a kernel (checked calls, timing, libraries).

Kernels and constants are symbols that the code does not define. In this process they are resolved
to the kernels and arrays of an executor; in a library they are linked to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.runtime import linker
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.kinds import artifact_kind
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest
from loopwright.runtime.artifacts.objects import calls_packed
from loopwright.runtime.executors.callees import Callee
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.program import Program
from loopwright.runtime.executors.whole_program_code import Code
from loopwright.runtime.function import Function
from loopwright.runtime.linker import Linked
from loopwright.runtime.module import Module

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WholeProgram:
    """A program as one function."""

    #: LLVM IR.
    text: str
    manifest: Manifest
    #: Modules whose code it calls, by name.
    kernels: Mapping[str, Module]
    #: Functions of these that it calls, by symbol.
    functions: Mapping[str, Function]
    #: Arrays that it reads, by symbol.
    constants: Mapping[str, Array]

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


def whole_program(
    name: str,
    program: Program,
    kernels: Mapping[str, Module | HostStep],
    called: Sequence[Callee],
    weights: Mapping[int, Array],
) -> WholeProgram:
    """A program as one function of that name; `called` are the callees of its steps.

    UsageError where a kernel is not of compiled code of the host, a step runs in Python or a kernel
    calls it, or the function has the name of a kernel.
    """
    used = {step.kernel: _compiled(step.kernel, kernels) for step in program.steps}
    contents = [_checked(kernel, module) for kernel, module in used.items()]
    if not contents:
        raise UsageError("the model has no kernels: what it gives, it is given; there is no code")
    code = Code(name, program, weights)
    for callee in called:
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


def _compiled(kernel: str, kernels: Mapping[str, Module | HostStep]) -> Module:
    module = kernels[kernel]
    if isinstance(module, HostStep):
        raise UsageError(
            f"step {kernel!r} of the model runs in Python ({module.by}); compile it with "
            "fallback=False to see what its nodes lack"
        )
    return module


def _checked(kernel: str, module: Module) -> Manifest:
    """The manifest of a kernel, which must be code that another function can call."""
    contents = module.artifact.contents
    if artifact_kind(contents.kind).holds != "object":
        raise UsageError(
            f"kernel {kernel!r} of the model is a {contents.kind}; kernels that one function calls "
            "are object files of this machine: compile the model for llvm, or c"
        )
    if calls_packed(contents):
        raise UsageError(f"kernel {kernel!r} of the model calls functions of Python")
    return contents
