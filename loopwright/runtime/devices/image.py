"""`DeviceImage`: the code of one artifact, loaded onto each device at its first call there."""

from __future__ import annotations

import re
import threading

from loopwright.errors import TargetError
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.runtime.artifacts.kinds import ArtifactKind
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import Program


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
