"""AlterOpLayout: convolutions, pools and the calls between them in the layouts that were chosen."""

from __future__ import annotations

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.layout.places import Places
from loopwright.graph.layout.rewriting import Rewriting
from loopwright.graph.layout.rules import leaving, rule_of
from loopwright.graph.transform.module_pass import check_module
from loopwright.lowering.context import Pass


def AlterOpLayout(choice: LayoutChoice) -> Pass:
    """A pass that writes calls of ``main`` in the layouts of a choice.

    Blocked convolutions become `nn.conv_channels_blocked`, those with channels last
    `nn.conv_channels_last`; constant weights are packed at once. Where two calls that follow each
    other have different layouts, transposes and reshapes stand between them. Parameters and results
    stay as they are.

    Args:
        choice: what `tune_layouts` gives; of the very module that the pass is called with.

    Raises:
        GraphError: when it is called: the choice is of another module.

    Example:
        >>> x = lw.graph.var("x", (1, 8, 6, 6))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.max_pool(x, pool_size=2))
        >>> choice = lw.graph.LayoutChoice.of(module, ["NCHW8c"])
        >>> print(lw.graph.infer_types(lw.graph.transform.AlterOpLayout(choice)(module)) != {})
        True
    """

    def run(module: IRModule) -> IRModule:
        choice.check(module)
        f, types = module[MAIN], infer_types(module)
        places = Places.of(f, types)
        choice.check_places(places.operators)
        layouts = {call: choice.layouts[n] for call, n in places.of_call.items()}
        made = Rewriting(types, layouts.get, rule_of, leaving).function(f)
        return IRModule({**module.functions, MAIN: made})

    return Pass("AlterOpLayout", 0, run, IRModule, check_module)
