"""ReassociateConstants: consecutive float constants become one."""

from __future__ import annotations

from loopwright.graph.dataflow_pattern import rewrite
from loopwright.graph.ir.module import IRModule
from loopwright.graph.transform.module_pass import module_pass
from loopwright.graph.transform.simplify_arithmetic import REASSOCIATING


@module_pass(opt_level=2, name="ReassociateConstants")
def reassociate_constants(module: IRModule) -> IRModule:
    """Write ``(x * a) * b`` as ``x * (a * b)``, and so for sums.

    That rounds once in place of twice, and loses what the first rounding is for, as in
    ``(x + 12582912) - 12582912``, so that only targets with ``-fastmath`` ask for it.

    Before::

        def @main(%x: float32[4]) {
          %0 = multiply(%x, 2.0);
          multiply(%0, 3.0)
        }

    After::

        def @main(%x: float32[4]) {
          multiply(%x, 6.0)
        }
    """
    return rewrite(REASSOCIATING, module)
