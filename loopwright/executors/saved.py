"""Models as files: a zip archive without compression, so that other tools can read its parts.

``model.json`` is the program with the names of the kernels; ``kernels/N.json`` and
``kernels/N.bin`` are a kernel's manifest and its code; ``weights.safetensors`` holds the
constants. The archive keeps a checksum of every part, checked before any code is mapped.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.errors import RunError, UsageError, shown
from loopwright.executors.program import Array, Program, Step
from loopwright.files import FileKind, Output
from loopwright.files import write as write_file
from loopwright.runtime import ArgSpec, Artifact, Module, artifact_kind, decoded, encoded

FORMAT, VERSION = "loopwright.model", 1
VERSIONS = (1, 2)  # versions that are read: models of one program, and of several batches
_MODEL, _WEIGHTS = "model.json", "weights.safetensors"
#: First bytes of a model file: ``model.json``, which is not compressed.
SAVED = FileKind(
    "a model", lambda data: data[:2] == b"PK" and f'"format": "{FORMAT}"'.encode() in data[:200]
)
#: Exceptions of reading an archive whose bytes were changed.
_DAMAGE = (
    *(zipfile.BadZipFile, NotImplementedError, EOFError, LookupError, OverflowError, ValueError),
    *(RecursionError, struct.error),
)


def write(
    path: str | os.PathLike[str],
    head: Mapping[str, Any],
    kernels: Iterable[Module],
    weights: Mapping[str, Array],
    *,
    force: bool = False,
) -> Path:
    """Write ``head`` as ``model.json``, and the other parts of a model, in one step; kernels are
    numbered by their places.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: bytes) -> None:
            """Add a part; its date is fixed, so that equal models are equal files."""
            archive.writestr(zipfile.ZipInfo(name), data)

        add(_MODEL, json.dumps(head).encode())
        for number, module in enumerate(kernels):
            add(f"kernels/{number}.json", json.dumps(module.artifact.manifest).encode())
            add(f"kernels/{number}.bin", module.artifact.objects)
        add(_WEIGHTS, encoded({n: np.asarray(a, order="C") for n, a in weights.items()}))
    target = Path(path)
    write_file(Output(target, packed.getvalue(), SAVED), force=force)
    return target


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[tuple[zipfile.ZipFile, Mapping[str, Any]]]:
    """The archive and ``model.json`` of a model; whatever is wrong with the file, also inside the
    block, is an error of one line.
    """
    source = Path(path)
    try:
        with zipfile.ZipFile(source) as archive:
            yield archive, _head(archive, source)
    except FileNotFoundError:
        raise UsageError(f"there is no file {source}") from None
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror or error}") from error
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"{source} is no model of loopwright, or was damaged ({text:.120}); save it again. "
            "lw.load_module reads the file of a kernel"
        ) from error


def _head(archive: zipfile.ZipFile, source: Path) -> Mapping[str, Any]:
    """``model.json`` of an archive without compression, of a version that is read."""
    total = source.stat().st_size
    for part in archive.infolist():
        if part.compress_type != zipfile.ZIP_STORED or part.file_size > total:
            raise zipfile.BadZipFile(f"its part {part.filename!r:.80} is compressed")
    head = json.loads(archive.read(_MODEL))
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise UsageError(f"{source} is no model of loopwright")
    if head.get("version") not in VERSIONS:
        raise UsageError(
            f"{source} has version {head.get('version')!r:.40}, and "
            f"{' and '.join(map(str, VERSIONS))} are known; save the model again with this "
            "version of loopwright"
        )
    return head


def a_list(data: object) -> list[Any]:
    """JSON of ``model.json`` that has to be a list."""
    if not isinstance(data, list):
        raise ValueError(f"{shown(data)} stands where a list belongs")
    return data


def an_object(data: object) -> dict[str, Any]:
    """JSON of ``model.json`` that has to be an object."""
    if not isinstance(data, dict):
        raise ValueError(f"{shown(data)} stands where an object belongs")
    return data


def weights_of(archive: zipfile.ZipFile, source: Path) -> dict[str, Array]:
    arrays = decoded(archive.read(_WEIGHTS), source / _WEIGHTS)
    return {name: array.numpy() for name, array in arrays.items()}


def kernel_of(archive: zipfile.ZipFile, number: int) -> Module:
    """A kernel of an archive; nothing of its code is mapped before it runs."""
    manifest = json.loads(archive.read(f"kernels/{number}.json"))
    if not isinstance(manifest, dict):
        raise ValueError(f"kernel {number} has no manifest")
    artifact = Artifact(manifest, archive.read(f"kernels/{number}.bin"))
    check_kind = artifact_kind(artifact.kind).check
    if check_kind is not None:
        check_kind(artifact.contents)
    return Module(artifact)


def check(
    source: Path, program: Program, kernels: Mapping[str, Module], constants: Mapping[str, Array]
) -> None:
    """Refuse parts that are not of one model."""
    for v in program.values:
        if v.kind != "constant":
            continue
        array = constants.get(v.name)
        if array is None or array.shape != v.shape or array.dtype != np.dtype(v.dtype):
            raise RunError(f"{source}: its weight {v.name!r} is missing, or of another type")
    for step in program.steps:
        module = kernels.get(step.kernel)
        args = () if module is None else module.artifact.contents.function(module.entry_name).args
        if not _takes(args, step, program):
            raise RunError(
                f"{source}: its kernel {step.kernel!r} is missing, or takes other values"
            )


def _takes(args: Sequence[ArgSpec], step: Step, program: Program) -> bool:
    if len(args) != len(step.args):
        return False
    first_output = len(args) - step.outputs
    for at, (arg, number) in enumerate(zip(args, step.args, strict=True)):
        v = program.values[number]
        # Formulas of sizes are computed when a kernel is bound.
        extents = (
            not isinstance(n, int) or n == m for n, m in zip(arg.shape, v.shape, strict=False)
        )
        same = len(arg.shape) == len(v.shape) and all(extents) and arg.dtype == v.dtype
        if not same or arg.output != (at >= first_output):
            return False
    return True
