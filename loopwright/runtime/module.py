"""`Module`: a compiled program with its functions, sources and timing."""

from __future__ import annotations

import copy
import ctypes
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loopwright.errors import UsageError, did_you_mean
from loopwright.files import FileKind, Output, write
from loopwright.runtime import libraries
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.artifact import Artifact, is_sealed
from loopwright.runtime.artifacts.kinds import CUDA_CUBIN, Link
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.devices.device import Device
from loopwright.runtime.kernels import timing
from loopwright.runtime.kernels.constants import (
    FunctionWithConstants,
    Parts,
    parts_of,
    with_constants,
)
from loopwright.runtime.kernels.image import DeviceImage, Image
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.kernels.symbolic import function_of
from loopwright.runtime.libraries import LIBRARY, link_loaded
from loopwright.runtime.linker import Linked

#: Texts of a program by kind, or functions that write them.
Sources = Mapping[str, str | Callable[[], str]]
#: Marks the end of a text in a file, behind the language's comment sign.
_MARK = " Written by loopwright."
_COMMENTS = {"asm": "#", "ir": "#", "ll": ";", "ll-unoptimised": ";"}
_TEXT = FileKind("a text", lambda data: data.endswith(f"{_MARK}\n".encode()))
#: An ELF file for NVIDIA's devices.
_CUBIN = FileKind("a cubin", lambda data: data[:4] == b"\x7fELF" and data[18:20] == b"\xbe\0")

_SYMBOL = "lw_manifest"


class DeviceKernels:
    """The kernels that a module runs on a device, as TVM has them among its imported modules.

    Attributes:
        type_key: kind of their target, ``"cuda"`` or ``"opencl"``.
        imported_modules: none.
    """

    imported_modules: tuple[()] = ()

    def __init__(self, module: Module) -> None:
        self._module, self.type_key = module, module.type_key

    def get_source(self, kind: str = "") -> str:
        """Their text; see `Module.get_source`."""
        return self._module.get_source(kind)

    def save(self, path: str | os.PathLike[str], fmt: str = "", *, force: bool = False) -> Path:
        """Write one of their texts, or their machine code, see `Module.save`: by default what the
        path ends in, such as ``.ptx``, ``.cu`` or ``.cl``."""
        return self._module.save(path, fmt or Path(path).suffix.lstrip("."), force=force)

    def __repr__(self) -> str:
        return f"<DeviceKernels of {self._module!r}>"


class Module:
    """A compiled program that can be called, inspected, timed and saved.

    Its code is linked at the first call and unmapped when the module and its functions are gone.
    Calling the module calls its entry function.

    Args:
        sources: texts of the program by kind (``ll``, ``asm``, ``c``, ``ir``), or functions that
            write them; the first is the default of `get_source`. Or a function that returns all.
        link: links the artifact; default as its kind says.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> b = np.empty(4, "float32")
        >>> f(np.zeros(4, "float32"), b)
        >>> print(f.entry_name, b)
        add_one [1. 1. 1. 1.]
    """

    def __init__(
        self,
        artifact: Artifact,
        sources: Sources | Callable[[], Sources] | None = None,
        link: Link | None = None,
    ) -> None:
        self.artifact = artifact
        self._sources = sources or {}
        self._kind = artifact_kinds.artifact_kind(artifact.kind)
        on_device = self._kind.device != "cpu" and self._kind.link is None and link is None
        image: Image | DeviceImage
        image = DeviceImage(artifact) if on_device else Image(artifact, link)
        self._cubin = b""
        if isinstance(image, DeviceImage) and self._kind == CUDA_CUBIN:
            self._cubin = image.code.image
        self._functions = {f.name: function_of(image, f) for f in artifact.contents.functions}
        self._entry = self._functions[artifact.entry]
        self._imported: list[Module] = []

    @property
    def type_key(self) -> str:
        """Kind of target that it was built for, such as ``llvm``; ``library`` if exported."""
        return self._kind.target or "library"

    @property
    def format(self) -> str:
        """Kind of file that `save` writes, such as ``o``, ``so`` or ``json``."""
        return self._kind.extension

    @property
    def is_binary(self) -> bool:
        """Whether that file holds machine code."""
        return self._kind.holds != "program"

    @property
    def entry_name(self) -> str:
        """Name of the function that calling the module runs."""
        return self._entry.name

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of all functions."""
        return tuple(self._functions)

    def get_function_list(self) -> list[str]:
        """Names of all functions, as a list."""
        return list(self._functions)

    def get_function(self, name: str, query_imports: bool = False) -> Kernel:
        """The function of that name.

        ``query_imports`` looks into imported modules as well, where this one has none of that name:
        in the order of their import, each with what it imports itself. AttributeError, with the
        names that exist, where there is none.
        """
        modules = list(self._family()) if query_imports else [self]
        for module in modules:
            if name in module._functions:
                return module._functions[name]
        names = [n for module in modules for n in module._functions]
        elsewhere = any(name in module._functions for module in self._family())
        hint = "; an imported module has one: pass query_imports=True" if elsewhere else ""
        raise AttributeError(
            f"module has no function {name!r}{did_you_mean(name, names)}; it has "
            f"{', '.join(names)}{hint}"
        )

    def _family(self) -> Iterator[Module]:
        """This module and all that it imports, also indirectly, each once, nearest first."""
        seen: dict[int, Module] = {}
        waiting = [self]
        while waiting:
            module = waiting.pop(0)
            if id(module) in seen:
                continue
            seen[id(module)] = module
            waiting = [*module._imported, *waiting]
            yield module

    def import_module(self, module: Module) -> None:
        """Let `get_function` find the functions of another module, with ``query_imports=True``.

        The other module stays alive as long as this one; files hold this module alone. UsageError
        where it is no module, or imports this one already.
        """
        if not isinstance(module, Module):
            raise UsageError(f"import_module: expected a module, got {module!r}")
        if any(m is self for m in module._family()):
            raise UsageError(
                f"import_module: {module!r} is this module or imports it already; modules import "
                "each other in one direction"
            )
        self._imported.append(module)

    @property
    def imported_modules(self) -> tuple[Module | DeviceKernels, ...]:
        """The code of its kernels, if they run on a device; then the modules that were imported, in
        order.

        Example:
            >>> A = te.placeholder((64,), name="A")
            >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
            >>> f = lw.build([A, B], "opencl")
            >>> print("__kernel" in f.imported_modules[0].get_source())
            True
        """
        kernels = (DeviceKernels(self),) if self._kind.device != "cpu" else ()
        return (*kernels, *self._imported)

    @property
    def metadata(self) -> dict[str, Any]:
        """The contents of the manifest, as data that may be changed.

        Kind, CPU, threads, and of each function its arguments (shape, dtype, whether it is an
        output), its workspace and the packed functions that it calls.
        """
        return copy.deepcopy(dict(self.artifact.manifest))

    def parts(self) -> Parts | None:
        """The two parts of the entry function; None where it has only one.

        It has two where stages at the root depend on constant tensors alone.
        """
        return parts_of(self.artifact.contents.function(self.entry_name), self._functions)

    def timed_call(self, *args: object) -> KernelCall:
        """A call on checked arguments, as tuning times it; errors as of `bind`.

        Where the function has `parts`, its ``run`` runs both, and `time_call` times the second.
        """
        parts = self.parts()
        return self._entry.bind(*args) if parts is None else parts.bind(args)

    def with_constants(self, /, *values: object, **named: object) -> FunctionWithConstants:
        """The entry function as a callable of its other arguments.

        Stages at the root that depend on constants alone are computed now, once. The values are
        copied: a later change of these arrays has no effect.

        Args:
            values: the constants in the order of the arguments.
            named: further ones by the name of the argument. NumPy arrays, `NDArray`, or
                objects with ``__dlpack__``; for a device arrays of the host are copied to it.

        Raises:
            ArgumentError: the function has no constants, one is missing, given twice, unknown, or
                of another shape or dtype.
        """
        spec = self.artifact.contents.function(self.entry_name)
        return with_constants(self._entry, spec, self.parts(), values, named)

    def __getitem__(self, name: str) -> Kernel:
        return self.get_function(name)

    def __call__(self, *args: object) -> None:
        """Run the entry function; see `Function`.

        Stages that depend on constant arguments alone are computed in each call; `with_constants`
        computes them once.
        """
        self._entry(*args)

    def bind(self, *args: object) -> KernelCall:
        """Check the arguments of the entry function once, for many calls on the same arrays.

        They are, as in a call, one array per argument, outputs included, and sizes that it takes.
        The bound call takes no arguments and checks nothing. It keeps the arrays alive and works on
        the memory that they have now; their elements count at each call. On a device a call of it
        launches, as a call of the module does. ArgumentError where an argument is not acceptable,
        or no output has elements; RunError where the workspace is over the limit.
        """
        return self._entry.bind(*args)

    def get_source(self, kind: str = "") -> str:
        """The program's text of a kind; UsageError where there is none, as of one that was loaded.

        ``llvm`` has ``"ll"`` (LLVM IR, optimised), ``"ll-unoptimised"`` and ``"asm"``, ``c`` has
        ``"c"`` and ``"asm"``, every target ``"ir"`` (the loop nest); the default is the first.
        """
        texts = self._texts()
        if not texts:
            raise UsageError("the module was loaded without its sources")
        kind = kind or next(iter(texts))
        if kind not in texts:
            have = ", ".join(texts)
            raise UsageError(
                f"no source of kind {kind!r}{did_you_mean(kind, texts)}; available: {have}"
            )
        text = texts[kind]
        if not isinstance(text, str):
            text = text()
            self._sources = {**texts, kind: text}
        return text

    def _texts(self) -> Sources:
        if callable(self._sources):
            self._sources = self._sources()
        return self._sources

    def get_ir(self) -> str:
        """The loop nest that was compiled; the same as ``get_source("ir")``."""
        return self.get_source("ir")

    def save(self, path: str | os.PathLike[str], fmt: str = "", *, force: bool = False) -> Path:
        """Write the module, or one of its texts, to a file, replaced in one step; returns the path.

        The default of ``fmt`` is the module's own `format` (``o``, or ``json`` of the target
        ``interp``): the object at `path` and its manifest at ``path.json``, for `load_module`.
        ``so`` and ``a``: a library, as `export_library` writes it, whatever the file's ending.
        ``ll``, ``asm`` (or ``s``), ``c``, ``ir``, of devices ``cl``, ``cuda`` (or ``cu``), ``ptx``:
        that text, see `get_source`. ``cubin``: the machine code alone.

        UsageError where the module has no such format, or, without `force`, a file is there that
        was not written so; RunError where the file cannot be written.
        """
        if not fmt or (fmt == self.format and fmt != "so"):
            return self.artifact.save(path, force=force)
        if fmt in ("so", "a"):
            return libraries.export(self.artifact, path, form=fmt, force=force)
        if fmt == "cubin" and self._cubin:
            write(Output(Path(path), self._cubin, _CUBIN), force=force)
            return Path(path)
        kind = {"s": "asm", "cu": "cuda"}.get(fmt, fmt)
        if kind not in self._texts():
            forms = () if self._kind.holds == "program" else ("so", "a")
            code = ("cubin",) if self._cubin else ()
            formats = ", ".join(dict.fromkeys((self.format, *forms, *code, *self._texts())))
            why = "" if self._texts() else ", which was loaded without its texts"
            raise UsageError(f"save: no format {fmt!r} of this module{why}; it has {formats}")
        text = f"{self.get_source(kind).rstrip()}\n{_COMMENTS.get(kind, '//')}{_MARK}\n"
        write(Output(Path(path), text.encode(), _TEXT), force=force)
        return Path(path)

    def export_library(
        self,
        path: str | os.PathLike[str],
        cc: str | None = None,
        fcompile: Callable[..., object] | None = None,
        *,
        force: bool = False,
    ) -> Path:
        """Write a library that stands alone: code, thread pool and manifest in one file.

        `load_module` reads it in a process that has nothing but the runtime, without LLVM; C code
        calls its functions as ``int32_t name(void **args, void *workspace)``. The system's C
        compiler links it; where there is none, `load_module` also reads files of `save`.

        Args:
            path: the file, such as ``matmul.so``; replaced in one step and returned. With the
                ending ``.a`` it is a static library, for a linker and for `load_module`, which then
                needs LLVM. With ``.tar`` it is what `save` writes, in one file, which takes no
                linker; `load_module` reads it with LLVM.
            cc: the compiler that links; default the first of cc, gcc, clang.
            fcompile: links instead of ``cc``, with a toolchain of another name or machine: called
                as ``fcompile(output, files, options=[...])``, it writes a shared object of the
                ``files`` (C and object files) to ``output``; the options are gcc's, to stand
                behind the files.

        Raises:
            TargetError: there is no C compiler (the message says what to install), or it does not
                know the CPU that the code is for.
            UsageError: the target is ``interp``, the system is not Linux, ``fcompile`` cannot be
                called, or, without `force`, another file is there.
            RunError: the file cannot be written, or linking failed.
        """
        return libraries.export(self.artifact, path, cc, fcompile, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Module:
        """Read a module from a file of `export_library` or `save`.

        UsageError where a file is missing, foreign, newer, or the two do not belong together;
        RunError where it cannot be read; TargetError where it was compiled for another CPU.
        """
        target = Path(path)
        if target.is_dir():
            raise UsageError(f"{target} is a folder; name the file that save wrote in it")
        if target.is_file():
            data = target.read_bytes()
            if libraries.is_shared_object(data) and not is_sealed(data):
                return cls(libraries.read_library(target, data))
            if libraries.is_archive(data):
                return cls(libraries.read_static_library(target, data))
            if libraries.is_tar(data):
                return cls(libraries.read_tar(target, data))
        return cls(Artifact.load(path))

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | str | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str | Callable[..., object] = "",
    ) -> timing.Evaluator:
        """A callable that times a function of this module; see `timing.Evaluator`."""
        return timing.Evaluator(
            self.get_function(func_name),
            dev,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            cache_flush_bytes=cache_flush_bytes,
            f_preproc=f_preproc,
        )

    def __repr__(self) -> str:
        names = ", ".join(self.functions)
        where = self.artifact.contents.cpu or self.type_key
        return f"<Module {self.entry_name} for {where}: {names}>"


def load_module(path: str | os.PathLike[str]) -> Module:
    """Read a file of `Module.export_library` or `Module.save`; see `Module.load`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> path = f.save("add_one.o")
        >>> b = np.empty(4, "float32")
        >>> lw.load_module(path)(np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
    """
    return Module.load(path)


def system_lib(library: ctypes.CDLL | None = None) -> Module:
    """A module of the functions that are linked into this process.

    A program that embeds Python may link a static library of `Module.export_library`, and a process
    may have loaded an exported library for others to see. Both bring the symbol ``lw_manifest``,
    which lists their functions.

    ``library`` defaults to the process itself, with libraries that were loaded for all to see
    (``ctypes.CDLL(path, ctypes.RTLD_GLOBAL)``); of several libraries the first counts. UsageError
    where nothing of loopwright is linked in, or its manifest is damaged; TargetError where the code
    is for another CPU.

    Example:
        >>> import ctypes
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> path = f.export_library("system.so")
        >>> module = lw.runtime.system_lib(ctypes.CDLL("./system.so"))
        >>> b = np.empty(4, "float32")
        >>> module["add_one"](np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
    """
    where = ctypes.CDLL(None) if library is None else library
    try:
        text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(where, _SYMBOL)))
    except ValueError:
        raise UsageError(
            "system_lib: no function of loopwright is linked into this process; link a static "
            'library of export_library("x.a") into it with the option --whole-archive, or load '
            "the file with load_module"
        ) from None
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"system_lib: the symbol {_SYMBOL} is no manifest") from None
    if not isinstance(manifest, dict):
        raise UsageError(f"system_lib: the symbol {_SYMBOL} is no manifest")
    artifact = Artifact({**manifest, "kind": LIBRARY.name}, b"")

    def link(contents: Manifest, _: bytes) -> Linked:
        return link_loaded(contents, where)

    return Module(artifact, link=link)
