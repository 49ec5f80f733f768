"""The workloads whose kernels are compared with the machine's limits and with other libraries.

Sizes follow networks in use: layers of ResNet-50, MobileNet and BERT, and square products. Traffic
is what must be moved: each input read once, each output written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True)
class Case:
    """One workload.

    Attributes:
        name: row of the table.
        op, params: the operator and its parameters as on the command line.
        bound: "compute" (speed in GFLOP/s, share of the FMA peak) or "memory" (GB/s, share of the
            bandwidth).
        trials: trials of random search, the default configuration first.
        tvm_share: share of the FMA peak (of the bandwidth of a triad, where memory limits) that the
            best schedule of TVM 0.27's MetaSchedule reached after 60 to 256 trials with two threads
            on a Zen 5 of two cores; None: not measured.
    """

    name: str
    op: str
    params: tuple[str, ...]
    bound: str = "compute"
    trials: int = 60
    tvm_share: float | None = None


def _conv(n: int, c: int, size: int, o: int, k: int, pad: int, *more: str) -> tuple[str, ...]:
    given = {"N": n, "C": c, "H": size, "W": size, "O": o, "KH": k, "KW": k, "pad": pad}
    return (*(f"{key}={value}" for key, value in given.items()), *more)


def _matmul(m: int, n: int, k: int, *more: str) -> tuple[str, ...]:
    return (f"M={m}", f"N={n}", f"K={k}", *more)


#: Those that reference figures exist for.
CASES = (
    Case("matmul_512", "matmul", _matmul(512, 512, 512), tvm_share=0.50),
    Case("matmul_1024", "matmul", _matmul(1024, 1024, 1024), tvm_share=0.45),
    Case("matmul_skinny_16x4096x4096", "matmul", _matmul(16, 4096, 4096), tvm_share=0.21),
    Case("dense_bias_relu_128x3072x768", "dense", _matmul(128, 3072, 768), tvm_share=0.24),
    Case(
        "dense_bias_relu_kn_128x3072x768",
        "dense",
        _matmul(128, 3072, 768, "weight=KN"),
        tvm_share=0.44,
    ),
    Case(
        "batch_matmul_12x128x128x64",
        "batch_matmul",
        ("B=12", *_matmul(128, 128, 64)),
        tvm_share=0.42,
    ),
    Case("conv2d_64_56_3x3", "conv2d", _conv(1, 64, 56, 64, 3, 1), tvm_share=0.39),
    Case("conv2d_128_28_3x3", "conv2d", _conv(1, 128, 28, 128, 3, 1), tvm_share=0.28),
    Case("conv2d_256_56_1x1_64", "conv2d", _conv(1, 256, 56, 64, 1, 0), tvm_share=0.18),
    Case(
        "depthwise_96_112_3x3",
        "depthwise_conv2d",
        ("N=1", "C=96", "H=112", "W=112", "KH=3", "KW=3", "pad=1"),
        bound="memory",
        tvm_share=0.33,
    ),
    Case("softmax_1024x1024", "softmax", ("M=1024", "N=1024"), bound="memory", tvm_share=0.05),
    Case("layer_norm_1024x768", "layer_norm", ("M=1024", "N=768"), bound="memory", tvm_share=0.46),
    Case("sum_last_4096x4096", "reduce", ("M=4096", "N=4096"), bound="memory", tvm_share=0.63),
)
#: Shapes that nobody tuned for: sizes that do not divide, small maps, other layouts.
MORE_CASES = (
    Case("matmul_1000x777x333", "matmul", _matmul(1000, 777, 333)),
    Case("matmul_512_transposed", "matmul", _matmul(512, 512, 512, "trans_a=true", "trans_b=true")),
    Case("matmul_512_int8", "matmul_int8", _matmul(512, 512, 512)),
    Case("conv2d_512_7_3x3", "conv2d", _conv(1, 512, 7, 512, 3, 1)),
    Case("conv2d_3_224_7x7_stride2", "conv2d", _conv(1, 3, 224, 64, 7, 3, "stride=2")),
    Case("conv2d_64_56_3x3_nhwc", "conv2d", _conv(1, 64, 56, 64, 3, 1, "layout=NHWC")),
    Case("conv2d_128_28_3x3_groups4", "conv2d", _conv(1, 128, 28, 128, 3, 1, "groups=4")),
    Case("conv2d_64_56_3x3_dilated", "conv2d", _conv(1, 64, 56, 64, 3, 2, "dilation=2")),
    Case(
        "max_pool_64_112_3x3_stride2",
        "pool2d",
        ("N=1", "C=64", "H=112", "W=112", "KH=3", "KW=3", "stride=2", "pad=1"),
        bound="memory",
    ),
    Case(
        "avg_pool_64_112_3x3_stride2",
        "pool2d",
        ("N=1", "C=64", "H=112", "W=112", "KH=3", "KW=3", "stride=2", "pad=1", "kind=avg"),
        bound="memory",
    ),
    Case("transpose_4096x4096", "transpose", ("M=4096", "N=4096"), bound="memory"),
    Case("elementwise_4096x4096", "elementwise", ("M=4096", "N=4096"), bound="memory"),
)


def traffic(tensors: list[Any]) -> int:
    """Bytes that must be moved: every argument once."""
    from loopwright import dtypes

    return sum(prod(t.shape) * dtypes.nbytes(t.dtype) for t in tensors)
