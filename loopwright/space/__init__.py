"""Analysis of tensor expressions, and the schedules derived from it."""

from __future__ import annotations

from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze
from loopwright.space.derivation import structures
from loopwright.space.expression import TensorProgram, tensor_program
from loopwright.space.kernels import Kernel
from loopwright.space.ranking import Ranked, ranked
from loopwright.space.registry import SpaceRule, remove_rule, space_rule
from loopwright.space.sketch import Sketch, Variant
from loopwright.space.structure import Structure, structure_of
from loopwright.space.tasks import AutomaticTask, Workload, create_task, workload

__all__ = [
    "AutomaticTask",
    "Kernel",
    "OperandUse",
    "Ranked",
    "Sketch",
    "SpaceRule",
    "StageAnalysis",
    "StageClass",
    "Structure",
    "TensorProgram",
    "Variant",
    "Workload",
    "analyze",
    "create_task",
    "ranked",
    "remove_rule",
    "space_rule",
    "structure_of",
    "structures",
    "tensor_program",
    "workload",
]
