"""Writing a shared object: the artifact's object file, the thread pool, and the manifest, linked.

It also holds the code of `loopwright.runtime.calling.fastcall`, since it is loaded without LLVM.
Linking is the system's (``cc -shared``): no package on PyPI that loopwright needs brings a linker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from loopwright.errors import RunError, TargetError, UsageError
from loopwright.files import Kind, Output, check, write
from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts import artifact
from loopwright.runtime.artifacts.cpu_fit import LEVELS, enabled
from loopwright.runtime.artifacts.kinds import artifact_kind
from loopwright.runtime.artifacts.manifest import JsonObject, Manifest
from loopwright.runtime.artifacts.objects import calls_packed
from loopwright.runtime.calling import fastcall
from loopwright.runtime.libraries import library, static_library
from loopwright.runtime.packed import calls as packed_calls

_COMPILERS = ("cc", "gcc", "clang")
#: Shared ones have the name of the manifest's section at their end, archives its symbol in front.
LIBRARY_FILE = Kind(
    "a library",
    lambda data: (
        (library.is_shared_object(data) and library.SECTION in data)
        or (static_library.is_archive(data) and b"lw_manifest" in data)
    ),
)
#: Options of the C files.
_COMPILED = ("-fPIC", "-O1", "-std=gnu11", "-w")
_INSTALL = "apt-get install gcc libc6-dev"
_MACROS = re.compile(
    r"^#define __((?:S?SSE|AVX|FMA|F16C|BMI|LZCNT|POPCNT|MOVBE|XOP)\w*?)__ 1$", re.M
)
_POOL = """
#include <stdint.h>
#include <unistd.h>
void lw_pool_configure(int32_t threads, int32_t spin);
/* Threads until somebody says otherwise: all that are online. */
__attribute__((constructor)) static void lw_start(void) {
  long n = %s;
  lw_pool_configure(n < 1 ? 1 : n > 1023 ? 1023 : (int32_t)n, 2000);
}
"""
_PACKED = """
#include <stdint.h>
/* How packed functions are called; NULL until somebody says it. */
static void (*volatile lw_packed)(const char *, int64_t *, const int32_t *, int32_t);
void lw_packed_configure(void *call) {
  lw_packed = (void (*)(const char *, int64_t *, const int32_t *, int32_t))call;
}
void lw_call_packed(const char *name, int64_t *values, const int32_t *kinds, int32_t count) {
  if (lw_packed) lw_packed(name, values, kinds, count);
  else values[count] = %d;
}
"""


def export(
    source: artifact.Artifact,
    path: str | os.PathLike[str],
    cc: str | None = None,
    fcompile: Callable[..., object] | None = None,
    form: str = "",
    more: Mapping[str, bytes] | None = None,
    *,
    force: bool = False,
) -> Path:
    """Write an artifact as a library with a manifest; see `Module.export_library`.

    `form` is ``so`` or ``a``, default by the ending of the path; `more` are object files by name
    that the code needs, beside those of the runtime.
    """
    objects = {static_library.KERNEL: source.objects, **(more or {})}
    if fcompile is not None and not callable(fcompile):
        raise UsageError(
            "export_library: fcompile is a function fcompile(output, files, options=...) that "
            f"links, got {fcompile!r}; to name a compiler write cc=..."
        )
    kind = artifact_kind(source.kind)
    archive = (form or Path(path).suffix.lstrip(".")) == "a"
    if archive and (kind.holds == "library" or fcompile is not None):
        raise UsageError(
            "export_library: a static library (.a) is made of a module that was built here, and "
            "without fcompile"
        )
    path = Path(path)
    check((path, LIBRARY_FILE), force=force)
    if kind.holds == "library":
        write(Output(path, source.objects, LIBRARY_FILE), force=force)
        return path
    if kind.holds == "program":
        raise UsageError(
            f"export_library: the target {kind.target} makes no code that a linker takes; build "
            "for llvm or c, or write the module by save"
        )
    if not linker.on_linux():
        raise UsageError("export_library writes ELF files, for Linux; save(path) works anywhere")
    compiler = _compiler(cc) if fcompile is None else cc or "cc"
    if archive:
        data = _archive(source, objects, path, compiler)
        return _write_sealed(path, data, force=force)
    manifest = {
        **source.manifest,
        "kind": library.LIBRARY.name,
        "made_by": source.kind,
        "needs": needs(source.contents, compiler),
        "sha256": library.ZEROS,
    }
    uses_pool = any(f.uses_pool for f in source.contents.functions)
    names = [f.name for f in source.contents.functions]
    with tempfile.TemporaryDirectory(prefix="loopwright-export-") as folder:
        room = Path(folder)
        for name, data in objects.items():
            (room / name).write_bytes(data)
        (room / "fastcall.o").write_bytes(_fastcall_object())
        (room / "manifest.c").write_text(_manifest_c(manifest) + _start_c(manifest, uses_pool))
        exported = [*names, "lw_manifest", *fastcall.SYMBOLS]
        exported += ["lw_pool_configure"] if uses_pool else []
        files = ["manifest.c", *objects, "fastcall.o"]
        if calls_packed(source.contents):
            (room / "packed.c").write_text(_packed_c())
            files.append("packed.c")
            exported.append(packed_calls.CONFIGURE)
        if uses_pool:
            (room / "pool.o").write_bytes(_pool_object())
            files.append("pool.o")
        (room / "symbols").write_text(f"{{ global: {'; '.join(exported)}; local: *; }};\n")
        options = ["-shared", *_COMPILED]
        options += [f"-Wl,--version-script={room / 'symbols'}", "-Wl,--no-undefined"]
        options += ["-Wl,-z,noexecstack", "-lm", "-lpthread"]
        if fcompile is None:
            _run([compiler, *files, *options, "-o", "out.so"], room)
        else:
            fcompile(str(room / "out.so"), [str(room / f) for f in files], options=options)
        data = _linked(room / "out.so")
    return _write_sealed(path, data, force=force)


def _archive(
    source: artifact.Artifact, objects: Mapping[str, bytes], path: Path, compiler: str
) -> bytes:
    """A static library: the kernel, the manifest, and the runtime code that the kernel needs.

    Each is an object of its own, so that a program that links several libraries gets one pool.
    """
    archiver = shutil.which("ar")
    if archiver is None:
        raise TargetError(
            f"export_library: {path.name} needs the archiver 'ar'; install: apt-get install "
            "binutils"
        )
    needed = needs(source.contents, compiler)
    manifest = {**source.manifest, "needs": needed, "sha256": library.ZEROS}
    with tempfile.TemporaryDirectory(prefix="loopwright-export-") as folder:
        room = Path(folder)
        for name, data in objects.items():
            (room / name).write_bytes(data)
        if len(objects) > 1:
            _run([compiler, "-r", "-nostdlib", *objects, "-o", "whole.o"], room)
            (room / "whole.o").replace(room / static_library.KERNEL)
        (room / "manifest.c").write_text(_manifest_c(manifest))
        _run([compiler, "-c", *_COMPILED, "manifest.c", "-o", static_library.MANIFEST], room)
        files = [static_library.KERNEL, static_library.MANIFEST]
        if calls_packed(source.contents):
            (room / "packed.c").write_text(_packed_c())
            _run([compiler, "-c", *_COMPILED, "packed.c", "-o", static_library.PACKED], room)
            files.append(static_library.PACKED)
        if any(f.uses_pool for f in source.contents.functions):
            (room / "threads.o").write_bytes(_pool_object())
            (room / "start.c").write_text(_start_c(manifest, True))
            _run([compiler, "-c", *_COMPILED, "start.c", "-o", "start.o"], room)
            _run([compiler, "-r", "-nostdlib", "threads.o", "start.o", "-o", "pool.o"], room)
            files.append(static_library.POOL)
        _run([archiver, "rcsD", "out.a", *files], room)
        return (room / "out.a").read_bytes()


def _write_sealed(path: Path, data: bytes, *, force: bool) -> Path:
    """Write a library with its checksum in place of the zeros in its manifest."""
    digest = library.checksum(data, library.ZEROS)
    data = data.replace(library.ZEROS.encode(), digest.encode(), 1)
    write(Output(path, data, LIBRARY_FILE), force=force)
    return path


def _pool_object() -> bytes:
    return linker.compile_text(pool.pool_text("auto"), portable=True)


@lru_cache(maxsize=1)
def _fastcall_object() -> bytes:
    """Object file of fastcall.ll, which needs no external symbol."""
    return linker.compile_text(fastcall.fastcall_text(), portable=True)


def _linked(output: Path) -> bytes:
    """The linker's output: a shared object that holds the manifest."""
    data = output.read_bytes() if output.is_file() else b""
    if library.is_shared_object(data) and library.ZEROS.encode() in data:
        return data
    raise RunError(
        "export_library: fcompile wrote no shared object with all files in it; it shall link "
        "every file that it is given into `output`, with the options that it is given"
    )


def needs(manifest: Manifest, compiler: str) -> list[str]:
    """The CPU features that a program may use, by LLVM's names, sorted.

    TargetError where the manifest does not say, and the compiler does not know the CPU.
    """
    if manifest.needs:
        return sorted(manifest.needs)
    cpu, named = manifest.cpu, enabled(manifest.features)
    if cpu in LEVELS:
        return sorted(named | set(LEVELS[cpu].split()))
    if cpu == linker.host_cpu():
        return sorted(named or enabled(linker.host_features()))
    done = None
    if shutil.which(compiler):
        done = subprocess.run(
            [compiler, f"-march={cpu}", "-dM", "-E", "-x", "c", "/dev/null"],
            capture_output=True,
            text=True,
            check=False,
        )
    if done is None or done.returncode != 0:
        raise TargetError(
            f"export_library: {compiler} does not know the CPU {cpu!r}, so that its features "
            "cannot be written down; build for a level such as mcpu=x86-64-v3"
        )
    macros = [m for m in _MACROS.findall(done.stdout) if "MATH" not in m]
    return sorted(named | {m.lower().replace("_", ".") for m in macros})


def _compiler(cc: str | None) -> str:
    path = shutil.which(cc) if cc else next(filter(None, map(shutil.which, _COMPILERS)), None)
    if path is None:
        raise TargetError(
            f"export_library needs a linker, and there is no C compiler {cc or 'cc'!r} on this "
            f"machine; install one ({_INSTALL}), or use save(path), which needs none: an object "
            "file and its manifest, for load_module"
        )
    return path


def _manifest_c(manifest: JsonObject) -> str:
    text = json.dumps(json.dumps(manifest))  # ASCII, quoted as C quotes
    lines = [
        '__attribute__((section(".loopwright"), used)) const char lw_manifest[] =',
        f"  {text};",
    ]
    return "\n".join([*lines, ""])


def _start_c(manifest: JsonObject, uses_pool: bool) -> str:
    """C code that sets up the thread pool, if there is one, when the code is loaded."""
    number = manifest["num_threads"] or "sysconf(_SC_NPROCESSORS_ONLN)"
    return _POOL % number if uses_pool else ""


def _packed_c() -> str:
    return _PACKED % packed_calls.UNBOUND


def _run(command: list[str], room: Path) -> None:
    environ = {**os.environ, "LC_ALL": "C", "TMPDIR": str(room)}
    done = subprocess.run(
        command, cwd=room, capture_output=True, text=True, env=environ, check=False
    )
    if done.returncode == 0:
        return
    lines = [x for x in done.stderr.splitlines() if x.strip()] or [f"exit {done.returncode}"]
    if re.search(r"cannot find (crti\.o|-lm|-lpthread)|\.h: No such file", done.stderr):
        raise TargetError(
            f"export_library: the C library's files are missing ({lines[0]}); install: {_INSTALL}"
        )
    raise RunError(f"export_library: {command[0]} failed: {lines[0]}")
