"""CPUs with instructions for dot products of bytes, of pairs of 16 bits, and of bfloat16.

They are listed by name (LLVM's ``X86.td``), since LLVM does not tell the features of a CPU by name,
and ends the process when it is asked for an instruction that the CPU lacks. A CPU that is not
listed runs the plain code.
"""

from __future__ import annotations

from loopwright.target.cpu import code_features

_AVX512 = {
    "cascadelake", "cooperlake", "icelake-client", "icelake-server", "tigerlake", "rocketlake",
    "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids",
    "znver4", "znver5",
}  # fmt: skip
_AVX = {
    "alderlake", "raptorlake", "meteorlake", "gracemont", "sierraforest", "grandridge",
    "arrowlake", "arrowlake-s", "lunarlake", "pantherlake", "clearwaterforest",
}  # fmt: skip
#: CPUs by name with AVX-512 BF16.
_BF16 = {
    "cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d",
    "diamondrapids", "znver4", "znver5",
}  # fmt: skip
#: CPUs by name that have the short forms (AVX-512 VL), and may be given VNNI as a feature.
_SHORT = _AVX512 | {"x86-64-v4", "skylake-avx512", "cannonlake"}
#: LLVM's functions for products of pairs of 16 bits, by lanes of the result.
PAIRS_OF_SHORTS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
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
    if _has("avx512vnni", _AVX512, cpu, features) and _has_short_forms(cpu, features):
        return 16
    without = {"-avx", "-avx2"} & _given(features)
    return 8 if _has("avxvnni", _AVX, cpu, features) and not without else 0


def pair_lanes(cpu: str, features: str) -> int:
    """Lanes of int32 that one ``vpmaddwd`` of a CPU with these features makes; 0: AVX2 is missing.

    Each lane is the sum of two products of signed numbers of 16 bits (AVX-512 BW: 16 lanes, AVX2:
    8). Two of them make a dot product of four bytes where there is no ``vpdpbusd``.

    Example:
        >>> print(lw.target.pair_lanes("znver3", ""), lw.target.pair_lanes("x86-64", ""))
        8 0
    """
    have = code_features(cpu, features)
    if {"avx512bw", "avx512vl"} <= have:
        return 16
    return 8 if "avx2" in have else 0


def bf16_dot_lanes(cpu: str, features: str) -> int:
    """Lanes of float32 that one ``vdpbf16ps`` of a CPU with these features adds to; 0: it has none.

    Each lane gets the sum of two products of bfloat16 (AVX-512 BF16: 16 lanes).

    Example:
        >>> print(lw.target.bf16_dot_lanes("znver4", ""), lw.target.bf16_dot_lanes("tigerlake", ""))
        16 0
    """
    found = _has("avx512bf16", _BF16, cpu, features) and _has_short_forms(cpu, features)
    return 16 if found else 0


def _has_short_forms(cpu: str, features: str) -> bool:
    """Whether vectors of 512 bits may be used, and shorter ones by the same instructions."""
    without = {f"-{x}" for x in _NEEDED} & _given(features)
    return _has("avx512vl", _SHORT, cpu, features) and not without


def _has(feature: str, named: set[str], cpu: str, features: str) -> bool:
    given = _given(features)
    return f"+{feature}" in given or (cpu in named and f"-{feature}" not in given)


def _given(features: str) -> set[str]:
    return set(features.replace(" ", "").split(","))
