"""Facts of a device that records keep: its model, and its identity on the machine."""

from __future__ import annotations

from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.runtime.devices.device import Device, device

#: Attributes that must agree between two devices so that one time holds for both.
LIMITS = (
    "device_name",
    "arch",
    "multi_processor_count",
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "warp_size",
)


def device_facts(device: Device) -> dict[str, str | int]:
    """Describe a device for a record's ``env``; unknown values are left out.

    ``{"kind": "opencl", "name": model, "uuid": identity, "driver": version, "arch": architecture of
    machine code, "processors": number}``.
    """
    facts = {
        "kind": device.name,
        "name": device.device_name,
        "uuid": device.api.uuid(device.device_id),
        "driver": device.attribute("driver_version"),
        "arch": device.attribute("arch"),
        "processors": device.multi_processor_count,
    }
    return {name: v for name, v in facts.items() if isinstance(v, str | int) and v != ""}


def runs_on_cpu(target: str) -> bool:
    return device_of_target(target) in (None, "cpu")


def names_of(wanted: str) -> list[str]:
    """The names in a list of devices, such as ``"opencl:0,opencl:1"``."""
    return [name.strip() for name in wanted.split(",") if name.strip()]


def facts_here(target: str, wanted: str = "") -> dict[str, str | int] | None:
    """`device_facts` of the device that runs kernels for a kind of target; None for the CPU.

    `wanted` are names of the devices in use; empty: the first of the kind. None where it is not
    here.
    """
    if runs_on_cpu(target):
        return None
    first = device((names_of(wanted) or [target])[0])
    return device_facts(first) if first.exist else None


def models_here(target: str) -> set[str]:
    """Names of all models here that run kernels for a kind of target; none for the CPU."""
    if runs_on_cpu(target):
        return set()
    first = device(target)
    count = first.api.count() if first.exist else 0
    return {Device(first.device_type, number).device_name for number in range(count)}


def unlike(one: Device, other: Device) -> str:
    """Differences of two devices, as ``multi_processor_count: 2 and 4``; empty for none."""
    for name in LIMITS:
        a, b = one.attribute(name), other.attribute(name)
        if a != b:
            return f"{name}: {a} and {b}"
    return ""
