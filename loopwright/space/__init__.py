"""What a tensor expression tells of itself, from which schedules follow."""

from __future__ import annotations

from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze

__all__ = ["OperandUse", "StageAnalysis", "StageClass", "analyze"]
