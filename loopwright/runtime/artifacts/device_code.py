"""`DeviceCode`: the kernels of one function for a device, and the launches that make up a call.

What code generation for devices puts into an artifact, and what the runtime reads from it: JSON
with the code beside the plan of launches. Everything that describes memory is checked when it is
read; extents and bytes are formulas of the function's sizes, as in manifests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NoReturn

from loopwright.errors import UsageError, shown
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.artifacts.size_formulas import OPERATIONS, SizeFormula

#: An argument of a kernel: which parameter, temporary buffer or size of the function it is.
ArgumentSource = tuple[Literal["parameter", "buffer", "size"], int]
_SOURCES = ("parameter", "buffer", "size")
#: Extents of a launch, x first.
ExtentFormulas = tuple[SizeFormula, SizeFormula, SizeFormula]
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: name of the kernel.
        grid, block: extents of its axes of blocks and threads, x first.
        arguments: what it takes, in order.
        shared_bytes: shared memory beyond what the kernel declares itself.
    """

    kernel: str
    grid: ExtentFormulas
    block: ExtentFormulas
    arguments: tuple[ArgumentSource, ...]
    shared_bytes: SizeFormula = 0


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What the device's compiler says that a kernel takes; None where it does not tell.

    Attributes:
        registers: of a thread.
        spill_bytes: bytes of a thread that did not fit into registers, stores and loads together.
        shared_bytes: shared memory of a block, dynamic one included.
        local_bytes: stack of a thread.
        constant_bytes: constant memory.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What a call of one function does on a device.

    Attributes:
        launches: in the order in which a call makes them.
        buffers: bytes of each temporary buffer in the device's global memory.
    """

    launches: tuple[Launch, ...]
    buffers: tuple[SizeFormula, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON."""
        launches = [asdict(launch) for launch in self.launches]
        return {"buffers": list(self.buffers), "launches": launches}

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> CallPlan:
        """Inverse of `to_json`."""
        return cls(tuple(_launch(x) for x in parts["launches"]), tuple(parts["buffers"]))

    def check(self, parameters: int, sizes: tuple[str, ...]) -> None:
        """Refuse a plan with a number out of range.

        Args:
            parameters: how many arrays the function takes.
            sizes: names of its size variables.

        Raises:
            UsageError: there is such a number.
        """
        counts = {"parameter": parameters, "buffer": len(self.buffers), "size": len(sizes)}
        for n in self.buffers:
            _formula("buffers", n, sizes)
        for launch in self.launches:
            for n in (*launch.grid, *launch.block, launch.shared_bytes):
                _formula(launch.kernel, n, sizes)
            for kind, number in launch.arguments:
                known = kind in _SOURCES and type(number) is int
                if not known or not 0 <= number < counts[kind]:
                    _refuse(f"an argument of {launch.kernel}", [kind, number], f"one of {counts}")


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The code of one function for a device.

    Attributes:
        image: source text or machine code, as `loopwright.runtime.devices.interface.DeviceAPI.load`
            takes it.
        launches: in the order in which a call makes them.
        buffers: bytes of each temporary buffer in the device's global memory.
        resources: what each kernel takes, where it is known.
        arch: the architecture that the image is for, such as ``sm_90``; empty: any.
        parts: of a function in two parts what calls of these do, by name.
    """

    image: bytes
    launches: tuple[Launch, ...]
    buffers: tuple[SizeFormula, ...] = ()
    resources: Mapping[str, KernelResources] = field(default_factory=dict)
    arch: str = ""
    parts: Mapping[str, CallPlan] = field(default_factory=dict)

    def plan(self, name: str) -> CallPlan:
        """What a call of a function does: of a part of that name, else of the whole."""
        return self.parts.get(name) or CallPlan(self.launches, self.buffers)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, each once."""
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    def to_bytes(self) -> bytes:
        """The code as the bytes of an artifact; `from_bytes` is the inverse."""
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
        """The code of an artifact.

        Args:
            manifest: of the artifact.
            data: its bytes.

        Raises:
            UsageError: as `from_bytes`.
        """
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
        """Read what `to_bytes` gave.

        Args:
            data: the bytes.
            parameters: how many arrays the function takes.
            sizes: names of its size variables.
            parts: how many arrays its parts take, by name.

        Raises:
            UsageError: it is damaged, or describes what cannot be.
        """
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                _refuse("format", fields["format"], f"{_FORMAT}")
            image = base64.b64decode(fields["image"], validate=True)
            whole = CallPlan.from_json(fields)
            code = cls(
                image,
                whole.launches,
                whole.buffers,
                {str(k): KernelResources(**r) for k, r in fields["resources"].items()},
                str(fields["arch"]),
                {str(k): CallPlan.from_json(p) for k, p in fields.get("parts", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"the code for a device is damaged: {error}; build it again") from None
        whole.check(parameters, sizes)
        wanted = parts or {}
        if set(code.parts) != set(wanted):
            _refuse("parts", sorted(code.parts), f"{sorted(wanted)}")
        for name, count in wanted.items():
            code.parts[name].check(count, sizes)
        return code


def _launch(x: Mapping[str, Any]) -> Launch:
    g0, g1, g2 = x["grid"]
    b0, b1, b2 = x["block"]
    arguments = tuple((kind, number) for kind, number in x["arguments"])
    return Launch(str(x["kernel"]), (g0, g1, g2), (b0, b1, b2), arguments, x["shared_bytes"])


def _formula(where: str, n: object, sizes: tuple[str, ...]) -> None:
    """Refuse what is neither a number, a size, nor arithmetic on such."""
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
