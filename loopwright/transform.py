"""`loopwright.transform`: passes and their context for users, under TVM's names.

Custom passes are functions from `Func` to `Func`; `Mutator` and its kin help to write them.
"""

from __future__ import annotations

from loopwright.ir.stmt import Func
from loopwright.ir.visitor import (
    ExprMutator,
    ExprVisitor,
    Mutator,
    StmtMutator,
    StmtVisitor,
    Visitor,
)
from loopwright.lowering.context import Pass, PassContext, Sequential, func_pass
from loopwright.lowering.gpu_limits import GpuLimits, verify_gpu_limits
from loopwright.lowering.instruments import (
    PassInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintChanged,
)
from loopwright.lowering.passes.bound_checkers import (
    instrument_bound_checkers as InstrumentBoundCheckers,
)
from loopwright.lowering.passes.common_subexpr import common_subexpr_elim as CommonSubexprElim
from loopwright.lowering.passes.constant_folding import constant_folding as ConstantFolding
from loopwright.lowering.passes.loop_invariant import (
    loop_invariant_code_motion as LoopInvariantCodeMotion,
)
from loopwright.lowering.passes.remove_no_op import remove_no_op as RemoveNoOp
from loopwright.lowering.passes.simplify import simplify as Simplify
from loopwright.lowering.passes.skip_vectorize import skip_vectorize as SkipVectorize
from loopwright.lowering.passes.storage_rewrite import storage_rewrite as StorageRewrite
from loopwright.lowering.passes.unroll import unroll_loop as UnrollLoop
from loopwright.lowering.passes.vectorize import vectorize_loop as VectorizeLoop
from loopwright.lowering.pipeline import pass_order, run_passes

__all__ = [
    "CommonSubexprElim",
    "ConstantFolding",
    "ExprMutator",
    "ExprVisitor",
    "Func",
    "GpuLimits",
    "InstrumentBoundCheckers",
    "LoopInvariantCodeMotion",
    "Mutator",
    "Pass",
    "PassContext",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintChanged",
    "RemoveNoOp",
    "Sequential",
    "Simplify",
    "SkipVectorize",
    "StmtMutator",
    "StmtVisitor",
    "StorageRewrite",
    "UnrollLoop",
    "VectorizeLoop",
    "Visitor",
    "func_pass",
    "pass_order",
    "run_passes",
    "verify_gpu_limits",
]
