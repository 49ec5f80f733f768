"""Which CPUs have instructions for dot products of bytes.

LLVM ends the process when it is asked for an instruction that a CPU lacks, and does not tell what a
CPU by name has; so the names are listed here (LLVM's ``X86.td``). A CPU that is not listed runs the
plain code.
"""

from __future__ import annotations

_AVX512 = {
    "cascadelake", "cooperlake", "icelake-client", "icelake-server", "tigerlake", "rocketlake",
    "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids",
    "znver4", "znver5",
}  # fmt: skip
_AVX = {
    "alderlake", "raptorlake", "meteorlake", "gracemont", "sierraforest", "grandridge",
    "arrowlake", "arrowlake-s", "lunarlake", "pantherlake", "clearwaterforest",
}  # fmt: skip
#: CPUs by name that have the short forms (AVX-512 VL), and may be given VNNI as a feature.
_SHORT = _AVX512 | {"x86-64-v4", "skylake-avx512", "cannonlake"}
#: Without these there are no vectors of 512 bits, or no short forms of their instructions.
_NEEDED = ("avx512f", "avx512bw", "avx512vl")


def dot_lanes(cpu: str, features: str) -> int:
    """Lanes of int32 that one ``vpdpbusd`` of a CPU with these features adds to; 0: it has none.

    Each lane gets the sum of four products of an unsigned and a signed byte (AVX-512 VNNI: 16
    lanes, AVX-VNNI: 8).

    Example:
        >>> print(lw.target.dot_lanes("x86-64", "+avx512vnni,+avx512vl"))
        16
    """
    given = set(features.replace(" ", "").split(","))

    def has(feature: str, named: set[str]) -> bool:
        return f"+{feature}" in given or (cpu in named and f"-{feature}" not in given)

    if (
        has("avx512vnni", _AVX512)
        and has("avx512vl", _SHORT)
        and not any(f"-{x}" in given for x in _NEEDED)
    ):
        return 16
    return 8 if has("avxvnni", _AVX) and not {"-avx", "-avx2"} & given else 0
