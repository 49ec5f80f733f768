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
#: Operators of graphs whose inputs and attributes are those of TOPI's functions, in their order;
#: behind ``=`` where the operator has another name.
_OPERATORS = """
    abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor
    broadcast_to cast ceil clip cos cosh divide equal erf exp floor floor_divide floor_mod=mod
    greater greater_equal isinf isnan left_shift less less_equal log log10 log2 logical_and
    logical_not logical_or max maximum min minimum mod=fmod multiply negative nn.bias_add
    nn.leaky_relu nn.log_softmax nn.relu nn.softmax not_equal power prod reshape right_shift round
    rsqrt sigmoid sign sin sinh sqrt squeeze strided_slice subtract sum tan tanh transpose trunc
    where
"""


def _of_operator(name: str, verb: str) -> Callable[..., Tensor]:
    op = get_op(name)
    names = (*op.inputs, *op.attrs)

    def call(*args: Any, **named: Any) -> Tensor:
        given = dict(zip(names, args, strict=False))
        for key, value in named.items():
            own = "data" if key in ("a", "t", "x") and op.inputs == ("data",) else key
            if own in given:
                raise TensorError(f"topi.{verb}: {key} is given twice")
            given[own] = value
        missing = [key for key in op.inputs if key not in given]
        if missing or len(args) > len(names) or not given.keys() <= {*names}:
            got = [*given, *map(str, args[len(names) :])]
            raise TensorError(f"topi.{verb} takes ({', '.join(names)}), got ({', '.join(got)})")
        inputs = [given.pop(key) for key in op.inputs]
        for number, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise TensorError(
                    f"topi.{verb}: argument {number} is {tensor!r:.40}, no tensor; write what "
                    "numbers take part in as a te.compute"
                )
        return op.tensors(inputs, op.complete(given))[0]

    call.__name__, call.__doc__ = verb, op.summary
    return call


@cache
def __getattr__(name: str) -> Callable[..., Tensor]:
    """The function of an operator: many are named as Python's own, and so are not defined here."""
    for entry in _OPERATORS.split():
        own, _, operator = entry.partition("=")
        if own.rpartition(".")[2] == name:
            return _of_operator(operator or own, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _of_rank(verb: str, rank: int | None = None, **tensors: Any) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or rank not in (None, len(tensor.shape)):
            wanted = "tensor" if rank is None else f"tensor of {rank} dimensions"
            raise TensorError(f"topi.{verb}: {name} is {tensor!r:.60}, no {wanted}")


def _several(verb: str, tensors: Any) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise TensorError(f"topi.{verb} takes a list of one tensor or more, got {tensors!r:.60}")
    _of_rank(verb, **{f"number {n}": tensor for n, tensor in enumerate(tensors)})
    return list(tensors)


def _agree(verb: str, what: str, one: Any, other: Any) -> None:
    if repr(one) != repr(other):
        raise TensorError(f"topi.{verb}: {what} are {one} and {other}")


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors one behind the other along an axis."""
    op = get_op("concatenate")
    return op.tensors(_several("concatenate", a_tuple), op.complete({"axis": axis}))[0]


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """The tensor with dimensions of extent 1 at a place."""
    (count,) = _numbers("num_newaxis", num_newaxis, (1,), 1)
    for _ in range(count):
        a = _of_operator("expand_dims", "expand_dims")(a, axis)
    return a


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, element by element."""
    first, *others = _several("elemwise_sum", xs)
    for x in others:
        _agree("elemwise_sum", "shapes", first.shape, x.shape)

    def total(*i: Any) -> Any:
        value = first(*i)
        for x in others:
            value = value + x(*i)
        return value

    return compute(first.shape, total, name="elemwise_sum")


def full(shape: Sequence[int], dtype: str, fill_value: float) -> Tensor:
    """A tensor of one value."""
    value, extents = te.const(fill_value, dtype), shape if isinstance(shape, Sequence) else (shape,)
    return compute(tuple(extents), lambda *i: value, name="full")


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Tensor:
    """The product of two matrices, each of them transposed first where that is asked for."""
    _of_rank("matmul", 2, a=a, b=b)
    depth = a.shape[0 if transp_a else 1]
    _agree("matmul", "extents of the sum", depth, b.shape[1 if transp_b else 0])
    k = te.reduce_axis((0, depth), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(
            (a[k, i] if transp_a else a[i, k]) * (b[j, k] if transp_b else b[k, j]), axis=k
        )

    shape = (a.shape[1 if transp_a else 0], b.shape[0 if transp_b else 1])
    return compute(shape, element, name="T_matmul")


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Sequence[int] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Products of matrices, one for each of a batch: (B, M, K) with (B, N, K); a batch of one
    takes part in all. ``oshape``: the shape of the result, if it is to be compared."""
    _of_rank("nn.batch_matmul", 3, tensor_a=tensor_a, tensor_b=tensor_b)
    batches = [t.shape[0] for t in (tensor_a, tensor_b)]
    single = [isinstance(n, int) and n == 1 for n in batches]
    if not any(single):
        _agree("nn.batch_matmul", "batches", *batches)
    depth = tensor_a.shape[1 if transpose_a else 2]
    other = tensor_b.shape[2 if transpose_b else 1]
    _agree("nn.batch_matmul", "extents of the sum", depth, other)
    k = te.reduce_axis((0, depth), name="k")
    wide = out_dtype or tensor_a.dtype

    def element(b: Any, i: Any, j: Any) -> Any:
        one, two = (0 if alone else b for alone in single)
        left = tensor_a[one, k, i] if transpose_a else tensor_a[one, i, k]
        right = tensor_b[two, j, k] if transpose_b else tensor_b[two, k, j]
        return te.sum(left.astype(wide) * right.astype(wide), axis=k)

    sides = tensor_a.shape[2 if transpose_a else 1], tensor_b.shape[1 if transpose_b else 2]
    shape = (batches[1 if single[0] else 0], *sides)
    if oshape is not None:
        _agree(
            "nn.batch_matmul", "oshape and shape", [*_numbers("oshape", oshape, (3,), 1)], [*shape]
        )
    return compute(shape, element, name="T_batch_matmul")


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """Rows of data times the transposed weight, and a bias: (M, K) with (N, K) and (N,)."""
    _of_rank("nn.dense", 2, data=data, weight=weight)
    _agree("nn.dense", "extents of the sum", data.shape[1], weight.shape[1])
    op = get_op("nn.dense")
    rows = op.tensors([data, weight], op.complete({"out_dtype": out_dtype or ""}))[0]
    if bias is None:
        return rows
    _of_rank("nn.dense", 1, bias=bias)
    _agree("nn.dense", "weights and bias", weight.shape[0], bias.shape[0])
    return compute(rows.shape, lambda *i: rows(*i) + bias(i[-1]), name="T_add")


def flatten(data: Tensor) -> Tensor:
    """(N, ...) as (N, the product of the others)."""
    _of_rank("nn.flatten", data=data)
    op = get_op("nn.batch_flatten")
    return op.tensors([data], op.complete({}))[0]


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """The tensor with elements of one value before and after each dimension."""
    _of_rank("nn.pad", data=data)
    before, after = (
        _numbers("padding", n, (len(data.shape),), 0)
        for n in (pad_before, pad_before if pad_after is None else pad_after)
    )
    fill = te.const(pad_value, data.dtype)

    def element(*i: Any) -> Any:
        at = [x - low for x, low in zip(i, before, strict=True)]
        tests = [x >= 0 for x, low in zip(at, before, strict=True) if low]
        tests += [x < n for x, n, high in zip(at, data.shape, after, strict=True) if high]
        return te.if_then_else(te.all(*tests), data(*at), fill) if tests else data(*at)

    sides = zip(data.shape, before, after, strict=True)
    return compute(tuple(n + low + high for n, low, high in sides), element, name=name)


def _numbers(what: str, value: Any, counts: Sequence[int], least: int) -> tuple[int, ...]:
    every = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(every) not in counts or not all(
        isinstance(n, (int, np.integer)) and n >= least for n in every
    ):
        wanted = " or ".join(map(str, counts))
        raise TensorError(
            f"topi: {what} needs {wanted} integers from {least} on, got {value!r:.60}"
        )
    return tuple(map(int, every))


def _pair(what: str, value: Numbers) -> tuple[int, int]:
    numbers = _numbers(what, value, (1, 2), 1)
    return numbers[0], numbers[-1]


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
    steps, apart = _pair("stride", stride), _pair("dilation", dilation)
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise TensorError(f'topi: padding is numbers, "SAME" or "VALID", got {padding!r}')
        pads: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
        if padding.upper() == "SAME":
            if not all(isinstance(n, int) for n in image):
                raise TensorError(f'topi: "SAME" is of images whose sizes are numbers, got {image}')
            pads = tuple(_same(*dims) for dims in zip(image, sizes, steps, apart, strict=True))
        return Window(sizes, steps, pads, apart)
    around = _numbers("padding", padding, (1, 2, 4), 0)
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
    _of_rank("nn.conv2d", 4, Input=data, Filter=weight)
    (groups,) = _numbers("groups", groups, (1,), 1)
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
    _of_rank("nn.conv2d_hwcn", 4, Input=Input, Filter=Filter)
    _agree("nn.conv2d_hwcn", "channels", Input.shape[2], Filter.shape[2])
    window = _window(Input.shape[:2], Filter.shape[:2], stride, padding, dilation)
    before = [low for low, _ in window.pads]
    padded = pad(Input, [*before, 0, 0], [*(high for _, high in window.pads), 0, 0], name="pad")
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
    _of_rank("nn.depthwise_conv2d_nchw", 4, Input=Input, Filter=Filter)
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
    if data_layout not in tuple(_BY_LAYOUT):
        raise TensorError(
            f"topi.nn.conv2d: layouts are {', '.join(_BY_LAYOUT)}, got {data_layout!r}"
        )
    return _BY_LAYOUT[data_layout](input, filter, strides, padding, dilation, out_dtype)


def pool2d(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The largest element (``pool_type="max"``) of each window, or the mean (``"avg"``).

    ``padding`` is a number, (y, x) or (top, left, bottom, right); ``layout`` ``"NCHW"`` or
    ``"NHWC"``. TensorError for others, for ``ceil_mode``, and for means of dilated windows.
    """
    suffixes = {"NCHW": "", "NHWC": "_channels_last"}
    if pool_type not in ("max", "avg") or layout not in tuple(suffixes) or ceil_mode:
        raise TensorError(
            f"topi.nn.pool2d: pool_type={pool_type!r}, layout={layout!r}, ceil_mode={ceil_mode} is "
            "not supported; there are max and avg, NCHW and NHWC, and whole windows"
        )
    _of_rank("nn.pool2d", 4, data=data)
    op = get_op(f"nn.{pool_type}_pool{suffixes[layout]}")
    attrs: dict[str, Any] = {"pool_size": _pair("kernel", kernel)}
    attrs["strides"], apart = _pair("stride", stride), _pair("dilation", dilation)
    around = _numbers("padding", padding, (1, 2, 4), 0)
    attrs["padding"] = around * (4 // len(around))
    if pool_type == "max":
        attrs["dilation"] = apart
    elif apart != (1, 1):
        raise TensorError("topi.nn.pool2d: means are of windows without dilation")
    else:
        attrs["count_include_pad"] = count_include_pad
    return op.tensors([data], op.complete(attrs))[0]


def schedule(outs: Tensor | Sequence[Tensor]) -> Schedule:
    """The default schedule of results for the target in force: that of the space which is derived
    from their expression, the best by the analytical model; `loopwright.build` of tensors takes the
    same. TensorError where a size is a variable; SpaceError where no rule knows the expression.
    """
    results = [outs] if isinstance(outs, Tensor) else _several("schedule", outs)
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
