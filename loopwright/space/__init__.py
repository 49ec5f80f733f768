"""What a tensor expression tells of itself, and the schedules that follow from it."""

from __future__ import annotations

from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze
from loopwright.space.derivation import structures
from loopwright.space.ranking import Ranked, ranked
from loopwright.space.sampled import structure_of
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

__all__ = [
    "OperandUse",
    "Ranked",
    "Sketch",
    "StageAnalysis",
    "StageClass",
    "Structure",
    "analyze",
    "ranked",
    "structure_of",
    "structures",
]
