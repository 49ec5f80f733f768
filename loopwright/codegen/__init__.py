"""Code generation: loop IR to code of a target."""

from __future__ import annotations

from loopwright.codegen.llvm import Code, compile_func

__all__ = ["Code", "compile_func"]
