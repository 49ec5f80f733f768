"""`Image`: the code of one artifact in this process, linked when its first function is called."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

from loopwright.errors import TargetError
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.runtime.artifacts.kinds import ArtifactKind, Link
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import Program
from loopwright.runtime.kernels import fastcall
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
        return (self._linked or self._link_once()).addresses[name]

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


class DeviceImage:
    """The code of one artifact, of a kind whose programs a device's driver loads."""

    def __init__(self, source: Artifact) -> None:
        self.artifact = source
        self.kind: ArtifactKind = artifact_kinds.artifact_kind(source.kind)
        self.code = DeviceCode.of(source.contents, source.objects)
        self._lock = threading.Lock()
        self._programs: dict[int, Program] = {}

    def program(self, device: Device) -> Program:
        """The kernels on a device.

        TargetError where the code is for another architecture, UsageError where the device is not
        here; others as of `DeviceAPI.load`.
        """
        with self._lock:
            if device.device_id not in self._programs:
                check_arch(self.code.arch, device)
                self._programs[device.device_id] = device.api.load(
                    device.device_id, self.code.image, self.code.kernels
                )
            return self._programs[device.device_id]


def check_arch(arch: str, device: Device) -> None:
    """Raise TargetError for machine code of another architecture.

    Code for one of CUDA's serves later ones of its family.
    """
    here = device.attribute("arch")
    if not arch or here is None or arch == here:
        return
    ours, theirs = (re.fullmatch(r"sm_(\d+)(\d)", str(text)) for text in (arch, here))
    if ours and theirs and ours[1] == theirs[1] and int(ours[2]) <= int(theirs[2]):
        return
    raise TargetError(
        f"the kernels are for {arch}, and {device} ({device.device_name}) is {here}; build them "
        f"with -arch={here}"
    )
