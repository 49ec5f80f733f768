"""Targets: for which machine code is made, and with which options.

``Target("llvm")`` is the host; ``Target("llvm -mcpu=znver4 -num-threads=2")`` or a dictionary
``{"kind": "llvm", "mcpu": "znver4", "num_threads": 2}`` say more. Options are resolved when the
target is made (an absent mcpu becomes the host's name), so that two equal targets compile equal
code. As a context manager a target is the default of everything inside.
"""

from __future__ import annotations

import platform
import re
import shlex
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from loopwright.errors import TargetError, did_you_mean

#: Option name -> (type, what it does).
OPTIONS: dict[str, tuple[type, str]] = {
    "mcpu": (str, "CPU name as LLVM knows it; default, and 'native', the host's"),
    "mattr": (
        str,
        "feature string such as '+avx2,-avx512f'; default the host's, or none with mcpu",
    ),
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
#: CPU names by machine that LLVM has known for long: these need no question, and serve as hints.
COMMON_CPUS = {
    "x86_64": (
        "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "nehalem", "sandybridge", "ivybridge",
        "haswell", "broadwell", "skylake", "skylake-avx512", "cascadelake", "icelake-client",
        "icelake-server", "tigerlake", "alderlake", "sapphirerapids", "graniterapids", "znver1",
        "znver2", "znver3", "znver4", "znver5",
    ),
    "aarch64": (
        "generic", "cortex-a53", "cortex-a72", "cortex-a76", "cortex-a78", "neoverse-n1",
        "neoverse-n2", "neoverse-v1", "neoverse-v2", "ampere1", "a64fx", "apple-m1", "apple-m2",
    ),
}  # fmt: skip
#: Features of x86 that change the code of loops; others need intrinsics that are never emitted.
_X86_FEATURES = re.compile(r"s?sse|avx|fma|f16c|bmi|lzcnt|popcnt|movbe|cmov|xop")
#: Targets in force, innermost last; per thread, so one Target may be entered by several.
_current: ContextVar[tuple[Target, ...]] = ContextVar("loopwright_target", default=())


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, str]:
    """Name and feature string of this machine's CPU, as LLVM sees it.

    On x86 only features that code for loops can use are named: the string stands in every record.
    """
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if platform.machine() == "x86_64":
        kept = {n: on for n, on in features.items() if _X86_FEATURES.match(n)}
        features = llvm.FeatureMap(kept)
    return llvm.get_host_cpu_name(), features.flatten()


class Target:
    """A resolved target.

    Args:
        spec: ``"llvm"`` with options as on a command line, a dictionary with "kind", or a Target.
        options: more options, which win.

    Raises:
        TargetError: unknown kind or option (the known ones are listed), or a bad value.
    """

    def __init__(self, spec: str | dict[str, Any] | Target = "llvm", **options: Any) -> None:
        given = {**_parse(spec), **options}
        kind = given.pop("kind", "llvm")
        if kind not in KINDS:
            raise TargetError(
                f"unknown target {kind!r}{did_you_mean(str(kind), KINDS)}; "
                f"known: {', '.join(KINDS)}"
            )
        self.kind: str = kind
        resolved = {**_DEFAULTS, **dict(_option(k, v) for k, v in given.items())}
        self.options: dict[str, Any] = _resolve_cpu(resolved)

    @property
    def canonical(self) -> dict[str, Any]:
        """JSON-able form with every option resolved; `from_canonical` is its inverse."""
        return {"kind": self.kind, **dict(sorted(self.options.items()))}

    @staticmethod
    def from_canonical(data: dict[str, Any]) -> Target:
        """Rebuild a target from its canonical form."""
        return Target(dict(data))

    @staticmethod
    def current() -> Target:
        """The innermost target in force (``with target:``), else the host."""
        stack = _current.get()
        return stack[-1] if stack else Target("llvm")

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            return self.__dict__["options"][name]
        raise AttributeError(f"Target has no attribute {name!r}")

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register used."""
        cpu, features = self.options["mcpu"], self.options["mattr"]
        if (cpu, features) == host_cpu():
            widest = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
        else:
            widest = _vector_bytes(cpu, features)
        wanted = self.options["prefer_vector_width"] // 8
        return min(widest, wanted) if wanted else widest

    def __enter__(self) -> Target:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.set(_current.get()[:-1])

    def __str__(self) -> str:
        host = host_cpu()
        given_cpu = self.options["mcpu"] != host[0]
        defaults = {**_DEFAULTS, "mcpu": host[0], "mattr": "" if given_cpu else host[1]}
        parts = [self.kind]
        for k, v in self.options.items():
            if v != defaults[k]:
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
    try:
        words = shlex.split(spec)
    except ValueError as e:
        raise TargetError(f"target {spec!r}: {e}") from e
    out: dict[str, Any] = {"kind": words[0]}
    for w in words[1:]:
        key, eq, value = w.lstrip("-").partition("=")
        if not w.startswith("-") or not eq:
            raise TargetError(f"target {spec!r}: options are written -name=value, got {w!r}")
        out[key.replace("-", "_")] = value
    return out


def _option(name: str, value: Any) -> tuple[str, Any]:
    key = str(name).replace("-", "_")
    if key not in OPTIONS:
        raise TargetError(
            f"unknown target option {key!r}{did_you_mean(key, OPTIONS)}; "
            f"known: {', '.join(OPTIONS)}"
        )
    want, text = OPTIONS[key][0], str(value)
    if key == "prefer_vector_width" and text not in ("0", "128", "256", "512"):
        raise TargetError(f"target option {key}: expected 0, 128, 256 or 512, got {value!r}")
    if want is bool and text.lower() in ("true", "false", "1", "0"):
        return key, text.lower() in ("true", "1")
    if want is int and re.fullmatch("[0-9]+", text):
        return key, int(text)
    if want is str and isinstance(value, str) and (value or key != "mcpu"):
        return key, value
    kinds = {int: "a number, 0 or more", bool: "true or false", str: "text"}
    raise TargetError(f"target option {key}: expected {kinds[want]}, got {value!r}")


def _resolve_cpu(options: dict[str, Any]) -> dict[str, Any]:
    host_name, host_features = host_cpu()
    cpu = options.setdefault("mcpu", host_name)
    if cpu == "native":
        cpu = options["mcpu"] = host_name
    features = options.setdefault("mattr", host_features if cpu == host_name else "")
    if (cpu, features) == (host_name, host_features):
        return options
    names = [f[1:] for f in features.split(",") if f]
    if any(f[0] not in "+-" for f in features.split(",") if f):
        raise TargetError(f"target option mattr: expected '+avx2,-avx512f', got {features!r}")
    if cpu not in (host_name, *_common_cpus()) or not _host_knows_features(names):
        _ask_llvm(cpu, features)
    return options


def _common_cpus() -> tuple[str, ...]:
    return COMMON_CPUS.get(platform.machine(), ())


def _host_knows_features(names: list[str]) -> bool:
    import llvmlite.binding as llvm

    return all(n in llvm.get_host_cpu_features() for n in names)


_PROBE = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
target = llvm.Target.from_default_triple()
machine = target.create_target_machine(cpu=sys.argv[1], features=sys.argv[2])
machine.emit_assembly(llvm.parse_assembly("define void @f() { ret void }"))
"""


@lru_cache(maxsize=64)
def _ask_llvm(cpu: str, features: str) -> None:
    """Refuse a CPU or feature that LLVM does not know.

    LLVM has no list to ask. It prints a warning and, for a CPU, ends the process: so a child asks.
    """
    import subprocess
    import sys

    child = subprocess.run(
        [sys.executable, "-c", _PROBE, cpu, features], capture_output=True, text=True, check=False
    )
    said = child.stderr.strip().splitlines()
    if "is not a recognized processor" in child.stderr:
        raise TargetError(
            f"unknown CPU {cpu!r}{did_you_mean(cpu, _common_cpus())}; leave mcpu out for this "
            f"machine's ({host_cpu()[0]}), or take one that LLVM knows: {', '.join(_common_cpus())}"
        )
    odd = next((x for x in said if "is not a recognized feature" in x), None)
    if odd is not None:
        raise TargetError(
            f"target option mattr: LLVM says: {odd.replace(' (ignoring feature)', '')}"
        )
    if child.returncode != 0:
        raise TargetError(
            f"LLVM makes no code for mcpu={cpu} mattr={features} here: {(said or ['no text'])[-1]}"
        )


@lru_cache(maxsize=16)
def _vector_bytes(cpu: str, features: str) -> int:
    """Bytes of a CPU's widest vector register: those that the sum of 64-byte values is made in."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    v = "<16 x float>"
    text = f"define {v} @f({v} %a) {{\n %b = fadd {v} %a, %a\n ret {v} %b\n}}\n"
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, features=features, opt=1)
    asm = machine.emit_assembly(llvm.parse_assembly(text))
    return 64 if "zmm" in asm else 32 if "ymm" in asm else 16
