"""LLVM in this process: link object files into it, and turn the runtime's own IR text into objects.

An ORC engine keeps about 9 KB for every library that was ever linked in it (measured with llvmlite
0.50, with JITLink and without), so after 256 of them a new engine takes over, and the old one goes
with the last code that it holds.
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.errors import InternalError, RunError
from loopwright.runtime.caches import content_key, program_cache

#: Objects of llvmlite, which has no types.
_Llvmlite = Any

_lock = threading.RLock()
# A library name can never be used again in one engine, not even after unlinking.
_numbers = itertools.count()
#: Number of links after which an engine is replaced.
LINKS_PER_ENGINE = 256
_engine: _Llvmlite = None
_engine_links = 0


@dataclass(frozen=True, slots=True)
class Linked:
    """Code in memory, mapped as long as this object lives."""

    addresses: Mapping[str, int]
    _tracker: object = field(repr=False)
    #: Describes a failure that the code reported as this number, if it can.
    complaint: Callable[[int], Exception | None] | None = None

    def keep_forever(self) -> Linked:
        """Never unmap this code, not even while the interpreter ends: threads may run in it."""
        # A reference that is never released: the destructor of the owner cannot run.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))
        return self


@lru_cache(maxsize=1)
def _binding() -> _Llvmlite:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    if platform.libc_ver()[0] == "glibc":
        # Kernels call expf and the like; an interpreter may have come without libm.
        ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    return llvm


def is_loaded() -> bool:
    """Whether LLVM is in this process, since something was linked or compiled."""
    return _binding.cache_info().currsize > 0


def link(objects: bytes, exports: Iterable[str], imports: Mapping[str, int] = {}) -> Linked:
    """Link an object file for this machine into this process; `exports` are symbols to look up.

    `imports` are addresses of symbols that it needs, save those of the C and maths library.
    RunError where the object is malformed, or a symbol is missing on either side.
    """
    global _engine, _engine_links
    names = tuple(exports)
    with _lock:
        builder = _binding().JITLibraryBuilder().add_object_img(objects).add_current_process()
        for name, address in imports.items():
            builder.import_symbol(name, address)
        for name in names:
            builder.export_symbol(name)
        try:
            if _engine is None or _engine_links == LINKS_PER_ENGINE:
                _engine = _binding().create_lljit_compiler(use_jit_link=True)
                _engine_links = 0
            _engine_links += 1
            tracker = builder.link(_engine, f"loopwright.{next(_numbers)}")
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise RunError(f"linking {', '.join(names) or 'an object'} failed: {text}") from error
        # An attribute outlives the tracker's destructor, which needs the engine.
        tracker.engine = _engine
        return Linked({name: tracker[name] for name in names}, tracker)


def compile_text(
    text: str, optimise: bool = True, portable: bool = False, cpu: tuple[str, str] | None = None
) -> bytes:
    """Compile LLVM IR text for the CPU of this machine; returns the object file.

    For the runtime's own small helpers; kernels come through ``loopwright.codegen``. The text has
    no triple. ``portable`` makes code for every CPU of this architecture, ``cpu`` for another one
    by its name and feature string. What was compiled before is kept, also on disk.
    """
    name, features = ("", "") if portable else cpu or (host_cpu(), host_features())
    compiler = Path(__file__).read_bytes(), _version(), host_triple()
    key = content_key(*compiler, text, optimise, name, features)
    return program_cache().get_or_make(key, lambda: _compiled(text, optimise, name, features))


def _compiled(text: str, optimise: bool, name: str, features: str) -> bytes:
    llvm = _binding()
    with _lock:
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=name, features=features, opt=3, reloc="pic", codemodel="small"
        )
        try:
            module = llvm.parse_assembly(text)
        except RuntimeError as error:
            raise InternalError(f"LLVM refuses a helper of the runtime: {error}") from error
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        if optimise:
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = False
            options.loop_unrolling = False
            run_passes(module, machine, options)
        return bytes(machine.emit_object(module))


def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


def run_passes(module: _Llvmlite, machine: _Llvmlite, options: _Llvmlite) -> None:
    """Run the passes of tuning options of llvmlite over a module, in place."""
    from llvmlite.binding.newpassmanagers import NewPassManager

    builder = _binding().create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    # llvmlite 0.50 frees no pass manager, 60 kB each: its class inherits ObjectRef's method first.
    NewPassManager._dispose(passes)
    passes.detach()


@lru_cache(maxsize=1)
def host_cpu() -> str:
    """LLVM's name of this machine's CPU, such as ``znver4``."""
    return str(_binding().get_host_cpu_name())


@lru_cache(maxsize=1)
def host_features() -> str:
    """LLVM's feature string of this machine, ``+avx2,-avx512f,...``."""
    return str(_binding().get_host_cpu_features().flatten())


@lru_cache(maxsize=1)
def host_triple() -> str:
    """LLVM's triple of this machine, such as ``x86_64-unknown-linux-gnu``."""
    return str(_binding().get_default_triple())


def architecture() -> str:
    """``x86_64``, ``aarch64`` or the machine's own name; ``arm64`` is ``aarch64``."""
    name = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def on_linux() -> bool:
    """Whether this is Linux, whose system calls the runtime may use directly."""
    return sys.platform.startswith("linux")
