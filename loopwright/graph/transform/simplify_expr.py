"""SimplifyExpr: removes calls without effect, and merges calls that one call can do.

The rules are patterns (`loopwright.graph.dataflow_pattern`), as in TVM's pass of the name.
"""

from __future__ import annotations

from loopwright.graph.dataflow_pattern import rewrite
from loopwright.graph.ir.module import IRModule
from loopwright.graph.transform import simplify_arithmetic, simplify_moves
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=2, name="SimplifyExpr")
def simplify_expr(module: IRModule) -> IRModule:
    """Simplify arithmetic with constants, casts, bounds, and what moves elements.

    * ``x - 0``, ``x * 1``, ``x / 1``, a cast to the own dtype, a reshape to the own shape: ``x``;
      ``x + 0`` of integers too, while that of floats turns -0 into 0.
    * ``(x * a) * b`` of integers is ``x * (a * b)``, and so for sums; ``x / 8`` is ``x * 0.125``,
      where the reciprocal is exact; ``power(x, 2)`` is ``x * x``.
    * A cast of a cast that loses nothing, bounds inside bounds, a pad around a pad, a reshape of a
      reshape, a transpose of a transpose are one; zeros around the image of a convolution are its
      padding; a product with a transposed matrix is ``nn.dense``.

    No value changes, but in the last place of ``power(x, 2)``.

    Before::

        def @main(%x: float32[2, 3]) {
          %0 = transpose(%x, axes=[1, 0]);
          %1 = multiply(%0, 2.0);
          %2 = divide(%1, 4.0);
          %3 = reshape(%2, newshape=[3, 2]);
          subtract(%3, 0.0)
        }

    After::

        def @main(%x: float32[2, 3]) {
          %0 = transpose(%x, axes=[1, 0]);
          %1 = multiply(%0, 2.0);
          multiply(%1, 0.25)
        }
    """
    return rewrite((*simplify_arithmetic.RULES, *simplify_moves.RULES), module)
