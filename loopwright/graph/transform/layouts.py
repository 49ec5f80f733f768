"""AlterOpLayout and ConvertLayout: convolutions, and the calls between them, in other layouts.

Calls that support the layout adopt it; before others the value is moved back, once for all readers.
"""

from __future__ import annotations

from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Function
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called
from loopwright.graph.layout.choice import LayoutChoice, Places
from loopwright.graph.layout.layouts import LAST
from loopwright.graph.layout.rewriting import Rewriting
from loopwright.graph.passes import check_module, typed_pass
from loopwright.lowering import Pass


def AlterOpLayout(choice: LayoutChoice) -> Pass:
    """A pass that writes calls of ``main`` in the layouts of a choice, of the very same module.

    Blocked convolutions become `nn.conv_channels_blocked`, those with channels last
    `nn.conv_channels_last`; constant weights are packed at once. Where two calls that follow each
    other have different layouts, transposes and reshapes stand between them. Parameters and results
    stay as they are. Another module is a GraphError when the pass is called.

    Example:
        >>> x = lw.graph.var("x", (1, 8, 6, 6))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.max_pool(x, pool_size=2))
        >>> choice = lw.graph.LayoutChoice.of(module, ["NCHW8c"])
        >>> print(lw.graph.infer_types(lw.graph.transform.AlterOpLayout(choice)(module)) != {})
        True
    """

    def run(module: IRModule) -> IRModule:
        choice.check(module)
        f, types = module[MAIN], Types(module)
        places = Places.of(f, types)
        choice.check_places(places.operators)
        layouts = {call: choice.layouts[n] for call, n in places.of_call.items()}
        return module.with_function(MAIN, Rewriting(types, layouts.get).function(f))

    return Pass("AlterOpLayout", 0, run, IRModule, check_module)


@typed_pass(opt_level=2)
def ConvertLayout(f: Function, types: Types) -> Function:
    """Write convolutions as `nn.conv_channels_last`, with what follows in that layout.

    Convolutions of one group, and those of each channel by itself, are taken, where there are
    enough output channels to fill a vector. Parameters and results of functions stay as they are.
    """
    return Rewriting(types, lambda e: LAST if called(e) == "nn.conv" else None).function(f)
