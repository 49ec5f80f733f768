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
from dataclasses import dataclass, field
from pathlib import Path

from loopwright.errors import RunError, UsageError
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.manifest import JsonObject, Manifest


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled program.

    Attributes:
        manifest: what the object holds and for which machine, as JSON (`Manifest.to_json`).
        objects: the object file, or what its kind has in its place.
        contents: the manifest as data.

    Raises:
        UsageError: the manifest is not one, of a newer format or another kind, or lacks something.
    """

    manifest: JsonObject
    objects: bytes
    contents: Manifest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "contents", _contents(self.manifest, "the manifest"))

    @property
    def kind(self) -> str:
        """What ``objects`` holds, such as ``"llvm-object"``."""
        return self.contents.kind

    @property
    def entry(self) -> str:
        """Name of the function that calling the module runs."""
        return self.contents.entry

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
        contents = _contents(manifest, str(manifest_path))
        if digest != hashlib.sha256(objects).hexdigest():
            raise UsageError(
                f"{target} is not the object that {manifest_path} describes; build it again"
            )
        check = artifact_kinds.artifact_kind(contents.kind).check
        if check is not None:
            check(contents)
        return cls(manifest, objects)


def _contents(manifest: JsonObject, source: str) -> Manifest:
    return Manifest.from_json(manifest, source, artifact_kinds.names())


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
    replaced: list[tuple[Path, Path | None]] = []
    try:
        fresh = [_stage(path, data, temporary) for path, data in files]
        # Copies are written while nothing is changed yet: restoring must not need space.
        old = [_stage(p, p.read_bytes(), temporary) if p.exists() else None for p, _ in files[:-1]]
        for (path, _), new, before in zip(files, fresh, [*old, None], strict=True):
            os.replace(new, path)
            replaced.append((path, before))
    except BaseException:
        _restore(replaced[: len(files) - 1])
        raise
    finally:
        for name in temporary:
            name.unlink(missing_ok=True)


def _restore(replaced: Sequence[tuple[Path, Path | None]]) -> None:
    """Put files back as they were, from their copies; None: there was no file."""
    for path, before in replaced:
        if before is None:
            path.unlink()
        else:
            os.replace(before, path)


def _stage(path: Path, data: bytes, temporary: list[Path]) -> Path:
    """Write `data` to a new file beside `path`, entered in `temporary` at once."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary.append(Path(name))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o644)
    return Path(name)
