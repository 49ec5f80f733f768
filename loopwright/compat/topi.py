"""TOPI's functions from tensors to a tensor: those of operators of graphs, and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from loopwright import te
from loopwright.errors import TensorError
from loopwright.graph import get_op
from loopwright.ops import Window, compute, convolution
from loopwright.schedule import Schedule, create_schedule
from loopwright.space import create_task
from loopwright.task import schedule_of
from loopwright.te import Tensor

#: One number for both dimensions of an image, or one for each.
Numbers: TypeAlias = int | Sequence[int]
#: Elements around an image: one number, (y, x), (top, left, bottom, right), "SAME" or "VALID".
Padding: TypeAlias = int | str | Sequence[int]
Array: TypeAlias = npt.NDArray[Any]
#: Operators of graphs whose inputs and attributes are those of TOPI's functions, in their order.
_OPERATORS = """
    abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor
    broadcast_to cast ceil clip cos cosh divide equal erf exp expand_dims floor floor_divide greater
    greater_equal isinf isnan left_shift less less_equal log log10 log2 logical_and logical_not
    logical_or max maximum min minimum mod multiply negative nn.bias_add nn.leaky_relu
    nn.log_softmax nn.relu nn.softmax not_equal power prod reshape right_shift round rsqrt sigmoid
    sign sin sinh sqrt squeeze strided_slice subtract sum tan tanh transpose trunc where
"""


def _of_operator(name: str) -> Callable[..., Tensor]:
    op = get_op(name)
    verb = name.rpartition(".")[2]

    def call(*args: Any, **attrs: Any) -> Tensor:
        inputs, values = args[: len(op.inputs)], args[len(op.inputs) :]
        for number, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise TensorError(
                    f"topi.{verb}: argument {number} is {tensor!r:.40}, no tensor; write what "
                    "numbers take part in as a te.compute"
                )
        if len(inputs) < len(op.inputs) or len(values) > len(op.attrs):
            takes = ", ".join((*op.inputs, *op.attrs))
            raise TensorError(f"topi.{verb} takes ({takes}), got {len(args)} arguments")
        return op.tensors(
            inputs, op.complete({**dict(zip(op.attrs, values, strict=False)), **attrs})
        )[0]

    call.__name__, call.__doc__ = verb, op.summary
    return call


@cache
def __getattr__(name: str) -> Callable[..., Tensor]:
    """The function of an operator: many are named as Python's own, and so are not defined here."""
    for operator in _OPERATORS.split():
        if operator.rpartition(".")[2] == name:
            return _of_operator(operator)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors one behind the other along an axis."""
    op = get_op("concatenate")
    return op.tensors(list(a_tuple), op.complete({"axis": axis}))[0]


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, element by element."""
    first, *others = xs

    def total(*i: Any) -> Any:
        value = first(*i)
        for x in others:
            value = value + x(*i)
        return value

    return compute(first.shape, total, name="elemwise_sum")


def full(shape: Sequence[int], dtype: str, fill_value: float) -> Tensor:
    """A tensor of one value."""
    return compute(tuple(shape), lambda *i: te.const(fill_value, dtype), name="full")


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Tensor:
    """The product of two matrices, each of them transposed first where that is asked for."""
    k = te.reduce_axis((0, a.shape[0 if transp_a else 1]), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(
            (a[k, i] if transp_a else a[i, k]) * (b[j, k] if transp_b else b[k, j]), axis=k
        )

    shape = (a.shape[1 if transp_a else 0], b.shape[0 if transp_b else 1])
    return compute(shape, element, name="T_matmul")


def batch_matmul(
    x: Tensor,
    y: Tensor,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Products of matrices, one for each of a batch: (B, M, K) with (B, N, K)."""
    k = te.reduce_axis((0, x.shape[1 if transpose_a else 2]), name="k")
    wide = out_dtype or x.dtype

    def element(b: Any, i: Any, j: Any) -> Any:
        left = x[b, k, i] if transpose_a else x[b, i, k]
        right = y[b, j, k] if transpose_b else y[b, k, j]
        return te.sum(left.astype(wide) * right.astype(wide), axis=k)

    shape = (x.shape[0], x.shape[2 if transpose_a else 1], y.shape[1 if transpose_b else 2])
    return compute(shape, element, name="T_batch_matmul")


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """Rows of data times the transposed weight, and a bias: (M, K) with (N, K) and (N,)."""
    op = get_op("nn.dense")
    rows = op.tensors([data, weight], op.complete({"out_dtype": out_dtype or ""}))[0]
    if bias is None:
        return rows
    return compute(rows.shape, lambda *i: rows(*i) + bias(i[-1]), name="T_add")


def flatten(data: Tensor) -> Tensor:
    """(N, ...) as (N, the product of the others)."""
    op = get_op("nn.batch_flatten")
    return op.tensors([data], op.complete({}))[0]


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
) -> Tensor:
    """The tensor with elements of one value before and after each dimension."""
    pairs = tuple(zip(pad_before, pad_after or pad_before, strict=True))
    op = get_op("nn.pad")
    return op.tensors([data], op.complete({"pad_width": pairs, "pad_value": pad_value}))[0]


def _pair(value: Numbers) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2:
        raise TensorError(f"topi: give one number for an image, or two, got {value!r}")
    return both[0], both[1]


def _window(
    image: Sequence[Any],
    kernel: Sequence[Any],
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
) -> Window:
    """The window of a convolution, by all the forms in which TOPI takes padding."""
    sizes = tuple(n for n in kernel if isinstance(n, int))
    if len(sizes) != len(kernel):
        raise TensorError(f"topi: the window of a convolution is of numbers, got {kernel}")
    steps, apart = _pair(stride), _pair(dilation)
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise TensorError(f'topi: padding is numbers, "SAME" or "VALID", got {padding!r}')
        pads: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
        if padding.upper() == "SAME":
            pads = tuple(_same(*dims) for dims in zip(image, sizes, steps, apart, strict=True))
        return Window(sizes, steps, pads, apart)
    around = tuple(padding) if not isinstance(padding, int) else (padding, padding)
    if len(around) not in (2, 4):
        raise TensorError(f"topi: give one number as padding, (y, x) or four, got {padding!r}")
    top, left, bottom, right = around * (4 // len(around))
    return Window(sizes, steps, ((top, bottom), (left, right)), apart)


def _same(extent: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding with which a result has ``ceil(extent / stride)`` elements."""
    reach = (kernel - 1) * dilation + 1
    total = max(0, ((extent + stride - 1) // stride - 1) * stride + reach - extent)
    return total // 2, total - total // 2


def _convolved(
    data: Tensor,
    weight: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None,
    layout: str = "NCHW",
    groups: int = 1,
) -> Tensor:
    first = 2 if layout == "NCHW" else 1
    kernel = weight.shape[2:] if layout == "NCHW" else weight.shape[:2]
    window = _window(data.shape[first : first + 2], kernel, stride, padding, dilation)
    image = data
    if all(p == (0, 0) for p in window.pads):  # templates look for the stage that pads
        image = compute(data.shape, lambda *i: data(*i), name="pad")
    return convolution(
        *(image, weight, window, layout),
        dtype=out_dtype or data.dtype,
        groups=groups,
        as_workload=True,
        name="compute",
    )


def conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of (N, C, H, W) with (O, C, KH, KW): (N, O, OH, OW).

    Its operand is the padded image, a stage of its own also without padding. ``out_dtype``: the
    dtype of products and sums; None: that of the data.
    """
    return _convolved(Input, Filter, stride, padding, dilation, out_dtype)


def conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of (N, H, W, C) with (KH, KW, C, O): (N, OH, OW, O); see `conv2d_nchw`."""
    return _convolved(Input, Filter, stride, padding, dilation, out_dtype, "NHWC")


def conv2d_hwcn(
    Input: Tensor,
    Filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of (H, W, C, N) with (KH, KW, C, O): (OH, OW, O, N); see `conv2d_nchw`."""
    window = _window(Input.shape[:2], Filter.shape[:2], stride, padding, dilation)
    before = [low for low, _ in window.pads]
    padded = pad(Input, [*before, 0, 0], [*(high for _, high in window.pads), 0, 0])
    size = window.positions(padded.shape[:2])
    taps, c = window.taps(), te.reduce_axis((0, Filter.shape[2]), name="rc")
    wide = out_dtype or Input.dtype

    def element(y: Any, x: Any, o: Any, n: Any) -> Any:
        factor = Filter(*taps, c, o).astype(wide)
        return te.sum(padded(*window.at((y, x), taps), c, n).astype(wide) * factor, axis=[*taps, c])

    shape = (*size, Filter.shape[3], Input.shape[3])
    return compute(shape, element, name="conv", tag="conv2d_hwcn")


def group_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d_nchw` of groups: output o reads the channels of group ``o // (O / groups)``."""
    return _convolved(Input, Filter, stride, padding, dilation, out_dtype, groups=groups)


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of each channel of (N, C, H, W) with M filters of (C, M, KH, KW)."""
    channels, per, *kernel = Filter.static_shape
    weight = compute(
        (channels * per, 1, *kernel), lambda o, _, *k: Filter(o // per, o % per, *k), name="filters"
    )
    return _convolved(Input, weight, stride, padding, dilation, out_dtype, groups=channels)


_BY_LAYOUT = {"NCHW": conv2d_nchw, "NHWC": conv2d_nhwc, "HWCN": conv2d_hwcn}


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Numbers,
    padding: Padding,
    dilation: Numbers,
    data_layout: str = "NCHW",
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution in a layout: ``"NCHW"``, ``"NHWC"`` or ``"HWCN"``."""
    if data_layout not in _BY_LAYOUT:
        raise TensorError(
            f"topi.nn.conv2d: layouts are {', '.join(_BY_LAYOUT)}, got {data_layout!r}"
        )
    return _BY_LAYOUT[data_layout](input, filter, strides, padding, dilation, out_dtype)


def pool2d(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The largest element (``pool_type="max"``) of each window, or the mean (``"avg"``).

    ``padding`` is (top, left, bottom, right); ``layout`` ``"NCHW"`` or ``"NHWC"``. TensorError for
    others, for ``ceil_mode``, and for means of dilated windows.
    """
    suffixes = {"NCHW": "", "NHWC": "_channels_last"}
    if pool_type not in ("max", "avg") or layout not in suffixes or ceil_mode:
        raise TensorError(
            f"topi.nn.pool2d: pool_type={pool_type!r}, layout={layout!r}, ceil_mode={ceil_mode} is "
            "not supported; there are max and avg, NCHW and NHWC, and whole windows"
        )
    op = get_op(f"nn.{pool_type}_pool{suffixes[layout]}")
    attrs: dict[str, Any] = {"pool_size": _pair(kernel), "strides": _pair(stride)}
    attrs["padding"] = tuple(padding)
    if pool_type == "max":
        attrs["dilation"] = _pair(dilation)
    elif _pair(dilation) != (1, 1):
        raise TensorError("topi.nn.pool2d: means are of windows without dilation")
    else:
        attrs["count_include_pad"] = count_include_pad
    return op.tensors([data], op.complete(attrs))[0]


def schedule(outs: Tensor | Sequence[Tensor]) -> Schedule:
    """The default schedule of results for the target in force: that of the space which is derived
    from their expression, the best by the analytical model; `loopwright.build` of tensors takes the
    same. TensorError where a size is a variable; SpaceError where no rule knows the expression.
    """
    results = [outs] if isinstance(outs, Tensor) else list(outs)
    derived, _ = schedule_of(create_task(results))
    own = create_schedule(results)
    for step in derived.trace:
        own.apply_step(step)
    return own


def _in_numpy(layout: str) -> Callable[..., Array]:
    to_nchw = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 3, 1, 2), "HWCN": (3, 2, 0, 1)}[layout]
    weight_turn = (0, 1, 2, 3) if layout == "NCHW" else (3, 2, 0, 1)

    def reference(a_np: Array, w_np: Array, stride: Numbers, padding: Padding) -> Array:
        x, w = a_np.transpose(to_nchw), w_np.transpose(weight_turn)
        window = _window(x.shape[2:], w.shape[2:], stride, padding, 1)
        around = np.pad(x, ((0, 0), (0, 0), *window.pads))
        views = np.lib.stride_tricks.sliding_window_view(around, w.shape[2:], (2, 3))
        (sy, sx) = window.stride
        y: Array = np.einsum("nchwrs,ocrs->nohw", views[:, :, ::sy, ::sx], w, optimize=True)
        return y.transpose(np.argsort(to_nchw))

    reference.__doc__ = f"The convolution of arrays in {layout}, as `conv2d_{layout.lower()}`."
    return reference


conv2d_nchw_python = _in_numpy("NCHW")
conv2d_nhwc_python = _in_numpy("NHWC")
conv2d_hwcn_python = _in_numpy("HWCN")
