"""`Artifact`: a compiled program as bytes and a manifest; what builders send and files keep.

On disk it is two files: the object file at the given path, and ``path.json`` beside it. Both are
written atomically; the manifest names the checksum of its object, so a mixed pair is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.errors import RunError, TargetError, UsageError
from loopwright.runtime import linker

#: Newest format that is read; 2 adds functions of symbolic sizes (see `loopwright.runtime.sizes`).
FORMAT = 2
KIND = "llvm-object"
C_KIND = "c-object"
LIBRARY = "shared-library"
#: Every kind of artifact: object files of LLVM and of a C compiler, a shared object, a program for
#: the interpreter.
KINDS = (KIND, C_KIND, LIBRARY, "interp")
_FIELDS = ("format", "kind", "entry", "triple", "cpu", "features", "num_threads", "functions")
_FUNCTION_FIELDS = ("name", "args", "workspace_bytes", "parallel_workspace_bytes", "uses_pool")
#: What the CPU names that are no CPU stand for.
LEVELS = {
    "": "",
    "generic": "",
    "x86-64": "",
    "x86-64-v2": "sse4.2 popcnt",
    "x86-64-v3": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe",
    "x86-64-v4": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe "
    "avx512f avx512bw avx512cd avx512dq avx512vl",
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled program.

    Attributes:
        manifest: what the object holds and for which CPU: ``format`` (1, with sizes 2), ``kind``
            (of `KINDS`), ``entry``, ``triple``, ``cpu``, ``features``, ``num_threads`` (0: the
            pool's default), ``functions``, ``loopwright`` and ``llvmlite`` (versions).
        objects: the object file; of ``interp`` the program as JSON.
    """

    manifest: dict[str, Any]
    objects: bytes

    def __post_init__(self) -> None:
        _check_manifest(self.manifest, "the manifest")

    @property
    def kind(self) -> str:
        """What ``objects`` holds, one of `KINDS`."""
        return str(self.manifest["kind"])

    @property
    def entry(self) -> str:
        """Name of the function that calling the module runs."""
        return str(self.manifest["entry"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the object file at `path` and the manifest at ``path.json``, replacing both.

        A symbolic link is followed. When it fails, what was there before is there still.

        Returns:
            The path of the object file.

        Raises:
            RunError: the folder does not exist or cannot be written, the disk is full, or one of
                the two paths is something else than a file.
        """
        target = Path(path)
        digest = hashlib.sha256(self.objects).hexdigest()
        text = json.dumps({**self.manifest, "object_sha256": digest}, indent=1) + "\n"
        try:
            files = [(destination(target), self.objects)]
            files.append((destination(_manifest_path(target)), text.encode()))
            replace(files)
        except OSError as error:
            raise RunError(f"cannot write {target}: {error.strerror or error}") from error
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read what `save` wrote.

        Raises:
            UsageError: a file is missing, not one of ours, of a newer format, or the two do not
                belong together.
            RunError: a file cannot be read (permission, or it is a folder).
            TargetError: it was compiled for another CPU; the message names both.
        """
        target = Path(path)
        manifest_path = _manifest_path(target)
        objects = _read(target, "the object file")
        text = _read(manifest_path, f"the manifest of {target}")
        try:
            manifest = json.loads(text)
        except ValueError as error:
            raise UsageError(f"{manifest_path} is not a manifest: {error}") from error
        if not isinstance(manifest, dict):
            raise UsageError(f"{manifest_path} is not a manifest of loopwright; build it again")
        digest = manifest.pop("object_sha256", None)
        _check_manifest(manifest, str(manifest_path))
        if digest != hashlib.sha256(objects).hexdigest():
            raise UsageError(
                f"{target} is not the object that {manifest_path} describes; build it again"
            )
        made = cls(manifest, objects)
        check_host(manifest)
        return made


def _manifest_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{what} is missing: there is no file {path}; Module.save and `loopwright build` write "
            "the two together"
        ) from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def destination(path: Path) -> Path:
    """Where the bytes of `path` go: the file itself, or the one that a link points at."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, pipe or socket"
        raise RunError(f"cannot write {path}: it is {kind}; name a file")
    return path.resolve() if path.is_symlink() else path


def replace(files: Sequence[tuple[Path, bytes]]) -> None:
    """Replace all files or none. A reader sees each as it was or as it will be."""
    temporary: list[Path] = []
    done: list[tuple[Path, Path | None]] = []
    try:
        fresh = [_stage(path, data, temporary) for path, data in files]
        # Copies, made while nothing is changed yet: restoring must not need space.
        old = [_stage(p, p.read_bytes(), temporary) if p.exists() else None for p, _ in files[:-1]]
        for (path, _), new, before in zip(files, fresh, [*old, None], strict=True):
            os.replace(new, path)
            done.append((path, before))
    except BaseException:
        for path, before in done[: len(files) - 1]:
            if before is None:
                path.unlink()
            else:
                os.replace(before, path)
        raise
    finally:
        for name in temporary:
            name.unlink(missing_ok=True)


def _stage(path: Path, data: bytes, temporary: list[Path]) -> Path:
    """Write `data` to a new file beside `path`, entered in `temporary` at once."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary.append(Path(name))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o644)
    return Path(name)


def _check_manifest(manifest: dict[str, Any], source: str) -> None:
    version = manifest.get("format")
    if not isinstance(version, int) or "kind" not in manifest:
        raise UsageError(f"{source} is not a manifest of loopwright; build the program again")
    if version > FORMAT:
        raise UsageError(
            f"{source} has format {version}, this version of loopwright reads up to {FORMAT}; "
            "upgrade loopwright or build the program again"
        )
    if manifest["kind"] not in KINDS:
        raise UsageError(
            f"{source} holds a {manifest['kind']!r}; this runtime runs {', '.join(KINDS)}"
        )
    missing = [name for name in _FIELDS if name not in manifest]
    if missing:
        raise UsageError(f"{source} lacks {', '.join(missing)}; build the program again")
    names = [function.get("name") for function in manifest["functions"]]
    for function in manifest["functions"]:
        gaps = [name for name in _FUNCTION_FIELDS if name not in function]
        if gaps:
            raise UsageError(f"{source}: function {function.get('name')!r} lacks {', '.join(gaps)}")
    if manifest["entry"] not in names:
        raise UsageError(f"{source}: the entry {manifest['entry']!r} is not among {names}")


def check_host(manifest: dict[str, Any]) -> None:
    """Refuse a program that this machine's CPU may not be able to run.

    Raises:
        TargetError: architecture, CPU or a feature differs; the message names both sides.
    """
    if manifest["kind"] == "interp":
        return
    reason = _unfit(str(manifest["triple"]), str(manifest["cpu"]), str(manifest["features"]))
    if reason:
        raise TargetError(reason)


@lru_cache(maxsize=64)
def _unfit(triple: str, cpu: str, features: str) -> str:
    host = linker.host_cpu()
    arch, host_arch = triple.partition("-")[0], linker.host_triple().partition("-")[0]
    again = "build it on this machine, or for a CPU that both are"
    if arch != host_arch:
        return f"the program was built for {arch} ({cpu}), this machine is {host_arch} ({host})"
    if cpu != host and cpu not in LEVELS:
        return f"the program was built for the CPU {cpu}, this machine is a {host}; {again}"
    have = enabled(linker.host_features())
    missing = sorted((set(LEVELS.get(cpu, "").split()) | enabled(features)) - have)
    if missing:
        return (
            f"the program was built for {cpu or 'generic'} with {', '.join(missing)}, "
            f"which this machine's {host} lacks; {again}"
        )
    return ""


def enabled(features: str) -> set[str]:
    """The features that a string such as ``+avx2,-avx512f`` turns on."""
    return {name[1:] for name in features.split(",") if name.startswith("+")}
