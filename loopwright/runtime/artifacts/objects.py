"""Object files of the targets ``llvm`` and ``c``: how they are linked into this process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts.check_records import failed_check, record_name
from loopwright.runtime.artifacts.cpu_fit import check_host
from loopwright.runtime.artifacts.kinds import ArtifactKind
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.linker import Linked


def link_object(manifest: Manifest, objects: bytes) -> Linked:
    """Link an object file, with the thread pool where it has parallel loops.

    Raises:
        TargetError: this CPU may not be able to run it.
        RunError: it is no object file, or lacks a function.
    """
    check_host(manifest)
    imports = {}
    if any(f.uses_pool for f in manifest.functions):
        imports[pool.LAUNCH] = pool.launch_address(manifest.num_threads)
    checks = {f.name: f.checks for f in manifest.functions if f.checks}
    exports = [*(f.name for f in manifest.functions), *map(record_name, checks)]
    linked = linker.link(objects, exports, imports)
    if not checks:
        return linked
    return replace(linked, complaint=partial(failed_check, linked.addresses, checks))


LLVM_OBJECT = ArtifactKind("llvm-object", "llvm", "o", "object", link=link_object, check=check_host)
C_OBJECT = ArtifactKind("c-object", "c", "o", "object", link=link_object, check=check_host)
