"""`Image`: the code of one artifact in this process, linked when its first function is called."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.kinds import ArtifactKind, Link
from loopwright.runtime.calling import fastcall
from loopwright.runtime.linker import Linked


class Image:
    """The code of one artifact: linked when its first function is called, unmapped when dropped.

    ``link`` defaults to the kind's; ``num_threads`` 0 is the pool's default.
    """

    def __init__(self, source: Artifact, link: Link | None = None) -> None:
        self.artifact = source
        self.kind: ArtifactKind = artifact_kinds.artifact_kind(source.kind)
        self.num_threads = source.contents.num_threads
        self._link = link or artifact_kinds.link
        self._lock = threading.Lock()
        self._linked: Linked | None = None

    def address(self, name: str) -> int:
        """Address of a function; links the code first if need be."""
        linked = self._linked or self._link_once()
        return linked.addresses[name]

    @property
    def fastcall_code(self) -> Mapping[str, int] | None:
        """Addresses of `fastcall.SYMBOLS` where the code brought them, as exported libraries do."""
        addresses = self._linked.addresses if self._linked is not None else {}
        return addresses if all(name in addresses for name in fastcall.SYMBOLS) else None

    def _link_once(self) -> Linked:
        with self._lock:
            if self._linked is None:
                self._linked = self._link(self.artifact.contents, self.artifact.objects)
            return self._linked

    def complaint(self, code: int) -> Exception | None:
        """The code's own description of a failure that it reported in this thread, if any."""
        complaint = self._linked.complaint if self._linked is not None else None
        return complaint(code) if complaint is not None else None
