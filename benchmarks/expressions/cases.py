"""The expressions, at sizes of real use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.expressions import definitions
from loopwright import dtypes, te
from tests.unit.space import composed, expressions

#: What is left of the two answers of a compiler's rounding, relative to the largest element.
_FLOAT32, _BFLOAT16 = 1e-4, 2e-2


@dataclass(frozen=True)
class Expression:
    """One expression.

    Attributes:
        call: what it is called among the calls of NumPy and PyTorch.
        make: makes its arguments, result last.
        args: sizes, of which the name tells, too.
        one_call: the library call that computes all of it; empty where libraries compose several.
        upper: integers among the inputs that are no bytes lie below it.
        tolerance: largest difference to the answer in float64, relative to its largest element.
    """

    call: str
    make: Callable[..., list[te.Tensor]]
    args: tuple[int, ...]
    one_call: str = ""
    upper: int = 0
    tolerance: float = _FLOAT32

    @property
    def name(self) -> str:
        """Row of the table."""
        return f"{self.call}_{'x'.join(map(str, self.args))}"

    def tensors(self) -> list[te.Tensor]:
        """The arguments, result last."""
        return self.make(*self.args)

    def inputs(self, tensors: Sequence[te.Tensor], seed: int = 0) -> list[npt.NDArray[Any]]:
        """Random inputs: floats of a normal distribution, bytes of all values, indices."""
        rng = np.random.default_rng(seed)
        return [self._random(rng, t) for t in tensors[:-1]]

    def _random(self, rng: np.random.Generator, t: te.Tensor) -> npt.NDArray[Any]:
        shape, dtype = t.static_shape, np.dtype(dtypes.check(t.dtype))
        if "int" not in t.dtype:
            return rng.standard_normal(shape, "float32").astype(dtype)
        if t.dtype.endswith("int8"):
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        return rng.integers(0, self.upper, shape).astype(dtype)


def _composed(call: str, *args: int, **more: Any) -> Expression:
    return Expression(call, getattr(composed, call), args, **more)


def _here(call: str, *args: int, **more: Any) -> Expression:
    return Expression(call, getattr(definitions, call), args, **more)


def _small(call: str, *args: int, **more: Any) -> Expression:
    return Expression(call, getattr(expressions, call), args, **more)


#: All expressions. None has a template.
EXPRESSIONS: tuple[Expression, ...] = (
    # of networks
    _composed("attention", 12, 128, 64, one_call="scaled_dot_product_attention"),
    _composed("attention", 8, 512, 64, one_call="scaled_dot_product_attention"),
    _composed("gated_mlp", 128, 768, 2048),
    _composed("gru_cell", 32, 512, 512, one_call="gru_cell"),
    _composed("separable", 64, 56, 128),
    _composed("group_norm", 8, 32, 6272, one_call="group_norm"),
    _here("rms_norm", 1024, 1024, one_call="rms_norm"),
    _composed("rms_norm_of_a_sum", 512, 1024),
    _composed("log_sum_exp", 1024, 1000, one_call="logsumexp"),
    _composed("softmax_of_columns", 1024, 512, one_call="softmax"),
    _here("cross_entropy", 256, 1000, one_call="cross_entropy"),
    _composed("squeeze_and_excite", 64, 56, 56),
    _here("masked_softmax", 8, 256),
    _here("gelu_dense", 128, 3072, 768),
    _here("low_rank", 128, 768, 768, 8),
    _here("rotary", 12, 512, 64),
    # convolutions
    _composed("conv1d", 64, 128, 1026, one_call="conv1d"),
    _composed("conv1d_dilated_last", 64, 64, 1030, one_call="conv1d"),
    _small("conv3d", 16, 32, 20, 3, one_call="conv3d"),
    _composed("transposed_conv", 64, 32, 1024, one_call="conv_transpose1d"),
    _composed("winograd", 64, 64, 1024),
    _here("locally_connected", 16, 16, 512),
    _here("cost_volume", 32, 96, 16),
    _here("residual_block", 64, 28),
    # stencils, images
    _composed("blurred_twice", 1024, 1024),
    _here("jacobi", 1026, 1026, 3),
    _composed("heat3d", 100, 100, 100),
    _here("sobel", 1080, 1920),
    _here("bilinear_resize", 3, 256, one_call="interpolate"),
    _here("nearest_resize", 64, 56, one_call="interpolate"),
    _here("gray", 1080, 1920),
    _here("global_average", 4, 256, 28, one_call="mean"),
    # algebra
    _small("distances", 512, 512, 64),
    _composed("squared_distances", 1024, 1024, 64),
    _composed("chebyshev", 512, 512, 32, one_call="cdist"),
    _small("min_plus", 256, 256, 256),
    _here("power_spectrum", 256, 512),
    _composed("power_iteration", 1024),
    _composed("bilinear", 64, 64, 64, 64, one_call="bilinear"),
    _composed("small_products", 4096, 4, 4, one_call="bmm"),
    _composed("contracted_tensors", 128, 16, 32, 32, 32, one_call="tensordot"),
    _composed("gram", 2048, 256, one_call="mm"),
    _here("quadratic_form", 512, 256),
    _here("kronecker", 32, 32, one_call="kron"),
    # reductions
    _composed("running_sums", 256, 256, one_call="cumsum"),
    _composed("largest_of_few_columns", 100_000, 3, one_call="amax"),
    _composed("norm_of_difference", 1024, 1024),
    _here("variance_of_columns", 1024, 1024, one_call="var"),
    _here("sum_of_squares", 2048, 1024, one_call="dot"),
    # copies, gathers
    _composed("rank4", 8, 64, 56, 56, one_call="contiguous"),
    _composed("heads_split", 8, 128, 12, 64),
    _composed("gathered", 30_000, 256, 1024, one_call="embedding", upper=30_000),
    _composed("embedded", 30_000, 256, 512, 512, upper=30_000),
    _composed("one_hot", 1024, 256, 512, upper=1024),
    _here("joined", 1024, 512, 768, one_call="cat"),
    _here("reflect_pad", 64, 56, one_call="pad"),
    _here("pixel_shuffle", 16, 112, one_call="pixel_shuffle"),
    # narrow and wide types
    _here("int8_dense", 256, 768, 768),
    _composed("bf16_product", 512, 512, 512, tolerance=_BFLOAT16),
    _composed("half_rows", 1024, 1024, one_call="sum"),
    _composed("double_product", 384, 384, 384, one_call="mm"),
)


def part_of(text: str) -> list[Expression]:
    """Every n-th expression, from ``"1/3"`` to ``"3/3"``.

    Raises:
        ValueError: the text is something else.
    """
    first, _, count = text.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise ValueError(f"a part is such as 1/3, the first of three; got {text!r}")
    return list(EXPRESSIONS[int(first) - 1 :: int(count)])
