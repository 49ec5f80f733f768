"""Quantisation of a model to int8, with scales from value ranges over calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from loopwright.errors import GraphError, UsageError, did_you_mean
from loopwright.graph.compile import compile
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, TensorType, Tuple, const
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite_each
from loopwright.graph.registry import get_op
from loopwright.graph.transform.pipeline import FOLDING
from loopwright.graph.transform.quantization import CHANNELS
from loopwright.task import TargetLike

Array: TypeAlias = np.ndarray[Any, Any]
#: Methods to choose a range.
Method: TypeAlias = Literal["min_max", "percentile", "entropy"]
METHODS = ("min_max", "percentile", "entropy")
#: Bins of a histogram; levels of 8 bits without the sign.
_BINS, _LEVELS = 2048, 128
#: Bins between the thresholds that are tried.
_STEP = 16


@dataclass(frozen=True)
class ValueRange:
    low: float  # 0 at most
    high: float  # 0 at least


def check_method(method: str) -> None:
    if method not in METHODS:
        hint = did_you_mean(method, METHODS)
        raise UsageError(f"there is no calibration {method!r}{hint}; use {', '.join(METHODS)}")


def calibrate(
    main: Function,
    values: Sequence[Expr],
    data: Iterable[Mapping[str, Array]],
    method: Method,
    percentile: float,
    target: TargetLike,
) -> list[ValueRange]:
    """The ranges of float tensors over all data; ``percentile`` of the numbers lie inside."""
    runs = list(data)
    if not runs:
        raise GraphError("there are no calibration data; give the inputs of one run at least")
    whole = Function(main.params, Tuple(tuple(values)))
    executor = compile(IRModule({MAIN: whole}), target).executor()

    def each(see: Callable[[int, Array], None]) -> None:
        for inputs in runs:
            executor.run(**inputs)
            for n in range(len(values)):
                see(n, np.asarray(executor.get_output(n)))

    ranges = [ValueRange(0.0, 0.0)] * len(values)

    def widen(n: int, a: Array) -> None:
        low, high = float(a.min()), float(a.max())
        if not np.isfinite([low, high]).all():
            where = values[n].span or f"value {n}"
            raise GraphError(f"{where} is not finite for calibration data; look at the inputs")
        ranges[n] = ValueRange(min(ranges[n].low, low), max(ranges[n].high, high))

    each(widen)
    if method == "min_max":
        return ranges
    counts = [np.zeros(_BINS, "int64") for _ in values]

    def count(n: int, a: Array) -> None:
        counts[n] += np.histogram(a, _BINS, _limits(ranges[n], method))[0]

    each(count)
    if method == "entropy":
        return [_by_entropy(c, r) for c, r in zip(counts, ranges, strict=True)]
    return [_by_percentile(c, r, percentile) for c, r in zip(counts, ranges, strict=True)]


def _limits(r: ValueRange, method: Method) -> tuple[float, float]:
    """The limits of a histogram; those of the method entropy are symmetric around 0."""
    if r.low == r.high:
        return (-1.0, 1.0)
    most = max(-r.low, r.high)
    return (-most, most) if method == "entropy" else (r.low, r.high)


def _by_percentile(counts: Array, r: ValueRange, percentile: float) -> ValueRange:
    """The range without the outermost numbers, equally many at each end that is not 0."""
    edges = np.linspace(*_limits(r, "percentile"), _BINS + 1)
    share = np.cumsum(counts) / counts.sum()
    out = 1 - percentile / 100
    out = out / 2 if r.low < 0 < r.high else out
    low = edges[int(np.searchsorted(share, out, side="right"))] if r.low < 0 else 0.0
    high = edges[int(np.searchsorted(share, 1 - out)) + 1] if r.high > 0 else 0.0
    return ValueRange(min(max(float(low), r.low), 0.0), max(min(float(high), r.high), 0.0))


def _by_entropy(counts: Array, r: ValueRange) -> ValueRange:
    """The range of least Kullback-Leibler divergence, as in TensorRT (Migacz, 2017)."""
    half = _BINS // 2
    sizes = counts[half:] + counts[:half][::-1]
    best = min(range(_LEVELS, half + 1, _STEP), key=lambda n: _divergence(sizes, n))
    threshold = max(-r.low, r.high) * best / half
    return ValueRange(max(r.low, -threshold), min(r.high, threshold))


def _divergence(sizes: Array, n: int) -> float:
    """Divergence of the first n quantised bins from all bins, the rest put into the last."""
    kept = sizes[:n].astype("float64")
    wanted = kept.copy()
    wanted[-1] += sizes[n:].sum()
    level = np.arange(n) * _LEVELS // n
    filled = kept > 0
    totals = np.bincount(level, kept, _LEVELS)
    members = np.bincount(level, filled, _LEVELS)
    quantized = np.where(filled, (totals / np.maximum(members, 1))[level], 0.0)
    if not quantized.sum():
        return float("inf")
    p, q = wanted / wanted.sum(), quantized / quantized.sum()
    seen = (p > 0) & (q > 0)
    missing = p[(p > 0) & (q == 0)].sum()
    return float((p[seen] * np.log(p[seen] / q[seen])).sum() + missing * np.log(1e6))


#: A convolution of no more channels, the first one of most models, is faster in float32.
_FEW = 4
#: The scale of a value that is 0 throughout.
_SMALLEST = float(np.finfo("float32").tiny)


def quantize(
    model: ModelLike,
    calibration_data: Iterable[Mapping[str, Array] | Array],
    *,
    calibration: Method = "min_max",
    percentile: float = 99.99,
    skip: Sequence[str] = (),
    of_values: bool = False,
    target: TargetLike = None,
) -> IRModule:
    """Quantise the products of a model: int8 weights, uint8 data, sums in int32.

    Weights get a scale for each output channel, and no zero point. The data of a convolution,
    `nn.dense` or a product with a constant matrix get one scale and one zero point, from their
    range over the calibration data. All else is computed in float32 (Jacob et al., 2018), and so
    are convolutions of images of four channels or fewer.

    Args:
        model: a module, or an ONNX model as `from_onnx` takes it; float32.
        calibration_data: inputs of some runs, by name; or an array each, where there is one input.
        calibration: how ranges are chosen: ``"min_max"``, all numbers; ``"percentile"``, without
            the outermost ones; ``"entropy"``, by the divergence of the quantised distribution
            (Migacz, 2017).
        percentile: percentage of the numbers that the range holds, 0 to 100; for that method.
        skip: spans of products that stay in float32, such as ``"Conv 'conv_3'"`` for a node of an
            ONNX model.
        of_values: quantise products of two values, too, such as those of attention: the first
            operand to uint8, the second to int8 with the zero point 0, by one scale each.
        target: what the model is run on for calibration; None as in `compile`.

    Returns:
        A module with values and weights quantised and dequantised in the manner of QDQ models,
        which `compile` turns into integer products.

    Raises:
        GraphError: there are no data, inputs do not fit, or a value or a weight is not finite.
        UsageError: there is no such method, the percentile is invalid, or no product has a span
            that is to be skipped.

    Example:
        >>> x, w = lw.graph.var("x", (1, 4)), np.ones((2, 4), "float32")
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> data = [np.linspace(0, 2.55, 4, dtype="float32")[None]]
        >>> quantized = lw.graph.quantize(module, data, target="llvm")
        >>> print(lw.graph.compile(quantized, "llvm")(data[0])[0].round(2))
        [[5.1 5.1]]
    """
    check_method(calibration)
    if not 50 < percentile <= 100:
        raise UsageError(f"percentile is {percentile}; give more than 50, and 100 at most")
    module = FOLDING(module_of(model))
    main = module[MAIN]
    products = _products(module, of_values)
    spans = {p.span for p in products}
    for name in skip:
        if name not in spans:
            hint = did_you_mean(name, spans)
            raise UsageError(f"no product that could be quantised has the span {name!r}{hint}")
    products = [p for p in products if p.span not in skip]
    read = [*(p.args[0] for p in products), *(p.args[1] for p in products if _of_values(p))]
    values = list(dict.fromkeys(read))
    if not values:
        return module
    data = [_by_name(main, run) for run in calibration_data]
    ranges = calibrate(main, values, data, calibration, percentile, target)
    range_of = dict(zip(values, ranges, strict=True))
    return module.with_function(MAIN, _annotated(main, products, range_of))


def _by_name(main: Function, arrays: Mapping[str, Array] | Array) -> Mapping[str, Array]:
    if isinstance(arrays, Mapping):
        return arrays
    if len(main.params) != 1:
        names = ", ".join(p.name for p in main.params)
        raise GraphError(f"calibration data are arrays by name for a model of the inputs {names}")
    return {main.params[0].name: arrays}


def _products(module: IRModule, of_values: bool) -> list[Call]:
    """The products of float32 data with constant weights, and with other data where asked for."""
    types = infer_types(module)
    products = []
    for e in post_order(module[MAIN].body):
        name = called(e)
        if name is None or name not in CHANNELS or not isinstance(e, Call):
            continue
        t, other = (types[a] for a in e.args[:2])
        if not isinstance(t, TensorType) or t.dtype != "float32":
            continue
        matrices = all(isinstance(x, TensorType) and len(x.shape) >= 2 for x in (t, other))
        if _pays(name, e) or (of_values and _of_values(e) and matrices):
            products.append(e)
    return products


def _of_values(product: Call) -> bool:
    return called(product) == "matmul" and not any(isinstance(a, Constant) for a in product.args)


def _pays(name: str, product: Call) -> bool:
    """Whether a product has a constant weight, and enough channels for grouped sums."""
    weight = product.args[1]
    if not isinstance(weight, Constant):
        return False
    if name == "nn.conv":
        groups: int = get_op(name).complete(product.attrs)["groups"]
        return weight.data.shape[1] > _FEW or groups > 1
    return name == "nn.dense" or weight.data.ndim == 2


def _annotated(
    main: Function, products: Sequence[Call], ranges: Mapping[Expr, ValueRange]
) -> Function:
    """The function with its values and weights quantised and dequantised.

    A first operand is quantised for all readers, a second one for its product as int8, unless it is
    a first operand, too.
    """
    chosen, first = set(products), {p.args[0] for p in products}

    def second(old: Call, new: Call) -> Expr:
        if not _of_values(old):
            return _weight(new)
        other = old.args[1]
        return new.args[1] if other in first else _signed(new.args[1], ranges[other])

    def change(old: Expr, new: Expr) -> Expr:
        if old in chosen:
            assert isinstance(old, Call)
            assert isinstance(new, Call)
            new = Call(new.op, (new.args[0], second(old, new)), new.attrs, span=new.span)
        return _value(new, ranges[old]) if old in first else new

    return Function(main.params, rewrite_each(main.body, change), main.result, main.attrs)


def _value(e: Expr, r: ValueRange) -> Expr:
    """A value, rounded to uint8 and back; 0 stays 0."""
    scale = np.float32(max((r.high - r.low) / 255, _SMALLEST))
    return _there_and_back(e, scale, int(np.clip(np.rint(-r.low / scale), 0, 255)), "uint8")


def _signed(e: Expr, r: ValueRange) -> Expr:
    """A value, rounded to int8 and back, with the zero point 0."""
    return _there_and_back(e, np.float32(max(r.high / 127, -r.low / 127, _SMALLEST)), 0, "int8")


def _there_and_back(e: Expr, scale: np.float32, zero: int, dtype: str) -> Expr:
    parameters = (const(scale, "float32"), const(zero, "int32"))
    whole = get_op("qnn.quantize")(e, *parameters, out_dtype=dtype, span=e.span)
    return get_op("qnn.dequantize")(whole, *parameters, span=e.span)


def _weight(product: Call) -> Expr:
    weight, axis = product.args[1], CHANNELS[called(product) or ""]
    assert isinstance(weight, Constant)
    data: np.ndarray[Any, Any] = weight.data
    if not np.isfinite(data).all():
        raise GraphError(f"the weight of {product.span or 'a product'} is not finite")
    largest = np.abs(data).max(axis=tuple(d for d in range(data.ndim) if d != axis))
    scale = np.where(largest > 0, largest / 127, 1).astype("float32")
    shape = [-1 if d == axis else 1 for d in range(data.ndim)]
    whole = np.clip(np.rint(data / scale.reshape(shape)), -127, 127).astype("int8")
    zero = const(0, "int32")
    return get_op("qnn.dequantize")(const(whole, name=weight.name), const(scale), zero, axis=axis)
