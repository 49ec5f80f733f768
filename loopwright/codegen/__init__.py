"""Code generation: loop IR to code of a target, by the generators in `codegen.backends`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.codegen.code import Code, CodePart, SourceText
from loopwright.lazy import lazy_names

if TYPE_CHECKING:
    from loopwright.codegen.backends import (
        Backend,
        LoweredProgram,
        backend_names,
        backend_of,
        register_backend,
        unregister_backend,
    )
    from loopwright.codegen.build import (
        Binds,
        build_func,
        compile,
        compile_lowered,
        compile_schedule,
        lower_trace,
    )
    from loopwright.codegen.build_queue import BuildQueue
    from loopwright.codegen.code import C_FUNCTIONS
    from loopwright.codegen.kernel_cache import KernelCache, program_key
    from loopwright.codegen.manifests import device_code
# Imported at their first use, by other rooms.


__all__ = ["Code", "CodePart", "SourceText"]

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
