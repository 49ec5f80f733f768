"""ConvertLayout: convolutions, and the calls between them, in channels-last layout.

Convolutions then read and write (N, ..., C): vectors run along channels, of which a narrow image
has as many as a wide one, and constant weights are transposed beforehand. Calls that support the
layout adopt it; before others the value is transposed back, once for all its readers.
"""

from __future__ import annotations

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called
from loopwright.graph.layout.layouts import LAST, Layout
from loopwright.graph.layout.rewriting import Rewriting
from loopwright.graph.layout.rules import leaving, rule_of
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=2, name="ConvertLayout")
def convert_layout(module: IRModule) -> IRModule:
    """Write convolutions as `nn.conv_channels_last`, with what follows in that layout.

    Convolutions of one group, and those of each channel by itself, are taken, where there are
    enough output channels to fill a vector. Parameters and results of functions stay as they are.
    """
    types = infer_types(module)
    made = {
        n: Rewriting(types, _last, rule_of, leaving).function(f)
        for n, f in module.functions.items()
    }
    return module.with_functions(made)


def _last(call: Call) -> Layout | None:
    return LAST if called(call) == "nn.conv" else None
