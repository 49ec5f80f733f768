"""The devices on which kernels of a target are measured, and their availability."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import UsageError
from loopwright.runtime import Device, device
from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.runtime.devices.device import names_of, unlike
from loopwright.runtime.kernels.image import check_arch
from loopwright.target import Target

_CPU = "cpu"
#: The lock of the CPU.
CPU_LOCK = "cpu0"


def measured_on(target: Target, wanted: str = "") -> tuple[Device, ...]:
    """The devices on which candidates of a task are measured.

    ``wanted`` has names of devices with commas between them; empty: the first of the target's kind.
    Raises a UsageError where one of them is missing, they are not equal, so that their times cannot
    be compared, or not all code for the target runs there; a TargetError where they are of another
    architecture than the target's.
    """
    kind = device_of_target(target.kind) or _CPU
    devices = tuple(device(name) for name in names_of(wanted) or [kind])
    if len(set(devices)) < len(devices):
        raise UsageError(f"device {wanted}: a device is named twice; name each once")
    for one in devices:
        _check(one, kind, target)
    for other in devices[1:]:
        if difference := unlike(devices[0], other):
            raise UsageError(
                f"{devices[0]} and {other} differ ({difference}), so that a time of one says "
                "nothing of the other; tune on each of them with a log of its own"
            )
    return devices


def _check(one: Device, kind: str, target: Target) -> None:
    """Refuse a device that cannot run code for a target."""
    if one.name != kind:
        raise UsageError(
            f"code for the target {target.kind} runs on devices of type {kind}, and {one} is none; "
            f"choose a target that runs on {one.name}, or leave the device out"
        )
    try:
        one.require()
    except UsageError as error:
        raise UsageError(
            f"{error}. Measuring needs the device; building for {target.kind} alone does not: "
            "loopwright build, or lw.build"
        ) from None
    check_arch(str(target.options.get("arch") or ""), one)
    most, wanted = one.max_threads_per_block, target.options.get("max_threads_per_block")
    if most is not None and isinstance(wanted, int) and wanted > most:
        raise UsageError(
            f"the target {target.kind} allows blocks of {wanted} threads, and {one} takes {most}; "
            f"write {target.kind} -max-threads-per-block={most}"
        )


def lock_names(devices: Sequence[Device]) -> list[str]:
    """The names of the locks of devices, equal for all processes of this machine, in order.

    A device that the host's processor implements takes the lock of the CPU too: each disturbs the
    times of the other.
    """
    names = set()
    for one in devices:
        on_host = one.name == _CPU or bool(one.attribute("is_host_processor"))
        names |= {CPU_LOCK} if on_host else set()
        names |= set() if one.name == _CPU else {one.api.uuid(one.device_id)}
    return sorted(names)
