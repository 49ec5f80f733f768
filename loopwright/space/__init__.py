"""Analysis of tensor expressions, and the schedules derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze
from loopwright.space.derivation import structures
from loopwright.space.expression import TensorProgram, tensor_program
from loopwright.space.kernels import Kernel
from loopwright.space.ranking import Ranked, ranked
from loopwright.space.registry import SpaceRule, remove_rule, space_rule
from loopwright.space.structure import Sketch, Structure, Variant, structure_of
from loopwright.space.tasks import AutomaticTask, Workload, create_task, workload

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.space.kept import KeptDefaults
    from loopwright.space.registry import RULES, enter
    from loopwright.space.rules.common_cpu import (
        column_tiles,
        fits_registers,
        row_tiles,
        vector_lanes,
        vector_registers,
    )
    from loopwright.space.rules.common_gpu import LoopSizes, Values
    from loopwright.space.rules.programs_gpu import kind_of, schedule_program
    from loopwright.space.rules.tensor_core_gpu import (
        DEFAULT_WARPS,
        FIRST_ARCH,
        STAGES,
        TILES,
        WARPS,
        MmaOperands,
        MmaProduct,
        cost,
        fitting,
        has_tensor_cores,
        points,
        staged_steps,
    )
    from loopwright.space.tasks import EXPRESSION, Tensors

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

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
