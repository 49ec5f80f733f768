"""The code of a program that is one function, as LLVM IR; see `whole_program`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.runtime.constants import FunctionWithConstants
from loopwright.runtime.executors.callees import Callee
from loopwright.runtime.executors.program import ALIGNMENT, Program
from loopwright.runtime.function import Function

Array = npt.NDArray[Any]


class Code:
    """Writes the function, call by call.

    ``functions`` and ``constants`` are those in use, by symbol. ``values_bytes`` is the offset of
    the kernels' workspace, behind the values between them.
    """

    def __init__(self, name: str, program: Program, weights: Mapping[int, Array]) -> None:
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, Array] = {}
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
        found: dict[int, str] = {}
        numbers = (*self._program.inputs, *self._program.outputs)
        for place, n in enumerate(numbers):
            register = f"%argument{place}"
            self._lines += [
                f"  %place{place} = getelementptr ptr, ptr %args, i64 {place}",
                f"  {register} = load ptr, ptr %place{place}",
            ]
            if place < len(self._program.inputs) or self._is_made(n):
                found.setdefault(n, register)
        return found

    def _is_made(self, number: int) -> bool:
        return self._program.values[number].kind == "stored"

    def call(self, callee: Callee) -> None:
        """Call the callee of a step; where that fails, the function returns its code."""
        function, given = _code_of(callee)
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
        register = f"%value{number}.{self._next()}"
        self._lines.append(f"  {register} = getelementptr i8, ptr %memory, i64 {offset}")
        return register

    def _constant(self, array: Array) -> str:
        symbol = self._symbols.setdefault(id(array), f"lw_constant_{len(self._symbols)}")
        self.constants[symbol] = array
        return f"@{symbol}"

    def _next(self) -> int:
        self._registers += 1
        return self._registers

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
        """The whole as LLVM IR."""
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


def _code_of(callee: Callee) -> tuple[Function, tuple[Any, ...]]:
    """The function that a step calls, and its given arguments; None: by the call."""
    if isinstance(callee.function, FunctionWithConstants):
        function, given = callee.function.function, callee.function.given
    else:
        function = callee.function[callee.function.entry_name]
        given = (None,) * len(callee.rest)
    if not isinstance(function, Function) or function.values:
        raise UsageError(f"kernel {function.name!r} of the model takes sizes, or is for a device")
    return function, given
