"""`Target`: a kind with options, resolved when it is created (an absent mcpu becomes the host's
name); equal targets compile equal code. As a context manager it is the default of everything
inside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, overload

from loopwright.errors import TargetError
from loopwright.target.cpu import host_cpu, missing_here, vector_bytes
from loopwright.target.hardware import Caches, HardwareParams, caches_of
from loopwright.target.kinds import KINDS, OptionValues, kind_of, option
from loopwright.target.vectors import (
    BYTES,
    FMA,
    FMA64,
    HALVES,
    PAIRS,
    Roof,
    VectorUnit,
    bf16_dot_lanes,
    dot_lanes,
    pair_lanes,
    vector_unit,
)

#: Bytes of a "vector register" where there is none, and their number: templates ask.
_NO_VECTORS = 16
_NO_REGISTERS = 16
#: Targets in force, innermost last; per thread, so one Target may be entered by several.
_current: ContextVar[tuple[Target, ...]] = ContextVar("loopwright_target", default=())


class KindName(str):
    """The name of a kind of target: a text, which scripts of TVM ask for its ``name``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The text itself: ``target.kind.name`` is ``"llvm"``."""
        return str(self)


class Target:
    """A resolved target.

    Args:
        target: a kind (``"llvm"``, ``"c"``, ``"interp"``) with options as on a command line, a
            dictionary with "kind", or a Target.
        host: the target of the code that calls this one, for scripts of TVM: one for a CPU.
        options: more options, which win; `loopwright.target.KINDS` lists them.

    Attributes:
        kind: name of the kind, a text; ``kind.name`` is the same.
        options: every option of the kind with its value.
        keys: families, such as ``("cpu",)``; ``-keys=arm_cpu,cpu`` gives others.
        model: value of ``-model=``, else "unknown".
        host: the host's target, or None.

    Raises:
        TargetError: unknown kind or option (the known ones are listed), or a bad value.

    Example:
        >>> target = lw.Target("llvm -mcpu=x86-64-v3 -num-threads=1")
        >>> print(target.kind, target.options["mcpu"], target.options["num_threads"])
        llvm x86-64-v3 1
        >>> with target:
        ...     print(lw.Target.current() == target)
        ...
        True
    """

    def __init__(
        self, target: TargetLike = "llvm", host: TargetLike | None = None, **options: Any
    ) -> None:
        spec = {**_parse(target), **options}
        kind = kind_of(spec.pop("kind", "llvm"))
        inner = spec.pop("host", None)
        named: OptionValues = dict(option(kind, k, v) for k, v in spec.items())
        self.kind = KindName(kind.name)
        self.host: Target | None = _host(host if host is not None else inner)
        self.keys: tuple[str, ...] = named.pop("keys", kind.keys)
        if kind.is_host and "device" in named:
            self.keys = tuple(dict.fromkeys((named.pop("device"), *self.keys)))
        self.model: str = named.pop("model", "unknown")
        self.options: OptionValues = {**kind.defaults, **named}
        kind.resolve(self.options)

    @property
    def canonical(self) -> OptionValues:
        """JSON-able form with every option resolved; `from_canonical` is its inverse.

        ``keys``, ``model`` and ``host`` are in it only where they are not what the kind has anyway.
        """
        return {"kind": self.kind.name, **dict(sorted({**self.options, **self._extras()}.items()))}

    def _extras(self) -> OptionValues:
        extras: OptionValues = {}
        if self.keys != KINDS[self.kind].keys:
            extras["keys"] = list(self.keys)
        if self.model != "unknown":
            extras["model"] = self.model
        if self.host is not None:
            extras["host"] = self.host.canonical
        return extras

    @staticmethod
    def from_canonical(data: Mapping[str, Any]) -> Target:
        """Rebuild a target from its canonical form."""
        return Target(dict(data))

    @overload
    @staticmethod
    def current(allow_none: Literal[False] = False) -> Target: ...

    @overload
    @staticmethod
    def current(allow_none: bool) -> Target | None: ...

    @staticmethod
    def current(allow_none: bool = False) -> Target | None:
        """The innermost target in force (``with target:``), else the host.

        With ``allow_none``, None where no target is in force, as TVM does by default.
        """
        stack = _current.get()
        if stack or allow_none:
            return stack[-1] if stack else None
        return Target("llvm")

    @property
    def attrs(self) -> OptionValues:
        """The options by name, as a copy."""
        return dict(self.options)

    def with_host(self, host: TargetLike | None) -> Target:
        """This target with another host; None takes the host away."""
        plain = {k: v for k, v in self.canonical.items() if k != "host"}
        return Target(plain, host)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("options", ()):
            return self.__dict__["options"][name]
        raise AttributeError(f"Target has no attribute {name!r}")

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register used; 16 for ``interp``, which has none."""
        if "mcpu" not in self.options:
            return _NO_VECTORS
        widest = vector_bytes(self.options["mcpu"], self.options["mattr"])
        wanted = self.options["prefer_vector_width"] // 8
        return min(widest, wanted) if wanted else widest

    @property
    def vector_unit(self) -> VectorUnit | None:
        """The vector instructions that its code may use; None for ``interp``, which has none."""
        if not {"mcpu", "mattr", "prefer_vector_width"} <= self.options.keys():
            return None
        wanted = self.options["prefer_vector_width"] // 8
        return vector_unit(self.options["mcpu"], self.options["mattr"], wanted)

    @property
    def vector_registers(self) -> int:
        """Number of vector registers of `vector_bytes` that its code may use."""
        unit = self.vector_unit
        return _NO_REGISTERS if unit is None else unit.registers

    @property
    def hardware(self) -> HardwareParams:
        """Parameters of its machine: as its options say, else as found here."""
        o = self.options
        if "gpu" not in KINDS[self.kind].keys:
            return HardwareParams(
                o.get("num_threads", 0), self.vector_bytes, self.vector_registers, caches_of(o)
            )
        return HardwareParams(
            o.get("multi_processor_count", 0),
            o.get("max_vector_bytes", _NO_VECTORS),
            0,
            Caches(0, 0, 0, 0),
            o.get("max_threads_per_block", 0),
            o.get("max_shared_memory_per_block", 0),
            o.get("max_local_memory_per_thread", 0),
            o.get("max_vthread", 0),
            o.get("thread_warp_size", 0),
        )

    @property
    def dot_lanes(self) -> dict[str, int]:
        """Lanes of a dot product by its type: ``int32`` of bytes, ``float32`` of bfloat16; or 0."""
        if "mcpu" not in self.options:
            return {"int32": 0, "float32": 0}
        cpu, most = (self.options["mcpu"], self.options["mattr"]), self.vector_bytes // 4
        of_bytes = dot_lanes(*cpu) or pair_lanes(*cpu)
        return {"int32": min(of_bytes, most), "float32": min(bf16_dot_lanes(*cpu), most)}

    @property
    def has_dots_by_pairs(self) -> bool:
        """Whether dot products of bytes are products of pairs (``vpmaddwd``, no ``vpdpbusd``)."""
        if "mcpu" not in self.options:
            return False
        cpu = self.options["mcpu"], self.options["mattr"]
        return not dot_lanes(*cpu) and pair_lanes(*cpu) > 0

    @property
    def missing(self) -> tuple[str, ...]:
        """Features that its code may use and this machine's CPU lacks; empty: it runs here."""
        if "mcpu" not in self.options:
            return ()
        return missing_here(self.options["mcpu"], self.options["mattr"])

    def check_machine(self) -> None:
        """Raise TargetError where its code may use instructions that this machine's CPU lacks."""
        if not self.missing:
            return
        lacking = ",".join(f"-{name}" for name in self.missing)
        raise TargetError(
            f"code for {self.kind} -mcpu={self.options['mcpu']} may use "
            f"{', '.join(self.missing)}, which this machine's {host_cpu()[0]} lacks; tune and run "
            f"on a machine that has them, or do without: -mattr={lacking}"
        )

    def __enter__(self) -> Target:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.set(_current.get()[:-1])

    def __str__(self) -> str:
        defaults = dict(KINDS[self.kind].defaults)
        if "mcpu" in self.options:
            name, features = host_cpu()
            defaults |= {"mcpu": name, "mattr": features if self.options["mcpu"] == name else ""}
        if "gpu" in KINDS[self.kind].keys:
            defaults |= self._limits_anyway()
        parts: list[str] = [self.kind]
        parts += [_word(k, v) for k, v in self.options.items() if v != defaults.get(k)]
        parts += [_word(k, v) for k, v in self._extras().items() if k != "host"]
        if self.host is not None:
            parts.append(_word("host", str(self.host)))
        return " ".join(parts)

    def _limits_anyway(self) -> OptionValues:
        """Options that a device's target gets from this machine or the architecture by itself."""
        kind = KINDS[self.kind]
        plain: OptionValues = dict(kind.defaults)
        kind.resolve(plain)
        arch = self.options.get("arch")
        if plain.get("arch") == arch:
            return plain
        limits: OptionValues = {**kind.defaults, "arch": arch}
        kind.resolve(limits)
        del limits["arch"]
        return limits

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(json.dumps(self.canonical))


def roof_of(target: Target, arithmetic: str) -> Roof | None:
    """The instruction that bounds kernels of a target; None where none is known to.

    Args:
        target: what kernels are compiled for.
        arithmetic: type that they multiply: ``"float32"``, ``"float64"``, ``"int8"``, ``"int16"``
            by pairs, or ``"bfloat16"`` with sums in float32, which is converted where the CPU has
            no instruction for it.

    Example:
        >>> print(lw.target.roof_of(lw.Target("llvm -mcpu=haswell"), "int8").instruction)
        vpmaddwd
    """
    unit = target.vector_unit
    if unit is None:
        return None
    of_bytes, of_halves = target.dot_lanes["int32"], target.dot_lanes["float32"]
    match arithmetic:
        case "float64":
            return Roof(unit, FMA64, unit.nbytes // 8)
        case "int8" if of_bytes:
            return Roof(unit, PAIRS if target.has_dots_by_pairs else BYTES, of_bytes)
        case "int16" if of_bytes:
            return Roof(unit, PAIRS, of_bytes)
        case "bfloat16" if of_halves:
            return Roof(unit, HALVES, of_halves)
        case "float32" | "bfloat16":
            return Roof(unit, FMA, unit.nbytes // 4)
    return None


#: A target as people write it: a string, a dictionary, or a `Target`.
TargetLike = str | Mapping[str, Any] | Target
#: TVM's older name: ``target.create("llvm")``.
create = Target


def _word(name: str, value: Any) -> str:
    """One option as a word of a target string."""
    text = ",".join(value) if isinstance(value, list) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    return f"-{name.replace('_', '-')}={shlex.quote(text)}"


def _parse(spec: object) -> OptionValues:
    if isinstance(spec, Target):
        return spec.canonical
    if isinstance(spec, Mapping):
        return dict(spec)
    if not isinstance(spec, str) or not spec.strip():
        raise TargetError(f"a target is a string such as 'llvm' or a dictionary, got {spec!r}")
    try:
        words = shlex.split(spec)
    except ValueError as e:
        raise TargetError(f"target {spec!r}: {e}") from e
    out: OptionValues = {"kind": words[0]}
    for w in words[1:]:
        key, eq, value = w.lstrip("-").partition("=")
        if not w.startswith("-") or not eq:
            raise TargetError(f"target {spec!r}: options are written -name=value, got {w!r}")
        out[key.replace("-", "_")] = value
    return out


def _host(spec: TargetLike | None) -> Target | None:
    if spec is None:
        return None
    host = Target(spec)
    if not KINDS[host.kind].is_host:
        hosts = " or ".join(k.name for k in KINDS.values() if k.is_host)
        raise TargetError(
            f"a host is a target that makes code for a CPU, {hosts}, not {host.kind!r}"
        )
    return host
