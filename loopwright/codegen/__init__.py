"""Code generation: loop IR to code of a target."""

from __future__ import annotations

from loopwright.codegen.c import compiler as c
from loopwright.codegen.llvm import compiler as llvm
from loopwright.codegen.llvm.compiler import Code
from loopwright.ir.stmt import Func
from loopwright.target import Target

__all__ = ["Code", "compile_func"]


def compile_func(f: Func, target: Target) -> Code:
    """Compile a lowered function for an ``llvm`` or ``c`` target; raises what they raise."""
    return c.compile_func(f, target) if target.kind == "c" else llvm.compile_func(f, target)
