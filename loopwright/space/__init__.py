"""What a tensor expression tells of itself, from which schedules follow."""

from __future__ import annotations

from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

__all__ = ["OperandUse", "Sketch", "StageAnalysis", "StageClass", "Structure", "analyze"]
