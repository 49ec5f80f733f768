"""TOPI's names: functions from tensors to a tensor, and schedules of their results.

The functions are those of the operators of `loopwright.graph`, called with tensors; where TOPI has
a schedule by hand for each kind of result, ``schedule_...`` takes the default of the space that is
derived for the target in force. ``docs/from-autotvm.md`` has the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopwright.compat.facade import Table, install

_OWN = "loopwright.compat.topi"
_CONVOLUTIONS = "conv2d conv2d_hwcn conv2d_nchw conv2d_nhwc depthwise_conv2d_nchw group_conv2d_nchw"
_KINDS = (
    "batch_matmul conv2d_hwcn conv2d_nchw conv2d_nhwc dense depthwise_conv2d_nchw "
    "depthwise_conv2d_nhwc elemwise group_conv2d_nchw injective lrn pool reduce softmax"
)
_SCHEDULES = " ".join(f"schedule_{kind}=schedule" for kind in _KINDS.split())
_CALL = "loopwright.graph has it as an operator of models"

_TABLES = {
    "": Table(
        "",
        {
            _OWN: """
                abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or
                bitwise_xor broadcast_to cast ceil clip concatenate cos cosh divide elemwise_sum
                equal erf exp expand_dims floor floor_divide floor_mod full greater greater_equal
                isinf isnan left_shift less less_equal log log10 log2 logical_and logical_not
                logical_or matmul max maximum min minimum mod multiply negative not_equal power prod
                reshape right_shift round rsqrt sigmoid sign sin sinh sqrt squeeze strided_slice
                subtract sum tan tanh transpose trunc where
            """
        },
        {
            **dict.fromkeys(("argmax", "argmin", "argsort", "gather", "take", "topk"), _CALL),
            "image": "loopwright.graph.from_onnx reads models with resizing",
            "sparse": "loopwright.graph has nn.sparse_dense",
            "vision": "loopwright.graph.from_onnx reads models with its operators",
        },
    ),
    "nn": Table(
        "Layers of networks.",
        {
            _OWN: f"{_CONVOLUTIONS} batch_matmul bias_add dense fast_softmax=softmax flatten "
            "leaky_relu log_softmax pad pool2d relu softmax"
        },
        {"sparse_dense": "loopwright.graph has nn.sparse_dense", "conv2d_NCHWc": _CALL},
    ),
    "generic": Table("Schedules for the target in force.", {_OWN: _SCHEDULES}),
    "x86": Table("Schedules for CPUs.", {_OWN: _SCHEDULES}),
    "cuda": Table("Layers, and schedules for GPUs.", {_OWN: f"{_CONVOLUTIONS} {_SCHEDULES}"}),
    "testing": Table(
        "The same in NumPy.", {_OWN: "conv2d_hwcn_python conv2d_nchw_python conv2d_nhwc_python"}
    ),
    "utils": Table(
        "Integers from shapes.", {"loopwright.autotvm.utils": "get_const_int get_const_tuple"}
    ),
}

install(__name__, _TABLES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
