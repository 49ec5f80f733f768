"""`loopwright.transform`: passes and their context for users, under TVM's names."""

from __future__ import annotations

from loopwright.lower.context import Pass, PassContext, Sequential, func_pass
from loopwright.lower.instruments import (
    PassInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintChanged,
)
from loopwright.lower.pipeline import pass_order, run_passes
from loopwright.lower.unroll import unroll_loop as UnrollLoop

__all__ = [
    "Pass",
    "PassContext",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintChanged",
    "Sequential",
    "UnrollLoop",
    "func_pass",
    "pass_order",
    "run_passes",
]
