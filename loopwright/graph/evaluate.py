"""Values of expressions of constants, computed by kernels without a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright import driver, te
from loopwright.executors import GraphExecutor
from loopwright.graph.ir.expr import Expr, Function, Tuple
from loopwright.graph.ir.module import IRModule
from loopwright.graph.kernels import expression_of
from loopwright.graph.plan import plan
from loopwright.target import Target


def evaluate(exprs: Sequence[Expr]) -> list[np.ndarray[Any, Any]]:
    """The values of expressions of constants.

    Args:
        exprs: calls of operators over constants; each has one tensor as its value.

    Returns:
        An array for each.

    Raises:
        GraphError: a type does not fit, or something else than constants is read.

    Example:
        >>> e = lw.graph.op.add(lw.graph.const([1.0, 2.0]), lw.graph.const(3.0))
        >>> print(lw.graph.evaluate([e])[0])
        [4. 5.]
    """
    # The package of passes, one of which folds constants by this function, is loaded when needed.
    from loopwright.graph.transform.fuse_ops import fuse_ops

    planned = plan(fuse_ops(IRModule.from_expr(Function((), Tuple(tuple(exprs))))))
    kernels = {}
    with Target("llvm"):
        for name, (function, _) in planned.kernels.items():
            args = expression_of(function)
            s = te.create_schedule([t.op for t in args.outputs])
            kernels[name] = driver.build(s, args.args, name=name)
    executor = GraphExecutor(planned.program, kernels, planned.constants)
    executor.run()
    return [np.asarray(executor.get_output(n)) for n in range(len(exprs))]
