"""Operators: TE definition and NumPy reference, and a template where no rule does as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.ops.elementwise import elementwise, transpose
from loopwright.ops.gemm import matmul_compute
from loopwright.ops.matmul import batch_matmul, dense, matmul
from loopwright.ops.matmul_int8 import matmul_int8, pack_int8
from loopwright.ops.operator import WORKLOADS, Operator
from loopwright.ops.rows import (
    layer_norm,
    layer_norm_compute,
    reduce,
    reduce_compute,
    softmax,
    softmax_compute,
)
from loopwright.ops.tensor_core import matmul_tensor_core
from loopwright.ops.windows import (
    conv2d,
    conv2d_compute,
    depthwise_conv2d,
    depthwise_conv2d_compute,
    pool2d,
    pool2d_compute,
)
from loopwright.space import create_task

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.ops.gemm import product
    from loopwright.ops.operator import (
        Description,
        Parameter,
        compute,
        describe,
        describe_all,
        parameters_of,
    )
    from loopwright.ops.rows import reduced
    from loopwright.ops.windows import IMAGE, Window, convolution, mean_pool, numbered, padded, pool

__all__ = [
    "WORKLOADS", "Operator", "batch_matmul", "conv2d", "conv2d_compute", "create_task", "dense",
    "depthwise_conv2d", "depthwise_conv2d_compute", "elementwise", "layer_norm",
    "layer_norm_compute", "matmul", "matmul_compute", "matmul_int8", "matmul_tensor_core",
    "pack_int8", "pool2d", "pool2d_compute", "reduce", "reduce_compute", "softmax",
    "softmax_compute", "transpose",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
