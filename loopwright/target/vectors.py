"""The vector unit that a target's code uses: width, registers, fused multiply-adds, its name."""

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

    Example:
        >>> unit = lw.target.vector_unit("x86-64-v4", "")
        >>> print(unit.nbytes, unit.registers, unit.fused)
        64 32 True
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
    """The vector unit of this machine.

    Example:
        >>> print(lw.target.host_unit().nbytes >= 16)
        True
    """
    return vector_unit(*host_cpu())


@lru_cache(maxsize=64)
def vector_unit(cpu: str, features: str, widest: int = 0) -> VectorUnit:
    """The vector unit of a CPU.

    Args:
        cpu: a name that LLVM knows.
        features: features switched on and off beside it, as ``+avx2,-fma``.
        widest: bytes of the widest vector that may be used; 0: no limit.

    Example:
        >>> unit = lw.target.vector_unit("x86-64-v3", "")
        >>> print(unit.nbytes, unit.registers, unit.fused)
        32 16 True
    """
    have = code_features(cpu, features)
    full = vector_bytes(cpu, features)
    nbytes = min(full, widest or full)
    fused = has_instruction(cpu, features, "fma")
    name = _name(have, full)
    if nbytes < full:
        name = f"{name}, {8 * nbytes}-bit vectors"
    needs = tuple(sorted(have))
    return VectorUnit(cpu, features, needs, nbytes, _registers(have, nbytes), fused, name)


def _registers(have: frozenset[str], nbytes: int) -> int:
    """16 on x86, 32 with AVX-512, whose short forms (VL) reach all of them too; 32 on AArch64."""
    if not have:
        return 32
    return 32 if nbytes == 64 or "avx512vl" in have else 16


def _name(have: frozenset[str], nbytes: int) -> str:
    if not have:
        return "NEON"
    if nbytes == 64:
        return "AVX-512"
    if nbytes == 32:
        return "AVX2" if "avx2" in have else "AVX"
    return next((name for feature, name in _SSE.items() if feature in have), "SSE2")
