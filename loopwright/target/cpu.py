"""Names and features of CPUs: the host's, those that LLVM knows, and the width of vectors."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from loopwright.errors import TargetError, did_you_mean

#: Features of x86 that change the code of loops; others need intrinsics that are never emitted.
NAMED_IN_RECORDS = re.compile(r"s?sse|avx|fma|f16c|bmi|lzcnt|popcnt|movbe|cmov|xop")
#: Features that LLVM uses in loops by itself as well. The string of the host, which stands in every
#: record, names them only where the machine lacks what CPUs of its name have.
UNNAMED = ("gfni", "tbm", "egpr", "ndd", "ccmp", "nf", "cf", "zu", "ppx", "push2pop2")


def changes_code(feature: str) -> bool:
    """Whether code for loops may use a feature of x86 CPUs."""
    return feature in UNNAMED or NAMED_IN_RECORDS.match(feature) is not None


def features_among(names: Iterable[str], cpu: str, features: str) -> frozenset[str]:
    """The features among some names that an x86 CPU has; LLVM must know the names and the CPU: one
    that it does not know ends the process. ``features`` are switched on and off beside it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    asked = tuple(names)
    # LLVM has no list to ask, and inlines a function only where the caller's CPU has every feature
    # of the callee: so one small function for each feature is called from the CPU in question.
    lines = [f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for k, name in enumerate(asked, 1):
        lines.append(
            f"define internal void @needs{k - 1}(ptr %p) #{k} {{\n"
            f" store volatile i32 {k}, ptr %p\n ret void\n}}\n"
            f"define void @caller{k - 1}(ptr %p) #0 {{\n"
            f" call void @needs{k - 1}(ptr %p)\n ret void\n}}\n"
            f'attributes #{k} = {{ "target-cpu"="generic" "target-features"="+{name}" }}'
        )
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="generic")
    module = llvm.parse_assembly("\n".join(lines))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return frozenset(
        name
        for k, name in enumerate(asked)
        if " call " not in str(module.get_function(f"caller{k}"))
    )


#: CPU names by machine that every LLVM of today knows, taken without a query; hints, too.
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
#: Other names that LLVM has for the same CPUs; scripts of TVM use them.
ALIASES = {
    "corei7": "nehalem", "corei7-avx": "sandybridge", "core-avx-i": "ivybridge",
    "core-avx2": "haswell", "skx": "skylake-avx512", "slm": "silvermont",
}  # fmt: skip


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, str]:
    """Name and feature string of this machine's CPU, as LLVM sees it.

    On x86 only features that code for loops can use are named: the string stands in every record.
    """
    import llvmlite.binding as llvm

    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    if not _is_x86():
        return name, features.flatten()
    kept = {n: on for n, on in features.items() if NAMED_IN_RECORDS.match(n)}
    kept |= dict.fromkeys((n for n in _hidden_features() if n in UNNAMED), False)
    return name, llvm.FeatureMap(kept).flatten()


@lru_cache(maxsize=1)
def _hidden_features() -> frozenset[str]:
    """Features of x86 that CPUs of the host's name have and a virtual machine hides."""
    import llvmlite.binding as llvm

    if not _is_x86():
        return frozenset()
    features = llvm.get_host_cpu_features()
    lacking = [n for n, on in features.items() if not on and changes_code(n)]
    return features_among(lacking, llvm.get_host_cpu_name(), "")


@lru_cache(maxsize=64)
def code_features(cpu: str, features: str) -> frozenset[str]:
    """The features of x86 that code for a CPU may use, with those implied, by LLVM's names.

    Only features that change the code of loops; none on other architectures. ``features`` are
    switched on and off beside the CPU's, as ``+avx2,-fma``.
    """
    import llvmlite.binding as llvm

    if not _is_x86():
        return frozenset()
    return features_among(filter(changes_code, llvm.get_host_cpu_features()), cpu, features)


@lru_cache(maxsize=64)
def missing_here(cpu: str, features: str) -> tuple[str, ...]:
    """Features of x86 that code for a CPU may use and this machine's CPU lacks, sorted.

    Elsewhere nobody tells the features of a CPU by its name: one of another name is missing itself.
    """
    import llvmlite.binding as llvm

    have = llvm.get_host_cpu_features()
    needed = code_features(cpu, features)
    if not _is_x86():
        needed = frozenset(f[1:] for f in features.split(",") if f.startswith("+"))
        needed |= {cpu} - {host_cpu()[0], "", "generic"}
    return tuple(sorted(f for f in needed if not have.get(f)))


def same_code(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two CPUs, each a name and features, are one to the compiler.

    They are if their names mean the same CPU, and code may use the same features.
    What they say may come from a log: names that are not known are compared as text alone.
    """
    if one == other:
        return True
    names = {ALIASES.get(cpu, cpu) for cpu, _ in (one, other)}
    if len(names) > 1 or not names <= {host_cpu()[0], *_common_cpus()} or not _is_x86():
        return False
    if not all(_host_knows_features(_names(features)) for _, features in (one, other)):
        return False
    return code_features(*one) == code_features(*other)


def _names(features: str) -> list[str]:
    return [f[1:] for f in features.split(",") if f]


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


#: Other names of architectures.
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


def is_of_architecture(triple: str) -> bool:
    """Whether a triple such as ``aarch64-linux-gnu`` is of this machine's architecture; an empty
    one is."""
    wanted, here = triple.partition("-")[0].lower(), platform.machine().lower()
    return not wanted or _ARCHITECTURES.get(wanted, wanted) == _ARCHITECTURES.get(here, here)


def check_triple(triple: str) -> None:
    """Refuse a triple of another architecture than this machine's."""
    if not is_of_architecture(triple):
        here = platform.machine().lower()
        raise TargetError(
            f"target option mtriple: code is made for this machine's architecture, {here}, not for "
            f"{triple!r}; tune and build on such a machine"
        )


def resolve_cpu(options: dict[str, Any]) -> None:
    """Fill in ``mcpu`` and ``mattr``, and refuse what LLVM does not know."""
    host_name, host_features = host_cpu()
    cpu = options.setdefault("mcpu", host_name)
    if cpu == "native":
        cpu = options["mcpu"] = host_name
    features = options.setdefault("mattr", host_features if cpu == host_name else "")
    if (cpu, features) == (host_name, host_features):
        return
    if any(f[0] not in "+-" for f in features.split(",") if f):
        raise TargetError(f"target option mattr: expected '+avx2,-avx512f', got {features!r}")
    if cpu == host_name:
        # A CPU of the host's name is the host itself, without what that lacks.
        hidden = sorted(_hidden_features() - {*_names(features)})
        features = options["mattr"] = ",".join(
            [*(f"-{n}" for n in hidden), *filter(None, [features])]
        )
    if cpu not in (host_name, *_common_cpus()) or not _host_knows_features(_names(features)):
        _ask_llvm(cpu, features)


def _common_cpus() -> tuple[str, ...]:
    """Names that every LLVM of today knows for this architecture."""
    others = (*ALIASES, *ALIASES.values()) if _is_x86() else ()
    return (*COMMON_CPUS.get(platform.machine(), ()), *others)


def _host_knows_features(names: list[str]) -> bool:
    import llvmlite.binding as llvm

    return all(n in llvm.get_host_cpu_features() for n in names)


_PROBE = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
target = llvm.Target.from_default_triple()
target.create_target_machine(cpu="help")
machine = target.create_target_machine(cpu=sys.argv[1], features=sys.argv[2])
machine.emit_assembly(llvm.parse_assembly("define void @f() { ret void }"))
"""
#: An entry of the two lists that LLVM prints as its help: CPUs, then features.
_LISTED = re.compile(r"^  (\S+) +- ", re.M)


@lru_cache(maxsize=64)
def _ask_llvm(cpu: str, features: str) -> None:
    """Refuse a CPU or feature that LLVM does not know, or that makes no code here.

    LLVM prints its lists, warns of features, and ends the process for a CPU: so a child asks.
    """
    import subprocess
    import sys

    child = subprocess.run(
        [sys.executable, "-c", _PROBE, cpu, features], capture_output=True, text=True, check=False
    )
    parts = child.stderr.partition("\nAvailable features")
    cpus, features_known = _LISTED.findall(parts[0]), _LISTED.findall(parts[2])
    if cpus and cpu not in cpus:
        raise TargetError(
            f"unknown CPU {cpu!r}{did_you_mean(cpu, cpus)}; leave mcpu out for this machine's "
            f"({host_cpu()[0]}), or take one that LLVM knows: "
            f"{', '.join(COMMON_CPUS.get(platform.machine(), cpus))}"
        )
    for name in _names(features):
        if features_known and name not in features_known:
            raise TargetError(
                f"target option mattr: LLVM knows no feature {name!r} of "
                f"{platform.machine()}{did_you_mean(name, features_known)}"
            )
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no text"])[-1]
        raise TargetError(f"LLVM makes no code for mcpu={cpu} mattr={features} here: {last}")


@lru_cache(maxsize=16)
def vector_bytes(cpu: str, features: str) -> int:
    """Bytes of the widest vector register of a CPU with these features: on another CPU than this
    one, of those in which LLVM adds 64-byte values.
    """
    if (cpu, features) == host_cpu():
        return 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    v = "<16 x float>"
    text = f"define {v} @f({v} %a) {{\n %b = fadd {v} %a, %a\n ret {v} %b\n}}\n"
    asm = _assembly(cpu, features, text)
    return 64 if "zmm" in asm else 32 if "ymm" in asm else 16


def _assembly(cpu: str, features: str, text: str) -> str:
    """The assembly that LLVM writes for IR text and a CPU."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, features=features, opt=1)
    return str(machine.emit_assembly(llvm.parse_assembly(text)))


#: A function of one instruction, and what its assembly holds where a library is called instead.
_PROBES = {
    "fma": (
        "declare float @llvm.fma.f32(float, float, float)\n"
        "define float @f(float %a) {\n %b = call float @llvm.fma.f32(float %a, float %a, float %a)"
        "\n ret float %b\n}\n",
        "fmaf",
    ),
    "float16": (
        "define float @f(half %a) {\n %b = fpext half %a to float\n ret float %b\n}\n",
        "hfsf",
    ),
}


@lru_cache(maxsize=32)
def has_instruction(cpu: str, features: str, what: str) -> bool:
    """Whether a CPU has instructions for ``"fma"``, or for conversion from ``"float16"``."""
    text, library = _PROBES[what]
    return library not in _assembly(cpu, features, text)


#: Stores the first of eight integers, cut to half their width.
_NARROW_STORE = f"""
declare void @llvm.masked.store.v8i32.p0(<8 x i32>, ptr, i32, <8 x i1>)
define void @f(ptr %p, <8 x i64> %x) {{
 %t = trunc <8 x i64> %x to <8 x i32>
 call void @llvm.masked.store.v8i32.p0(<8 x i32> %t, ptr %p, i32 4,
                                       <8 x i1> <i1 true{", i1 false" * 7}>)
 ret void
}}
"""


@lru_cache(maxsize=16)
def stores_too_wide(cpu: str, features: str) -> bool:
    """Whether LLVM's code for a CPU writes too much in a masked store of narrowed integers.

    With AVX-512, LLVM before its repair of February 2026 (llvm-project issue 179489) joins the
    narrowing and the store; where the mask is a constant with one lane, it then stores that lane
    as it was before it was narrowed, over its neighbours in memory.
    """
    return "movlps" in _assembly(cpu, features, _NARROW_STORE)


#: Every third of sixteen integers.
_SHUFFLE = """
define <8 x i32> @f(<8 x i32> %x, <8 x i32> %y) {
 %s = shufflevector <8 x i32> %x, <8 x i32> %y,
      <8 x i32> <i32 0, i32 3, i32 6, i32 9, i32 12, i32 15, i32 8, i32 10>
 ret <8 x i32> %s
}
"""


@lru_cache(maxsize=16)
def permutes_memory(cpu: str, features: str) -> bool:
    """Whether a CPU has permutations of two vectors, with a mask, of which one may be in memory.

    That is AVX-512's ``vpermt2d`` and its like. They read memory whatever the mask says.
    """
    text = _assembly(cpu, features, _SHUFFLE)
    return "vpermt2" in text or "vpermi2" in text


#: Sixteen floats in another order.
_ORDER = """
define <16 x float> @f(<16 x float> %x) {
 %s = shufflevector <16 x float> %x, <16 x float> poison,
      <16 x i32> <i32 9, i32 2, i32 15, i32 4, i32 1, i32 12, i32 7, i32 0,
                  i32 3, i32 14, i32 5, i32 10, i32 13, i32 6, i32 11, i32 8>
 ret <16 x float> %s
}
"""


@lru_cache(maxsize=16)
def permuted_bytes(cpu: str, features: str) -> int:
    """Bytes of the widest vector of a CPU of which an instruction picks lanes by their numbers."""
    if not _is_x86():
        return 0
    text = _assembly(cpu, features, _ORDER)
    if "vpermps" not in text:
        return 0
    return 64 if "zmm" in text else 32
