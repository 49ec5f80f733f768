"""The loop IR: nodes, affine arithmetic, printer, interpreter."""

from __future__ import annotations

import loopwright.ir.printer
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IterVar, Var
from loopwright.ir.stmt import Func, Stmt
from loopwright.ir.structural import structural_equal, structural_hash

__all__ = [
    "Buffer",
    "Expr",
    "Func",
    "IterVar",
    "Stmt",
    "Var",
    "structural_equal",
    "structural_hash",
]
