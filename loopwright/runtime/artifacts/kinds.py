"""The registry of artifact kinds: linking, device and timer of each.

The runtime works without the compiler, so that a backend has two entries that meet by the name of
an artifact kind: the one here, and `loopwright.codegen.backends.Backend`, which says how a target
compiles. A third party registers both without any change to ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from loopwright.errors import UsageError
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.linker import Linked

#: Puts the code of an artifact into this process, from its manifest and its bytes.
Link = Callable[[Manifest, bytes], Linked]
#: Runs a bound call a number of times and returns the seconds of all together.
Timer = Callable[[Callable[[], None], int], float]


@dataclass(frozen=True, slots=True)
class ArtifactKind:
    """The runtime's treatment of one kind of artifact.

    Every function of it is ``int32_t f(void **args, void *workspace)`` at an address, even where
    that only calls something else, so that arguments are checked and bound alike.

    Attributes:
        name: as in manifests, such as ``"llvm-object"``.
        target: the kind of target that it is built for; None where it holds the code of any.
        extension: of the file that `Module.save` writes.
        holds: an object file that a linker takes, a shared library, or a program that something
            else runs.
        device: type of the device that runs it (`loopwright.runtime.DEVICE_TYPES`).
        link: puts its code into this process; None where the module ``needs`` provides that.
        needs: a module whose import provides ``link``; empty: nothing is missing.
        check: refuses an artifact that this machine cannot run, by a TargetError.
        timer: times its functions; None: a loop in compiled code calls them back to back.
    """

    name: str
    target: str | None
    extension: str
    holds: Literal["object", "library", "program"]
    device: str = "cpu"
    link: Link | None = None
    needs: str = ""
    check: Callable[[Manifest], None] | None = None
    timer: Timer | None = None


#: Linked by the compiler, and named here so that such a file is recognised without it.
INTERP = ArtifactKind("interp", "interp", "json", "program", needs="loopwright.driver")
_kinds: dict[str, ArtifactKind] = {}


def register_artifact_kind(kind: ArtifactKind) -> None:
    """Enter a kind, which the import of its ``needs`` may complete later; UsageError if taken."""
    before = _kinds.get(kind.name)
    if before is not None and before != kind and not before.needs:
        raise UsageError(f"there is an artifact kind {kind.name!r} already")
    _kinds[kind.name] = kind


def unregister_artifact_kind(name: str) -> None:
    """Remove a kind of artifact; nothing happens where there is none of that name."""
    _kinds.pop(name, None)


def names() -> list[str]:
    """Names of all kinds, in the order of registration."""
    return list(_kinds)


def artifact_kind(name: str) -> ArtifactKind:
    """The kind of that name; UsageError, which lists all names, where there is none."""
    if name not in _kinds:
        raise UsageError(f"no artifact kind {name!r}; this runtime runs {', '.join(_kinds)}")
    return _kinds[name]


def device_of_target(target: str) -> str | None:
    """Type of the device on which code of a kind of target runs; None for an unknown kind."""
    return next((k.device for k in _kinds.values() if k.target == target), None)


def link(manifest: Manifest, objects: bytes) -> Linked:
    """Put the code of an artifact into this process by its kind's ``link``.

    UsageError names the module where the kind is linked by one that is not imported.
    """
    kind = artifact_kind(manifest.kind)
    if kind.link is None:
        raise UsageError(
            f"a program of kind {kind.name!r} runs in the compiler; import {kind.needs} first"
        )
    return kind.link(manifest, objects)


OPENCL_SOURCE = ArtifactKind("opencl-source", "opencl", "clprog", "program", device="opencl")
CUDA_CUBIN = ArtifactKind("cuda-cubin", "cuda", "cuprog", "program", device="cuda")
