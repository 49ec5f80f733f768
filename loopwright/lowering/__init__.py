"""Lowering: from a schedule to the loop IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.lowering.pipeline import (
    constant_stages,
    lower,
    lower_ids,
    prepared_stages,
    too_deep,
)

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.lowering.context import (
        Pass,
        PassContext,
        PassInstrument,
        PassTimingInstrument,
        PrintAfterAll,
        PrintBeforeAll,
        PrintChanged,
        Sequential,
        func_pass,
        register_pass,
    )
    from loopwright.lowering.gpu_limits import GpuLimits, limits_of, verify_gpu_limits
    from loopwright.lowering.passes.bound_checkers import instrument_bound_checkers
    from loopwright.lowering.passes.redundancy import (
        common_subexpr_elim,
        loop_invariant_code_motion,
    )
    from loopwright.lowering.passes.simplify import constant_folding, remove_no_op, simplify
    from loopwright.lowering.passes.storage_rewrite import storage_rewrite
    from loopwright.lowering.passes.vectorize import skip_vectorize, unroll_loop, vectorize_loop
    from loopwright.lowering.pipeline import check_work, pass_order, run_passes

__all__ = ["constant_stages", "lower", "lower_ids", "prepared_stages", "too_deep"]

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
