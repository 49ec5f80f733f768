"""CombineParallelDense: matrix products of one input become one, as for q, k and v of attention."""

from __future__ import annotations

from loopwright.graph.ir.module import IRModule
from loopwright.graph.transform.combine_parallel import Product, combined
from loopwright.graph.transform.module_pass import module_pass

_PRODUCTS = {
    "nn.dense": Product(0, -1, lambda attrs, weight: True),
    "matmul": Product(1, -1, lambda attrs, weight: weight.ndim == 2),
}


@module_pass(opt_level=2, name="CombineParallelDense")
def combine_parallel_dense(module: IRModule) -> IRModule:
    """Write three or more products of one input with constant weights as one product, cut apart.

    The pass has TVM's name and number of branches. What follows each of them alike, such as the
    sum with a bias, is combined too.

    Before::

        def @main(%x: float32[8, 4]) {
          %0 = nn.dense(%x, const[q: float32[4, 4]], out_dtype="");
          %1 = nn.dense(%x, const[k: float32[4, 4]], out_dtype="");
          %2 = nn.dense(%x, const[v: float32[4, 4]], out_dtype="");
          (%0, %1, %2)
        }

    After::

        def @main(%x: float32[8, 4]) {
          %0 = nn.dense(%x, const[unnamed: float32[12, 4]], out_dtype="");
          %1 = strided_slice(%0, begin=[0], end=[4], strides=None, axes=[1]);
          %2 = strided_slice(%0, begin=[4], end=[8], strides=None, axes=[1]);
          %3 = strided_slice(%0, begin=[8], end=[12], strides=None, axes=[1]);
          (%1, %2, %3)
        }
    """
    return combined(module, _PRODUCTS)
