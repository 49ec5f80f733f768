"""`Artifact`: a compiled program as bytes and a manifest, for builders and files.

On disk it is the object file at the given path and ``path.json`` beside it. Each holds a checksum
of the other (linkers ignore bytes after an object), so that a mixed pair, a damaged file and an
edit of one alone are noticed. The manifest is validated before anything of the object is mapped.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from loopwright.errors import RunError, UsageError
from loopwright.files import FileKind, Output, write
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.manifest import JsonObject, Manifest, read_format

#: Fields of a manifest on disk that identify the two files.
_CHECKSUMS = ("object_sha256", "sha256")
#: Stands in an object file between the object and the checksum of its manifest.
_SEAL = b"\nloopwright manifest sha256: "


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled program.

    ``manifest`` is JSON (`Manifest.to_json`), ``contents`` the same as data, ``objects`` the object
    file, or the bytes that its kind has in its place. UsageError where the manifest is none, of a
    newer format or another kind, or lacks something.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> print(f.artifact.contents.entry, len(f.artifact.objects) > 0)
        add_one True
    """

    manifest: JsonObject
    objects: bytes
    contents: Manifest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "contents", _contents(self.manifest, "the manifest"))

    @property
    def kind(self) -> str:
        """Kind of ``objects``, such as ``"llvm-object"``."""
        return self.contents.kind

    @property
    def entry(self) -> str:
        """Name of the function that calling the module runs."""
        return self.contents.entry

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the object file at `path` and the manifest at ``path.json``; returns the path.

        A symbolic link is followed. When it fails, the old files are still there. Files of other
        kinds are replaced with `force` alone.

        Raises:
            RunError: the folder does not exist or cannot be written, or the disk is full.
            UsageError: a file of another kind is at one of the two paths.
        """
        target = Path(path)
        objects, text = self.files()
        manifest_path = target.with_name(f"{target.name}.json")
        write(Output(target, objects, OBJECT), Output(manifest_path, text, MANIFEST), force=force)
        return target

    def files(self) -> tuple[bytes, bytes]:
        """The object file and the manifest, each with the checksum of the other."""
        manifest = {k: v for k, v in self.manifest.items() if k not in _CHECKSUMS}
        manifest["object_sha256"] = hashlib.sha256(self.objects).hexdigest()
        manifest["sha256"] = manifest_checksum(manifest)
        text = json.dumps(manifest, indent=1) + "\n"
        return self.objects + _SEAL + manifest["sha256"].encode(), text.encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read the files that `save` wrote.

        UsageError where one is missing, not ours, of a newer format, or the two do not belong
        together; RunError where one cannot be read; TargetError, with both, for another CPU.
        """
        target = Path(path)
        manifest_path = target.with_name(f"{target.name}.json")
        objects = _read(target, "the object file")
        if objects.startswith(b"PK") and b'"loopwright.model"' in objects[:200]:
            raise UsageError(
                f"{target} is a model, of many kernels: lw.graph.load({str(target)!r}) reads it"
            )
        text = _read(manifest_path, f"the manifest of {target}")
        return cls.of_files(objects, text, str(target), str(manifest_path))

    @classmethod
    def of_files(cls, objects: bytes, text: bytes, target: str, manifest_path: str) -> Artifact:
        """The artifact of the contents of `files`, by their names; errors as of `load`."""
        try:
            manifest = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{manifest_path} is not a manifest: {error}") from error
        if not isinstance(manifest, dict):
            raise UsageError(f"{manifest_path} is not a manifest of loopwright; build it again")
        read_format(manifest, manifest_path)
        objects, _, seal = objects.rpartition(_SEAL)
        if "sha256" not in manifest:
            raise UsageError(
                f"{manifest_path} has no checksum, as manifests once had; build it again"
            )
        if manifest["sha256"] != manifest_checksum(manifest):
            raise UsageError(f"{manifest_path} is damaged: its checksum differs; build it again")
        same = manifest.get("object_sha256") == hashlib.sha256(objects).hexdigest()
        if not same or seal != manifest["sha256"].encode():
            raise UsageError(
                f"{target} is not the object that {manifest_path} describes; build it again"
            )
        manifest = {k: v for k, v in manifest.items() if k not in _CHECKSUMS}
        contents = _contents(manifest, manifest_path)
        check = artifact_kinds.artifact_kind(contents.kind).check
        if check is not None:
            check(contents)
        return cls(manifest, objects)


def is_sealed(data: bytes) -> bool:
    """Whether an object file ends with the checksum of a manifest beside it."""
    return data[-64 - len(_SEAL) :].startswith(_SEAL)


#: The two files.
OBJECT = FileKind("an object file", is_sealed)
MANIFEST = FileKind("a manifest", lambda data: data[:1] == b"{" and b'"object_sha256": ' in data)


def manifest_checksum(manifest: JsonObject) -> str:
    """The checksum of a manifest, which holds that of its object; its own is left out."""
    covered = {k: v for k, v in manifest.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _contents(manifest: JsonObject, source: str) -> Manifest:
    return Manifest.from_json(manifest, source, artifact_kinds.names())


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
