"""`DeviceCode`: the kernels of one function for a device, and the launches that make up a call.

JSON with the code beside the plan of launches, in an artifact. Everything that describes memory
is checked when it is read; extents and bytes are formulas of the function's sizes, as in
manifests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NoReturn

from loopwright.errors import UsageError, shown
from loopwright.runtime.artifacts.manifest import OPERATIONS, Manifest, SizeFormula

#: An argument of a kernel: a parameter, temporary buffer or size of the function, by number.
ArgumentSource = tuple[Literal["parameter", "buffer", "size"], int]
_SOURCES = ("parameter", "buffer", "size")
#: Extents of a launch, x first.
ExtentFormulas = tuple[SizeFormula, SizeFormula, SizeFormula]
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch of a kernel."""

    kernel: str
    #: Extents of the axes of blocks (`grid`) and threads (`block`), x first.
    grid: ExtentFormulas
    block: ExtentFormulas
    arguments: tuple[ArgumentSource, ...]
    #: Shared memory beyond the kernel's own declarations.
    shared_bytes: SizeFormula = 0


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources of a kernel by the device's compiler; None where it does not tell."""

    #: Per thread.
    registers: int | None = None
    #: Bytes of a thread that did not fit into registers, stores and loads together.
    spill_bytes: int | None = None
    #: Per block, with dynamic shared memory.
    shared_bytes: int | None = None
    #: Stack of a thread.
    local_bytes: int | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Launches of one call of a function on a device, in order."""

    launches: tuple[LaunchSpec, ...]
    #: Bytes of each temporary buffer in the device's global memory.
    buffers: tuple[SizeFormula, ...] = ()

    def to_json(self) -> dict[str, Any]:
        launches = [asdict(launch) for launch in self.launches]
        return {"buffers": list(self.buffers), "launches": launches}

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> CallPlan:
        return cls(tuple(_launch(x) for x in parts["launches"]), tuple(parts["buffers"]))

    def check(self, parameters: int, sizes: tuple[str, ...]) -> None:
        """Raise UsageError for a number out of range; `parameters` is the number of arrays."""
        counts = {"parameter": parameters, "buffer": len(self.buffers), "size": len(sizes)}
        for n in self.buffers:
            _formula("buffers", n, sizes)
        for launch in self.launches:
            for n in (*launch.grid, *launch.block, launch.shared_bytes):
                _formula(launch.kernel, n, sizes)
            for kind, number in launch.arguments:
                valid = kind in _SOURCES and type(number) is int
                if not valid or not 0 <= number < counts[kind]:
                    _refuse(f"an argument of {launch.kernel}", [kind, number], f"one of {counts}")


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The code of one function for a device."""

    #: Source text or machine code for `loopwright.runtime.devices.interface.DeviceAPI.load`.
    image: bytes
    launches: tuple[LaunchSpec, ...]
    #: Bytes of each temporary buffer in the device's global memory.
    buffers: tuple[SizeFormula, ...] = ()
    resources: Mapping[str, KernelResources] = field(default_factory=dict)
    #: Architecture of the image, such as ``sm_90``; empty: any.
    arch: str = ""
    #: Plans of the two parts of a function, by name; empty where it has none.
    parts: Mapping[str, CallPlan] = field(default_factory=dict)

    def plan(self, name: str) -> CallPlan:
        """Plan of the part of that name, else of the whole function."""
        return self.parts.get(name) or CallPlan(self.launches, self.buffers)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, each once."""
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    def to_bytes(self) -> bytes:
        parts = {
            "format": _FORMAT,
            "arch": self.arch,
            **CallPlan(self.launches, self.buffers).to_json(),
            **({"parts": {k: p.to_json() for k, p in self.parts.items()}} if self.parts else {}),
            "resources": {k: asdict(r) for k, r in self.resources.items()},
            "image": base64.b64encode(self.image).decode(),
        }
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def of(cls, manifest: Manifest, data: bytes) -> DeviceCode:
        entry = manifest.function(manifest.entry)
        sizes = () if entry.sizes is None else tuple(n for n, _, _ in entry.sizes.variables)
        parts = {f.name: len(f.args) for f in manifest.functions if f is not entry}
        return cls.from_bytes(data, len(entry.args), sizes, parts)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        parameters: int,
        sizes: tuple[str, ...] = (),
        parts: Mapping[str, int] | None = None,
    ) -> DeviceCode:
        """Read the result of `to_bytes`; UsageError where it is damaged or contradicts itself.

        ``parameters`` and ``parts`` are numbers of arrays: of the function, and of its parts by
        name.
        """
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                _refuse("format", fields["format"], f"{_FORMAT}")
            image = base64.b64decode(fields["image"], validate=True)
            plan = CallPlan.from_json(fields)
            code = cls(
                image,
                plan.launches,
                plan.buffers,
                {str(k): KernelResources(**r) for k, r in fields["resources"].items()},
                str(fields["arch"]),
                {str(k): CallPlan.from_json(p) for k, p in fields.get("parts", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"the code for a device is damaged: {error}; build it again") from None
        plan.check(parameters, sizes)
        wanted = parts or {}
        if set(code.parts) != set(wanted):
            _refuse("parts", sorted(code.parts), f"{sorted(wanted)}")
        for name, count in wanted.items():
            code.parts[name].check(count, sizes)
        return code


def _launch(x: Mapping[str, Any]) -> LaunchSpec:
    g0, g1, g2 = x["grid"]
    b0, b1, b2 = x["block"]
    arguments = tuple((kind, number) for kind, number in x["arguments"])
    return LaunchSpec(str(x["kernel"]), (g0, g1, g2), (b0, b1, b2), arguments, x["shared_bytes"])


def _formula(where: str, n: object, sizes: tuple[str, ...]) -> None:
    """Raise UsageError for anything but a number, a size, or arithmetic on such."""
    match n:
        case bool():
            pass
        case int() if 0 <= n < 1 << 62:
            return
        case str() if n in sizes:
            return
        case [str(op), a, b] if op in OPERATIONS:
            _formula(where, a, sizes)
            _formula(where, b, sizes)
            return
    _refuse(where, n, "a number or a formula of sizes")


def _refuse(what: str, value: object, expected: str) -> NoReturn:
    raise UsageError(
        f"the code for a device is damaged: {what} is {shown(value)}, expected {expected}; build "
        "it again"
    )
