"""`Image`: the code of one artifact in this process, linked when its first function is called.

What linking means depends on the artifact's kind. The kinds that need the compiler are registered
by it (``loopwright.driver``); the runtime itself knows nothing of them but their names.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from string import Formatter

from loopwright.errors import RunError, UsageError
from loopwright.runtime import artifact, linker, pool

Link = Callable[[artifact.Artifact], linker.Linked]
_links: dict[str, Link] = {}


def register(kind: str, link: Link) -> None:
    """Say how artifacts of a kind are linked."""
    _links[kind] = link


class Image:
    """The code of one artifact: linked when its first function is called, unmapped when dropped.

    Args:
        source: the artifact.
        link: makes its code; default what is registered for its kind.
    """

    def __init__(self, source: artifact.Artifact, link: Link | None = None) -> None:
        self.artifact = source
        self.num_threads = int(source.manifest["num_threads"])
        self._link = link
        self._lock = threading.Lock()
        self._linked: linker.Linked | None = None

    def address(self, name: str) -> int:
        """Address of a function; links the code first if need be."""
        if self._linked is None:
            with self._lock:
                if self._linked is None:
                    self._linked = (self._link or _link_of(self.artifact.kind))(self.artifact)
        return self._linked.addresses[name]

    def complaint(self, code: int) -> Exception | None:
        """What the code itself says about a failure that it reported in this thread, if it can."""
        said = self._linked.complaint if self._linked is not None else None
        return said(code) if said is not None else None


def _link_of(kind: str) -> Link:
    if kind not in _links:
        raise UsageError(
            f"a program of kind {kind!r} runs in the compiler; import loopwright.driver first"
        )
    return _links[kind]


#: What a function returns when its first check fails, one more for each further one.
FIRST_CODE = 16


def record_name(function: str) -> str:
    """The symbol under which a function's checks leave what they found."""
    return f"lw_checks_{function}"


def _link_object(source: artifact.Artifact) -> linker.Linked:
    artifact.check_host(source.manifest)
    functions = source.manifest["functions"]
    imports = {}
    if any(function["uses_pool"] for function in functions):
        imports[pool.LAUNCH] = pool.launch_address(int(source.manifest["num_threads"]))
    watched = {f["name"]: f["checks"] for f in functions if f.get("checks")}
    exports = [*(f["name"] for f in functions), *map(record_name, watched)]
    linked = linker.link(source.objects, exports, imports)
    if not watched:
        return linked
    return replace(linked, complaint=partial(_failed_check, linked.addresses, watched))


def _failed_check(
    addresses: Mapping[str, int], watched: Mapping[str, Sequence[str]], code: int
) -> Exception | None:
    """The error of a check that failed; its record is free again after it."""
    for name, texts in watched.items():
        slots = ctypes.cast(addresses[record_name(name)], ctypes.POINTER(ctypes.c_int64))
        if slots[0] >= FIRST_CODE:
            text = texts[slots[0] - FIRST_CODE]
            count = len({field for _, field, _, _ in Formatter().parse(text) if field})
            error = RunError(f"{name}: {text.format(*slots[1 : count + 1])}")
            slots[0] = 0
            return error
        if FIRST_CODE <= code < FIRST_CODE + len(texts):
            return RunError(f"{name}: a check failed in several calls at once (code {code})")
    return None


register(artifact.KIND, _link_object)
register(artifact.C_KIND, _link_object)
