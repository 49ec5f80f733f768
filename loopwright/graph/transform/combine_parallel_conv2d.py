"""CombineParallelConv2D: convolutions of one input by windows of one size become one."""

from __future__ import annotations

from loopwright.graph.ir.module import IRModule
from loopwright.graph.transform.combine_parallel import Product, combined
from loopwright.graph.transform.module_pass import module_pass

_PRODUCTS = {"nn.conv": Product(0, 1, lambda attrs, weight: attrs["groups"] == 1)}


@module_pass(opt_level=2, name="CombineParallelConv2D")
def combine_parallel_conv2d(module: IRModule) -> IRModule:
    """Write three or more convolutions of one input with constant weights as one, cut apart.

    The pass has TVM's name and number of branches. Windows, strides, padding and dilation must be
    the same, and there is one group. What follows each of them alike, such as the sum with a bias
    and an activation, is combined too.

    Before::

        def @main(%x: float32[1, 4, 8, 8]) {
          %0 = nn.conv(%x, const[a: float32[2, 4, 1, 1]], ...);
          %1 = nn.conv(%x, const[b: float32[3, 4, 1, 1]], ...);
          %2 = nn.conv(%x, const[c: float32[5, 4, 1, 1]], ...);
          %3 = nn.relu(%0);
          %4 = nn.relu(%1);
          %5 = nn.relu(%2);
          (%3, %4, %5)
        }

    After::

        def @main(%x: float32[1, 4, 8, 8]) {
          %0 = nn.conv(%x, const[unnamed: float32[10, 4, 1, 1]], ...);
          %1 = nn.relu(%0);
          %2 = strided_slice(%1, begin=[0], end=[2], strides=None, axes=[1]);
          %3 = strided_slice(%1, begin=[2], end=[5], strides=None, axes=[1]);
          %4 = strided_slice(%1, begin=[5], end=[10], strides=None, axes=[1]);
          (%2, %3, %4)
        }
    """
    return combined(module, _PRODUCTS)
