"""Programs as files that stand alone: shared objects and static libraries, written and read.

A shared object holds the artifact's object file, the thread pool, the code of `fastcall`, since it
is loaded without LLVM, and the manifest: JSON in a section of the ELF file (``.loopwright``), and
the exported symbol ``lw_manifest``. The manifest names the CPU features that the code needs, so
that nothing is run on a CPU that lacks one, and the checksum of the file, taken with the checksum's
own digits as zeros. A static library is an archive of the same parts, each an object of its own.
Linking is the system's (``cc -shared``): no package on PyPI that loopwright needs brings a linker.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright import env
from loopwright.errors import RunError, TargetError, UsageError
from loopwright.files import FileKind, Output, check, write
from loopwright.runtime import linker, packed_calls, pool
from loopwright.runtime.artifacts import artifact
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.kinds import ArtifactKind, artifact_kind
from loopwright.runtime.artifacts.manifest import JsonObject, Manifest
from loopwright.runtime.kernels import fastcall
from loopwright.runtime.linker import Linked
from loopwright.runtime.objects import (
    LEVELS,
    calls_packed,
    check_host,
    defined_symbols,
    elf_section,
    enabled,
    with_callbacks,
)

SECTION = b".loopwright"
ZEROS = "0" * 64
_loads = itertools.count()
#: Names of features that differ from those of /proc/cpuinfo by more than dots and underscores.
_FLAGS = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}

_COMPILERS = ("cc", "gcc", "clang")
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
MAGIC = b"!<arch>\n"
#: Members of an archive.
KERNEL, MANIFEST, POOL, PACKED = "kernel.o", "manifest.o", "pool.o", "packed.o"
_HEADER = 60


def is_shared_object(data: bytes) -> bool:
    """Whether bytes begin like an ELF shared object."""
    return data[:4] == b"\x7fELF" and len(data) > 18 and data[16:18] == b"\x03\x00"


def read_library(path: Path, data: bytes) -> Artifact:
    """The artifact in an exported library.

    UsageError where it is none, damaged, or of a newer format; TargetError, which names both CPUs,
    where it is for another one.
    """
    with _reading(path):
        manifest = _manifest(elf_section(data, SECTION))
    if manifest is None:
        raise UsageError(f"{path} is a shared object, but not one that export_library wrote")
    library = Artifact(_unsealed(path, manifest, data), data)
    check_cpu(library.contents)
    defined_symbols(library.contents, data)
    return library


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (struct.error, ValueError, RecursionError):
        raise UsageError(f"{path} is damaged or cut short; export it again") from None


def _manifest(section: bytes | None) -> dict[str, Any] | None:
    """The manifest in a section of its own; None where it is none."""
    manifest = None if section is None else json.loads(section.rstrip(b"\0"))
    return manifest if isinstance(manifest, dict) and "sha256" in manifest else None


def _unsealed(path: Path, manifest: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The manifest without its checksum, which must be that of the library."""
    digest = str(manifest.pop("sha256"))
    if digest != checksum(data, digest):
        raise UsageError(f"{path} is damaged: its checksum differs; export it again")
    return manifest


def checksum(data: bytes, digest: str) -> str:
    """The checksum of a library whose manifest holds these 64 digits at present."""
    return hashlib.sha256(data.replace(digest.encode(), ZEROS.encode(), 1)).hexdigest()


def check_cpu(manifest: Manifest) -> None:
    """Raise TargetError for a library that this machine's CPU cannot run; both CPUs are named.

    It asks the system, not LLVM.
    """
    arch = manifest.triple.partition("-")[0]
    if arch == linker.architecture() != "x86_64":
        check_host(manifest)  # the system's names of features are those of x86 only
        return
    model, there = env.cpu_info()[0], linker.architecture()
    built = f"the library was built for {manifest.cpu or 'any'} {arch}"
    if arch != there:
        raise TargetError(f"{built}, this machine is {there} ({model}); export it for {there}")
    have = {re.sub("[_.]", "", flag) for flag in env.cpu_flags()}
    missing = [n for n in manifest.needs if re.sub("[_.]", "", _FLAGS.get(n, n)) not in have]
    if missing:
        raise TargetError(
            f"{built} with {', '.join(missing)}, which this machine's {model} lacks; export it for "
            "a CPU that both are, such as mcpu=x86-64-v3"
        )


def link_library(manifest: Manifest, data: bytes) -> Linked:
    """Load a library from memory: the file may be replaced or removed while its code is used."""
    check_cpu(manifest)  # before anything of it is mapped
    return link_loaded(manifest, _open(manifest.entry, data))


def link_loaded(manifest: Manifest, library: ctypes.CDLL) -> Linked:
    """The functions of a library that is in this process already; errors as `link_library`."""
    check_cpu(manifest)
    names = [f.name for f in manifest.functions]
    names += [name for name in fastcall.SYMBOLS if hasattr(library, name)]
    linked = Linked({name: _address(library, name) for name in names}, library)
    if any(f.uses_pool for f in manifest.functions):
        configure = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32)(
            _address(library, "lw_pool_configure")
        )
        pool.follow(configure, manifest.num_threads)
        if hasattr(library, pool.WATCH):
            pool.watch(_address(library, pool.WATCH))
    if calls_packed(manifest):
        bind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_address(library, packed_calls.CONFIGURE))
        bind(packed_calls.call_address())
    return with_callbacks(manifest, linked)


def _open(entry: str, data: bytes) -> ctypes.CDLL:
    descriptor, name = -1, ""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(entry)
            # `dlopen` returns the library that it loaded under a name, whatever is there now, and
            # numbers of descriptors come again. So the path has empty steps, which spell a number
            # in binary.
            steps = f"{next(_loads):b}".replace("0", "/").replace("1", "/.")
            name = f"/proc/self/fd{steps}/{descriptor}"
        else:
            descriptor, name = tempfile.mkstemp(prefix="loopwright-", suffix=".so")
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return ctypes.CDLL(name)
    except OSError as error:
        raise RunError(f"{entry}: the library cannot be loaded: {error}") from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        if name and not name.startswith("/proc/"):
            Path(name).unlink(missing_ok=True)


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        raise UsageError(f"the library has no function {name!r}; export it again") from None
    assert address is not None
    return address


LIBRARY = ArtifactKind("shared-library", None, "so", "library", link=link_library, check=check_host)

#: Shared ones have the name of the manifest's section at their end, archives its symbol in front.
LIBRARY_FILE = FileKind(
    "a library",
    lambda data: (
        (is_shared_object(data) and SECTION in data)
        or (is_archive(data) and b"lw_manifest" in data)
    ),
)


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
    objects = {KERNEL: source.objects, **(more or {})}
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
    ending = path.suffix.lower()
    if ending in (".gz", ".tgz", ".xz", ".bz2", ".zip"):
        raise UsageError(f"export_library: {path} would be compressed; name it .tar, .so or .a")
    if ending == ".tar" and not form:
        if more or kind.holds != "object" or fcompile is not None:
            raise UsageError(
                "export_library: a .tar holds the object file of a module that was built here for "
                "llvm or c, unlinked; name the file .so for anything else"
            )
        write(Output(path, _tar(source), TAR_FILE), force=force)
        return path
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
        return _write_sealed(path, _archive(source, objects, path, compiler), force=force)
    manifest = {
        **source.manifest,
        "kind": LIBRARY.name,
        "made_by": source.kind,
        "needs": needs(source.contents, compiler),
        "sha256": ZEROS,
    }
    uses_pool = any(f.uses_pool for f in source.contents.functions)
    names = [f.name for f in source.contents.functions]
    with tempfile.TemporaryDirectory(prefix="loopwright-export-") as folder:
        room = Path(folder)
        for name, data in objects.items():
            (room / name).write_bytes(data)
        (room / "fastcall.o").write_bytes(_object(fastcall.fastcall_text()))
        (room / "manifest.c").write_text(_manifest_c(manifest) + _start_c(manifest, uses_pool))
        exported = [*names, "lw_manifest", *fastcall.SYMBOLS]
        exported += ["lw_pool_configure", pool.WATCH] if uses_pool else []
        files = ["manifest.c", *objects, "fastcall.o"]
        if calls_packed(source.contents):
            (room / "packed.c").write_text(_PACKED % packed_calls.UNBOUND)
            files.append("packed.c")
            exported.append(packed_calls.CONFIGURE)
        if uses_pool:
            (room / "pool.o").write_bytes(_object(pool.pool_text("auto")))
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
    manifest = {**source.manifest, "needs": needs(source.contents, compiler), "sha256": ZEROS}
    with tempfile.TemporaryDirectory(prefix="loopwright-export-") as folder:
        room = Path(folder)
        for name, data in objects.items():
            (room / name).write_bytes(data)
        if len(objects) > 1:
            _run([compiler, "-r", "-nostdlib", *objects, "-o", "whole.o"], room)
            (room / "whole.o").replace(room / KERNEL)
        (room / "manifest.c").write_text(_manifest_c(manifest))
        _run([compiler, "-c", *_COMPILED, "manifest.c", "-o", MANIFEST], room)
        files = [KERNEL, MANIFEST]
        if calls_packed(source.contents):
            (room / "packed.c").write_text(_PACKED % packed_calls.UNBOUND)
            _run([compiler, "-c", *_COMPILED, "packed.c", "-o", PACKED], room)
            files.append(PACKED)
        if any(f.uses_pool for f in source.contents.functions):
            (room / "threads.o").write_bytes(_object(pool.pool_text("auto")))
            (room / "start.c").write_text(_start_c(manifest, True))
            _run([compiler, "-c", *_COMPILED, "start.c", "-o", "start.o"], room)
            _run([compiler, "-r", "-nostdlib", "threads.o", "start.o", "-o", "pool.o"], room)
            files.append(POOL)
        _run([archiver, "rcsD", "out.a", *files], room)
        return (room / "out.a").read_bytes()


def _tar(source: Artifact) -> bytes:
    """Pack what `save` writes into one file; it is linked when it is loaded."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in zip(_MEMBERS, source.files(), strict=True):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def read_tar(path: Path, data: bytes) -> Artifact:
    """The artifact in a tar; UsageError where it is none of ours; others as of `Artifact.load`."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            members = [tar.getmember(name) for name in _MEMBERS]
            if any(m.type != tarfile.REGTYPE or m.issparse() for m in members):
                raise tarfile.TarError("a link, or a file with holes")
            # Not by `extractfile`, which believes any size.
            objects, text = (data[m.offset_data :][: m.size] for m in members)
    except (KeyError, ValueError, tarfile.TarError):
        raise UsageError(
            f"{path} is a tar, but not one that export_library wrote, whole; export it again"
        ) from None
    names = [f"{name} in {path}" for name in _MEMBERS]
    return Artifact.of_files(objects, text, *names)


def is_tar(data: bytes) -> bool:
    """Whether bytes begin like a tar."""
    return data[257:262] == b"ustar"


#: The members of a tar.
_MEMBERS = (KERNEL, f"{KERNEL}.json")
TAR_FILE = FileKind("a library", lambda data: is_tar(data) and data.startswith(KERNEL.encode()))


def _write_sealed(path: Path, data: bytes, *, force: bool) -> Path:
    """Write a library with its checksum in place of the zeros in its manifest."""
    data = data.replace(ZEROS.encode(), checksum(data, ZEROS).encode(), 1)
    write(Output(path, data, LIBRARY_FILE), force=force)
    return path


@lru_cache(maxsize=2)
def _object(text: str) -> bytes:
    """Object file of the runtime's own LLVM IR, for every CPU of this architecture."""
    return linker.compile_text(text, portable=True)


def _linked(output: Path) -> bytes:
    """The linker's output: a shared object that holds the manifest."""
    data = output.read_bytes() if output.is_file() else b""
    if is_shared_object(data) and ZEROS.encode() in data:
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
    head = '__attribute__((section(".loopwright"), used)) const char lw_manifest[] ='
    return f"{head}\n  {text};\n"


def _start_c(manifest: JsonObject, uses_pool: bool) -> str:
    """C code that sets up the thread pool, if there is one, when the code is loaded."""
    number = manifest["num_threads"] or "sysconf(_SC_NPROCESSORS_ONLN)"
    return _POOL % number if uses_pool else ""


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


def is_archive(data: bytes) -> bool:
    """Whether bytes begin like an archive of object files."""
    return data[: len(MAGIC)] == MAGIC


def members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in an archive of short names; ValueError where damaged."""
    at = len(MAGIC)
    while at < len(data):
        header = data[at : at + _HEADER]
        if len(header) != _HEADER or header[58:] != b"`\n":
            raise ValueError("a member has no header")
        size = int(header[48:58])
        content = data[at + _HEADER : at + _HEADER + size]
        if size < 0 or len(content) != size:
            raise ValueError("a member is cut short")
        yield header[:16].decode("ascii", "replace").rstrip(" ").rstrip("/"), content
        at += _HEADER + size + size % 2


def read_static_library(path: Path, data: bytes) -> Artifact:
    """The artifact in a static library; UsageError if it is none, TargetError for another CPU."""
    with _reading(path):
        files = dict(members(data))
        manifest = _manifest(elf_section(files[MANIFEST], SECTION) if MANIFEST in files else None)
    if manifest is None or KERNEL not in files:
        raise UsageError(f"{path} is an archive, but not one that export_library wrote")
    manifest = _unsealed(path, manifest, data)
    artifact = Artifact(manifest, files[KERNEL])
    check_host(artifact.contents)
    defined_symbols(artifact.contents, artifact.objects)
    return artifact
