"""Whether this machine's CPU can run code that was built for another one.

The instructions that the code may use decide, and not the CPU's name: a manifest lists the
features that the code needs. Only where it lacks them is the name compared: manifests of older
versions, and architectures on which a CPU's name does not give its features.
"""

from __future__ import annotations

from functools import lru_cache

from loopwright.errors import TargetError
from loopwright.runtime import linker
from loopwright.runtime.artifacts.manifest import Manifest

#: Features of the CPU names that stand for a level and not for a CPU, for manifests without needs.
LEVELS = {
    "": "",
    "generic": "",
    "x86-64": "",
    "x86-64-v2": "sse4.2 popcnt",
    "x86-64-v3": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe",
    "x86-64-v4": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe "
    "avx512f avx512bw avx512cd avx512dq avx512vl",
}


def check_host(manifest: Manifest) -> None:
    """Raise TargetError for a program that this machine's CPU may not be able to run.

    The architecture differs, a feature is missing, or a CPU of another name does not say what it
    needs; the message names both sides.
    """
    reason = _unfit(manifest.triple, manifest.cpu, manifest.features, manifest.needs)
    if reason:
        raise TargetError(reason)


@lru_cache(maxsize=64)
def _unfit(triple: str, cpu: str, features: str, needs: tuple[str, ...]) -> str:
    host = linker.host_cpu()
    arch, host_arch = triple.partition("-")[0], linker.host_triple().partition("-")[0]
    again = "build it on this machine, or for a CPU that both are"
    if arch != host_arch:
        return f"the program was built for {arch} ({cpu}), this machine is {host_arch} ({host})"
    if not needs and cpu != host and cpu not in LEVELS:
        return f"the program was built for the CPU {cpu}, this machine is a {host}; {again}"
    have = enabled(linker.host_features())
    needed = set(needs) or set(LEVELS.get(cpu, "").split()) | enabled(features)
    missing = sorted(needed - have)
    if missing:
        return (
            f"the program was built for {cpu or 'generic'} with {', '.join(missing)}, "
            f"which this machine's {host} lacks; {again}"
        )
    return ""


def enabled(features: str) -> set[str]:
    """The features that a string such as ``+avx2,-avx512f`` turns on."""
    return {name[1:] for name in features.split(",") if name.startswith("+")}
