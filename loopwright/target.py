"""Targets: for which machine code is made, and with which options.

``Target("llvm")`` is the host; ``Target("llvm -mcpu=znver4 -num-threads=2")`` or a dictionary
``{"kind": "llvm", "mcpu": "znver4", "num_threads": 2}`` say more. Options are resolved when the target
is made (an absent mcpu becomes the host's name), so that two equal targets compile equal code. As a
context manager a target is the default of everything inside.
"""

from __future__ import annotations

import shlex
from contextvars import ContextVar, Token
from functools import lru_cache
from typing import Any

from loopwright.errors import TargetError, did_you_mean

#: Option name -> (type, what it does).
OPTIONS: dict[str, tuple[type, str]] = {
    "mcpu": (str, "CPU name as LLVM knows it; default the host's"),
    "mattr": (str, "feature string such as '+avx2,-avx512f'; default the host's, or none with mcpu"),
    "num_threads": (int, "threads of parallel loops; 0 = all usable cores"),
    "prefer_vector_width": (int, "widest vector in bits; 0 = the widest the CPU has"),
    "fastmath": (bool, "let LLVM reassociate and ignore NaN; default false (contract only)"),
    "loop_vectorize": (bool, "LLVM's own loop vectoriser; default false"),
    "loop_unroll": (bool, "LLVM's own loop unrolling; default false"),
}
_DEFAULTS: dict[str, Any] = {
    "num_threads": 0,
    "prefer_vector_width": 0,
    "fastmath": False,
    "loop_vectorize": False,
    "loop_unroll": False,
}
KINDS = ("llvm",)
_current: ContextVar[Target | None] = ContextVar("loopwright_target", default=None)


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, str]:
    """Name and feature string of this machine's CPU, as LLVM sees it."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


class Target:
    """A resolved target.

    Args:
        spec: ``"llvm"`` with options as on a command line, a dictionary with ``"kind"``, or a Target.
        options: more options, which win.

    Raises:
        TargetError: unknown kind or option (the known ones are listed), or a bad value.
    """

    def __init__(self, spec: str | dict[str, Any] | Target = "llvm", **options: Any) -> None:
        given = {**_parse(spec), **options}
        kind = given.pop("kind", "llvm")
        if kind not in KINDS:
            raise TargetError(
                f"unknown target {kind!r}{did_you_mean(str(kind), KINDS)}; known: {', '.join(KINDS)}"
            )
        self.kind: str = kind
        resolved = {**_DEFAULTS, **{k: _value(k, v) for k, v in given.items()}}
        self.options: dict[str, Any] = _resolve_cpu(resolved)
        self._tokens: list[Token[Target | None]] = []

    @property
    def canonical(self) -> dict[str, Any]:
        """JSON-able form with every option resolved; `from_canonical` is its inverse."""
        return {"kind": self.kind, **dict(sorted(self.options.items()))}

    @staticmethod
    def from_canonical(data: dict[str, Any]) -> Target:
        """Rebuild a target from its canonical form."""
        return Target(dict(data))

    @staticmethod
    def current(allow_none: bool = False) -> Target | None:
        """The innermost target in force (``with target:``); else the host, or None if allowed."""
        found = _current.get()
        return found if found is not None or allow_none else Target("llvm")

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            return self.__dict__["options"][name]
        raise AttributeError(f"Target has no attribute {name!r}")

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register used."""
        features = self.options["mattr"]
        widest = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
        wanted = self.options["prefer_vector_width"] // 8
        return min(widest, wanted) if wanted else widest

    def __enter__(self) -> Target:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    def __str__(self) -> str:
        host = host_cpu()
        parts = [self.kind]
        for k, v in self.options.items():
            default = _DEFAULTS.get(k, host[0] if k == "mcpu" else host[1])
            if v != default:
                text = str(v).lower() if isinstance(v, bool) else str(v)
                parts.append(f"-{k.replace('_', '-')}={text}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(tuple(self.canonical.items()))


def _parse(spec: object) -> dict[str, Any]:
    if isinstance(spec, Target):
        return spec.canonical
    if isinstance(spec, dict):
        return dict(spec)
    if not isinstance(spec, str) or not spec.strip():
        raise TargetError(f"a target is a string such as 'llvm' or a dictionary, got {spec!r}")
    words = shlex.split(spec)
    out: dict[str, Any] = {"kind": words[0]}
    for w in words[1:]:
        key, eq, value = w.lstrip("-").partition("=")
        if not w.startswith("-") or not eq:
            raise TargetError(f"target {spec!r}: options are written -name=value, got {w!r}")
        out[key.replace("-", "_")] = value
    return out


def _value(key: str, value: Any) -> Any:
    key = key.replace("-", "_")
    if key not in OPTIONS:
        raise TargetError(
            f"unknown target option {key!r}{did_you_mean(key, OPTIONS)}; "
            f"known: {', '.join(OPTIONS)}"
        )
    want = OPTIONS[key][0]
    if want is bool and str(value).lower() in ("true", "false", "1", "0"):
        return str(value).lower() in ("true", "1")
    if want is int and str(value).isdigit():
        return int(value)
    if want is str and isinstance(value, str):
        return value
    raise TargetError(f"target option {key}: expected {want.__name__}, got {value!r}")


def _resolve_cpu(options: dict[str, Any]) -> dict[str, Any]:
    host_name, host_features = host_cpu()
    cpu = options.setdefault("mcpu", host_name)
    if cpu == host_name:
        options.setdefault("mattr", host_features)
    elif "mattr" not in options:
        options["mattr"] = _cpu_features(cpu)
    return options


@lru_cache(maxsize=16)
def _cpu_features(cpu: str) -> str:
    """The vector width of a CPU other than the host as a feature string, asked of LLVM.

    LLVM has no list to ask: a 64-byte value is returned from a function, and the registers that the
    assembly names tell the width.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    probe = "define <16 x float> @f(<16 x float> %a) {\n ret <16 x float> %a\n}\n"
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, opt=1)
    asm = machine.emit_assembly(llvm.parse_assembly(probe.replace("%a\n", "%b\n").replace(
        "{\n", "{\n %b = fadd <16 x float> %a, %a\n")))
    return "+avx512f" if "zmm" in asm else "+avx2" if "ymm" in asm else ""
