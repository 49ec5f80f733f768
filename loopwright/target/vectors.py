"""The vector unit that a target's code uses: width, registers, and dot products.

CPUs with instructions for dot products are listed by name (LLVM's ``X86.td``), since LLVM does not
tell the features of a CPU by name, and ends the process when it is asked for an instruction that
the CPU lacks. A CPU that is not listed runs the plain code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from loopwright.target.cpu import code_features, has_instruction, host_cpu, vector_bytes

#: Generations of instructions for vectors of 128 bits, the newest first.
_SSE = {"sse4.2": "SSE4.2", "sse4.1": "SSE4.1", "ssse3": "SSSE3", "sse3": "SSE3"}


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """The vector instructions that code for a CPU may use.

    Attributes:
        cpu, features: LLVM's name of the CPU, and features switched on and off beside it.
        needs: features that a machine must have to run such code, by LLVM's names; empty where
            they are not known.
        nbytes: bytes of the widest register that is used.
        registers: number of registers of that width.
        fused: whether there are instructions for ``a * b + c``.
        name: such as ``"AVX2"``.
    """

    cpu: str
    features: str
    needs: tuple[str, ...]
    nbytes: int
    registers: int
    fused: bool
    name: str

    @property
    def peak(self) -> str:
        """Name of its highest rate of operations."""
        return f"FMA peak ({self.name})" if self.fused else f"peak ({self.name}, no FMA)"

    @property
    def is_all_of_this_machine(self) -> bool:
        """Whether it is no less than this machine's own, which libraries such as NumPy's use."""
        return self.nbytes >= host_unit().nbytes and self.fused >= host_unit().fused


def host_unit() -> VectorUnit:
    """The vector unit of this machine."""
    return vector_unit(*host_cpu())


@lru_cache(maxsize=64)
def vector_unit(cpu: str, features: str, widest: int = 0) -> VectorUnit:
    """The vector unit of a CPU.

    Args:
        cpu: a name that LLVM knows.
        features: features switched on and off beside it, as ``+avx2,-fma``.
        widest: bytes of the widest vector that may be used; 0: no limit.
    """
    have = code_features(cpu, features)
    full = vector_bytes(cpu, features)
    nbytes = min(full, widest or full)
    fused = has_instruction(cpu, features, "fma")
    if not have:
        name = "NEON"
    elif full == 64:
        name = "AVX-512"
    elif full == 32:
        name = "AVX2" if "avx2" in have else "AVX"
    else:
        name = next((name for feature, name in _SSE.items() if feature in have), "SSE2")
    if nbytes < full:
        name = f"{name}, {8 * nbytes}-bit vectors"
    # 32 on AArch64, and with AVX-512, whose short forms (VL) reach all of them too.
    registers = 32 if not have or nbytes == 64 or "avx512vl" in have else 16
    return VectorUnit(cpu, features, tuple(sorted(have)), nbytes, registers, fused, name)


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
    """
    if _has("avx512vnni", _AVX512, cpu, features) and _has_short_forms(cpu, features):
        return 16
    without = {"-avx", "-avx2"} & _switches(features)
    return 8 if _has("avxvnni", _AVX, cpu, features) and not without else 0


def pair_lanes(cpu: str, features: str) -> int:
    """Lanes of int32 that one ``vpmaddwd`` of a CPU with these features makes; 0: AVX2 is missing.

    Each lane is the sum of two products of signed numbers of 16 bits (AVX-512 BW: 16 lanes, AVX2:
    8). Two of them make a dot product of four bytes where there is no ``vpdpbusd``.
    """
    have = code_features(cpu, features)
    if {"avx512bw", "avx512vl"} <= have:
        return 16
    return 8 if "avx2" in have else 0


def bf16_dot_lanes(cpu: str, features: str) -> int:
    """Lanes of float32 that one ``vdpbf16ps`` of a CPU with these features adds to; 0: it has none.

    Each lane gets the sum of two products of bfloat16 (AVX-512 BF16: 16 lanes).
    """
    has_dots = _has("avx512bf16", _BF16, cpu, features) and _has_short_forms(cpu, features)
    return 16 if has_dots else 0


def _has_short_forms(cpu: str, features: str) -> bool:
    """Whether vectors of 512 bits may be used, and shorter ones by the same instructions."""
    without = {f"-{x}" for x in _NEEDED} & _switches(features)
    return _has("avx512vl", _SHORT, cpu, features) and not without


def _has(feature: str, named: set[str], cpu: str, features: str) -> bool:
    switches = _switches(features)
    return f"+{feature}" in switches or (cpu in named and f"-{feature}" not in switches)


def _switches(features: str) -> set[str]:
    return set(features.replace(" ", "").split(","))


#: Instructions: multiply-adds of float32 and float64, dot products of four bytes, of pairs of 16
#: bits, and of pairs of bfloat16.
FMA, FMA64, BYTES, PAIRS, HALVES = "fma", "fma64", "vpdpbusd", "vpmaddwd", "vdpbf16ps"
#: Operations of a lane in one step; after `PAIRS` comes a sum.
_OPERATIONS = {FMA: 2, FMA64: 2, BYTES: 8, PAIRS: 4, HALVES: 4}


@dataclass(frozen=True, slots=True)
class Roof:
    """An instruction of a vector unit that bounds kernels, and the lanes of its result.

    Example:
        >>> roof = lw.target.roof_of(lw.Target("llvm -mcpu=znver4"), "int8")
        >>> print(roof.name, roof.lanes, roof.flop)
        int8 peak (AVX-512, VPDPBUSD) 16 128
    """

    unit: VectorUnit
    instruction: str
    lanes: int

    @property
    def flop(self) -> int:
        """Operations of one step."""
        return self.lanes * _OPERATIONS[self.instruction]

    @property
    def name(self) -> str:
        """Name of the roof, for people."""
        match self.instruction:
            case "fma":
                return self.unit.peak
            case "fma64":
                return f"float64 {self.unit.peak}"
        dtype = "bfloat16" if self.instruction == HALVES else "int8"
        return f"{dtype} peak ({self.unit.name}, {self.instruction.upper()})"
