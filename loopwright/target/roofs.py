"""Peak arithmetic of CPUs: the instruction that bounds a kernel, by the type that it multiplies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwright.target.vectors import VectorUnit

if TYPE_CHECKING:
    from loopwright.target.target import Target

#: Instructions: multiply-adds of float32 and float64, dot products of four bytes, of pairs of 16
#: bits, and of pairs of bfloat16.
FMA, FMA64, BYTES, PAIRS, HALVES = "fma", "fma64", "vpdpbusd", "vpmaddwd", "vdpbf16ps"
#: Operations of a lane in one step; after `PAIRS` comes a sum.
_OPERATIONS = {FMA: 2, FMA64: 2, BYTES: 8, PAIRS: 4, HALVES: 4}


@dataclass(frozen=True, slots=True)
class Roof:
    """An instruction that bounds the kernels which compute with it.

    Attributes:
        unit: the vector instructions of the target.
        instruction: one of those of this module.
        lanes: of its result.

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


def roof_of(target: Target, arithmetic: str) -> Roof | None:
    """The instruction that bounds kernels of a target; None where none is known to.

    Args:
        target: what kernels are compiled for.
        arithmetic: type that they multiply: ``"float32"``, ``"float64"``, ``"int8"``, or
            ``"bfloat16"`` with sums in float32, which is converted where the CPU has no
            instruction for it.

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
        case "bfloat16" if of_halves:
            return Roof(unit, HALVES, of_halves)
        case "float32" | "bfloat16":
            return Roof(unit, FMA, unit.nbytes // 4)
    return None
