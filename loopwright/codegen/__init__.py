"""Code generation: loop IR to code of a target, by the generators in `codegen.backends`."""

from __future__ import annotations

from loopwright.codegen.code import Code
from loopwright.codegen.code import CodePart
from loopwright.codegen.code import SourceText
from loopwright.lazy import lazy_names
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.codegen.backends import Backend
    from loopwright.codegen.backends import LoweredProgram
    from loopwright.codegen.backends import backend_names
    from loopwright.codegen.backends import backend_of
    from loopwright.codegen.backends import register_backend
    from loopwright.codegen.backends import unregister_backend
    from loopwright.codegen.build import Binds
    from loopwright.codegen.build import build_func
    from loopwright.codegen.build import compile
    from loopwright.codegen.build import compile_lowered
    from loopwright.codegen.build import compile_schedule
    from loopwright.codegen.build import lower_trace
    from loopwright.codegen.build_queue import BuildQueue
    from loopwright.codegen.code import C_FUNCTIONS
    from loopwright.codegen.kernel_cache import KernelCache
    from loopwright.codegen.kernel_cache import program_key
    from loopwright.codegen.manifests import device_code
# Imported at their first use, by other rooms.


__all__ = ["Code", "CodePart", "SourceText"]

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
