"""Inputs and attributes of ONNX's operators, with numbers at the limits of their dtypes.

A table says for each kind of operator how they are drawn. Operators that are in no table have one
input, or two or more of one dtype that are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from loopwright import dtypes
from loopwright.graph.frontend.onnx import known_operators

Array: TypeAlias = "np.ndarray[Any, Any]"


def edges(dtype: str) -> Array:
    """Numbers at the edges of a dtype, and some between them."""
    if dtype == "bool":
        return np.array([False, True])
    low, high = limits(dtype)
    if not dtypes.is_float(dtype):
        some = (0, 1, 2, 3, 5, 7, 8, 100, high, high - 1, high // 2 + 1)
        found = dict.fromkeys(n for m in some for n in (m, -m, -m - 1) if low <= n <= high)
        return np.array(list(found), dtype)
    some = [0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 100.0, high, np.inf]
    small = ml_dtypes.finfo(dtype)
    values = [np.nan, *some, float(small.tiny), float(small.smallest_subnormal)]
    return np.array([*values, *(-x for x in values[1:])]).astype(dtypes.check(dtype))


def limits(dtype: str) -> tuple[Any, Any]:
    """The smallest and the largest finite number of a dtype."""
    if dtypes.is_float(dtype):
        most = float(ml_dtypes.finfo(dtype).max)
        return -most, most
    return dtypes.limits(dtype)


def rows(dtype: str) -> Array:
    """Rows of three numbers, each hard in its own way for what looks at a whole row."""
    if dtype == "bool":
        return np.array(list(product([False, True], repeat=3)))
    low = limits(dtype)[0]
    if dtypes.is_float(dtype):
        m, i = limits(dtype)[1], np.inf
        found = [
            [1, 2, 3], [i, 1, 2], [1, -i, 2], [i, -i, 1], [-i, -i, -i], [i, i, i], [0.0, -0.0, 0.0],
            [-0.0, -0.0, -0.0], [-0.0, 0.0, -1], [m, 1, 2], [-m, -m, -m], [100, 100, 100],
            [-100, 0.5, 2.5], [0.1, 0.2, 0.3], [1, 1, 1], [2, 5, 5],
        ]  # fmt: skip
    else:
        found = [
            [1, 2, 3], [7, -8, 0], [3, 5, 0], [-7, 0, 0], [-1, -1, 0], [0, 0, 0], [5, 5, 2],
            [-1, 0, 0], [2, 3, 9],
        ]  # fmt: skip
        found = [row for row in found if all(low <= n for n in row)]
    return np.array(found).astype(dtypes.check(dtype))


def odd_rows(dtype: str) -> dict[str, Array]:
    """Rows with NaN, and of integers those whose sums may not fit, by a word for them."""
    if dtypes.is_float(dtype):
        i, x = np.inf, np.nan
        nan = [[x, 1, 2], [1, x, 2], [3, 2, x], [x, x, x], [i, x, -i]]
        return {"nan": np.array(nan).astype(dtypes.check(dtype))}
    low, high = limits(dtype)
    return {"limits": np.array([[high] * 3, [high, 1, 0], [low, low, high]], dtype)}


#: The edge, attributes, inputs and places of known ones; outputs where there are more than one.
Draw: TypeAlias = "tuple[Any, ...]"
#: From a dtype and an opset to what a node of an operator is given.
Recipe: TypeAlias = "Callable[[str, int], Iterator[Draw]]"
_RECIPES: dict[str, Recipe] = {}


def _recipe(*operators: str) -> Callable[[Recipe], Recipe]:
    def register(recipe: Recipe) -> Recipe:
        _RECIPES.update(dict.fromkeys(operators, recipe))
        return recipe

    return register


def _text(attrs: dict[str, Any]) -> str:
    return "".join(f" {k}={v}" for k, v in attrs.items())


def _i8(*numbers: int) -> Array:
    return np.array(numbers, "int64")


#: Attributes of operators of elements, beside none.
_ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "Celu": [{"alpha": 0.5}, {"alpha": 2.0}],
    "Elu": [{"alpha": 0.5}, {"alpha": 2.0}],
    "Gelu": [{"approximate": "tanh"}],
    "HardSigmoid": [{"alpha": 0.5, "beta": 0.25}],
    "IsInf": [{"detect_positive": p, "detect_negative": n} for p, n in ((0, 1), (1, 0), (0, 0))],
    "LeakyRelu": [{"alpha": 0.5}, {"alpha": 0.0}, {"alpha": -1.0}],
    "Selu": [{"alpha": 1.0, "gamma": 2.0}],
    "Shrink": [{"lambd": 1.5, "bias": 1.0}, {"lambd": 2.5}],
    "Swish": [{"alpha": 2.0}, {"alpha": 0.0}],
    "ThresholdedRelu": [{"alpha": 2.5}, {"alpha": 0.0}, {"alpha": -1.5}],
}
_LOGICAL = ("And", "Or", "Xor")


@_recipe("Div", "Mod")
def _division(dtype: str, opset: int) -> Iterator[Draw]:
    """Without divisions that processors trap."""
    x = edges(dtype)
    if dtypes.is_float(dtype):
        pairs = (x[:, None], x[None])
    else:
        a, b = (e.reshape(-1) for e in np.meshgrid(x, x))
        low = dtypes.limits(dtype)[0]
        fine = (b != 0) & ~((a == low) & (a != 0) & (b.astype("float64") == -1))
        pairs = (a[fine], b[fine])
    yield "pairs", {}, pairs
    yield "pairs fmod=1", {"fmod": 1}, pairs


@_recipe("Pow")
def _power(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    kinds = ("float32", "int32", "int64", "float64", "uint8") if opset >= 12 else (dtype,)
    for other in dict.fromkeys((dtype, *kinds)):
        y = edges(other)
        if not dtypes.is_float(dtype):
            y = y[(y >= 0) & (y <= 70)]
            x = x if not dtypes.is_float(other) else np.array([0, 1, 2, 3, 7]).astype(dtype)
            y = y if not dtypes.is_float(other) else y[y < 3]
        yield f"pairs of {other}", {}, (x[:, None], y[None])
    for n in (2, 3, -1, 0.5):
        if dtypes.is_float(dtype):
            yield f"known {n}", {}, (x, np.array(n).astype(x.dtype)), (1,)


@_recipe("BitShift")
def _shift(dtype: str, opset: int) -> Iterator[Draw]:
    x, width = edges(dtype), dtypes.bits(dtype)
    places = np.arange(width).astype(dtype)
    for direction in ("LEFT", "RIGHT"):
        yield f"pairs {direction}", {"direction": direction}, (x[:, None], places[None])


@_recipe("Where")
def _where(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    yield "pairs", {}, (np.arange(x.size) % 2 == 0, x[:, None], x[None])


@_recipe("Max", "Min", "Sum", "Mean")
def _variadic(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    if opset >= 8:
        yield "pairs", {}, (x[:, None], x[None])
        yield "triples", {}, (x[:, None, None], x[None, :, None], x[:5])
    yield "one", {}, (x,)
    yield "two", {}, (x, x[::-1].copy())


@_recipe("Clip")
def _clip(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    low, high = limits(dtype)
    bounds: list[tuple[Any, Any]] = [(1, 3), (None, 2), (2, None), (5, 2), (low, high), (0, 0)]
    if dtypes.is_float(dtype):
        bounds += [(-0.5, np.inf), (-np.inf, 0.0), (np.nan, 1), (0, np.nan)]
    for a, b in bounds:
        edge = f"{a} to {b}"
        if opset < 11:
            named = {k: float(v) for k, v in (("min", a), ("max", b)) if v is not None}
            yield edge, named, (x,)
            continue
        ends = tuple(None if n is None else np.array(n).astype(x.dtype) for n in (a, b))
        yield edge, {}, (x, *ends)
        if (a, b) in ((1, 3), (5, 2)):
            yield f"{edge} known", {}, (x, *ends), (1, 2)


def _axes(axes: list[int] | None, opset: int, since: int) -> tuple[dict[str, Any], list[Array]]:
    """Axes as an attribute, or as an input."""
    if axes is None:
        return {}, []
    return ({"axes": axes}, []) if opset < since else ({}, [_i8(*axes)])


_REDUCTIONS = [n for n in known_operators() if n.startswith("Reduce")]


def _reduction(operator: str) -> Recipe:
    def recipe(dtype: str, opset: int) -> Iterator[Draw]:
        since = 13 if operator == "ReduceSum" else 18
        x = rows(dtype)
        cube = np.stack([x, x[::-1]])
        sets: list[tuple[Array, list[int] | None, int]] = [
            (x, [1], 0), (x, [-1], 1), (x, None, 1), (x, [], 0), (x, [], 1),
            (cube, [0], 0), (cube, [-3, 1], 1), (x[0, 1], None, 0), (x[:1, :1], [0, 1], 0),
            (x[:0], [1], 0), (x[:0], [0], 1),
        ]  # fmt: skip
        odd = [] if dtype == "bool" else odd_rows(dtype).items()
        for word, data in odd:
            attrs, more = _axes([1], opset, since)
            yield word, {**attrs, "keepdims": 0}, (data, *more), (1,) if more else ()
        for data, axes, keep in sets:
            attrs, more = _axes(axes, opset, since)
            edge = f"rank {data.ndim} axes={axes} keepdims={keep}"
            yield edge, {**attrs, "keepdims": keep}, (data, *more), (1,) if more else ()
            if opset >= since and not axes:
                attrs = {"noop_with_empty_axes": 1, "keepdims": keep}
                yield f"{edge} noop", attrs, (data, *more), (1,) if more else ()

    return recipe


for _name in _REDUCTIONS:
    _recipe(_name)(_reduction(_name))


@_recipe("ArgMax", "ArgMin")
def _arg(dtype: str, opset: int) -> Iterator[Draw]:
    x = rows(dtype)
    for axis, keep, last in ((1, 0, 0), (0, 1, 0), (-1, 1, 1), (0, 0, 1)):
        attrs = {"axis": axis, "keepdims": keep}
        if opset >= 12:
            attrs["select_last_index"] = last
        elif last:
            continue
        yield f"rows{_text(attrs)}", attrs, (x,)
        for word, odd in odd_rows(dtype).items():
            yield f"{word}{_text(attrs)}", attrs, (odd,)


def _few(x: Array) -> Array:
    """Rows without those that overflow or not by the order of sums and products."""
    large = abs(x.astype("float64")) > 1e4
    return x[~(large & np.isfinite(x.astype("float64"))).any(axis=1)]


@_recipe("CumSum", "CumProd")
def _cumulative(dtype: str, opset: int) -> Iterator[Draw]:
    x = _few(rows(dtype))
    for axis, exclusive, reverse in ((1, 0, 0), (-1, 1, 0), (0, 0, 1), (1, 1, 1)):
        attrs = {"exclusive": exclusive, "reverse": reverse}
        yield f"axis {axis}{_text(attrs)}", attrs, (x, np.array(axis)), (1,)
    many = np.full(3000, 0.875 if dtypes.is_float(dtype) else 1).astype(x.dtype)
    yield "3000 equal ones", {}, (many, np.array(0)), (1,)


@_recipe("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _by_row(dtype: str, opset: int) -> Iterator[Draw]:
    x = rows(dtype)
    yield "rows", {"axis": 1}, (x,)
    yield "columns", {"axis": 0}, (x,)
    yield "default axis", {}, (x[None, :8].reshape(2, 4, 3),)
    yield "nan", {"axis": 1}, (odd_rows(dtype)["nan"],)


@_recipe("TopK")
def _topk(dtype: str, opset: int) -> Iterator[Draw]:
    x = rows(dtype)
    for k, axis, largest, ordered in ((3, 1, 1, 1), (2, 1, 0, 1), (1, 0, 1, 1), (4, 0, 0, 1)):
        attrs: dict[str, Any] = {"axis": axis}
        if opset >= 11:
            attrs |= {"largest": largest, "sorted": ordered}
        if opset < 10:
            yield f"k={k}{_text(attrs)}", {**attrs, "k": k}, (x,), (), 2
        else:
            yield f"k={k}{_text(attrs)}", attrs, (x, _i8(k)), (1,), 2
            for word, odd in odd_rows(dtype).items():
                if k <= odd.shape[axis]:
                    yield f"{word} k={k}{_text(attrs)}", attrs, (odd, _i8(k)), (1,), 2


@_recipe("Split")
def _split(dtype: str, opset: int) -> Iterator[Draw]:
    x = np.resize(edges(dtype), (7, 2))
    yield "even", {"axis": 1, **({"num_outputs": 2} if opset >= 18 else {})}, (x,), (), 2
    if opset >= 18:
        yield "uneven", {"num_outputs": 3}, (x,), (), 3
        yield "uneven axis=-2", {"num_outputs": 4, "axis": -2}, (x,), (), 4
    for parts in ([3, 4], [7, 0], [1, 6]):
        if opset < 13:
            yield f"{parts}", {"split": parts}, (x,), (), 2
        else:
            yield f"{parts}", {}, (x, _i8(*parts)), (1,), 2


def _matrix(dtype: str, rows_: int, columns: int) -> Array:
    return np.resize(edges(dtype), (rows_, columns))


@_recipe("Slice")
def _slice(dtype: str, opset: int) -> Iterator[Draw]:
    x, most = _matrix(dtype, 5, 7), np.iinfo("int64").max
    sets = [
        ([0], [most], [0], [1]), ([-2], [most], [1], [1]), ([1, 2], [-1, 100], [0, 1], [1, 1]),
        ([most], [-most - 1], [0], [-1]), ([-1], [-100], [-1], [-2]), ([5], [0], [1], [-3]),
        ([-100], [3], [1], [2]), ([3], [2], [0], [1]), ([6], [-8], [1], [-most]),
        ([0], [2**31 - 1], [1], [2]),
    ]  # fmt: skip
    for begin, end, axes, steps in sets:
        edge = f"{begin} to {end} of {axes} by {steps}"
        if opset >= 10:
            yield edge, {}, (x, _i8(*begin), _i8(*end), _i8(*axes), _i8(*steps)), (1, 2, 3, 4)
        elif steps == [1] * len(steps):
            yield edge, {"starts": begin, "ends": end, "axes": axes}, (x,)


@_recipe("Pad")
def _pad(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 3, 4)
    value = edges(dtype)[1 if dtype == "bool" else -1]
    modes = [("constant", [1, 0, 0, 2]), ("constant", [-1, 2, 1, -2]), ("reflect", [1, 2, 2, 3])]
    modes += [("edge", [1, 2, 2, 3]), ("edge", [-1, 2, 1, -1]), ("reflect", [0, -1, 1, 2])]
    modes += [("wrap", [1, 2, 4, 3])] if opset >= 19 else []
    for mode, pads in modes:
        edge = f"{mode} {pads}"
        if opset >= 11:
            given = (x, _i8(*pads), *((np.array(value),) if mode == "constant" else ()))
            yield edge, {"mode": mode}, given, tuple(range(1, len(given)))
        elif opset >= 2:
            yield edge, {"mode": mode, "pads": pads, "value": float(value)}, (x,)
    if opset >= 18:
        given = (x, _i8(1, 2), np.array(value), _i8(-1))
        yield "axes=[-1]", {}, given, (1, 2, 3)


@_recipe("Trilu")
def _trilu(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 3, 4)
    for k, upper in product((-5, -1, 0, 2, 9), (0, 1)):
        yield f"k={k} upper={upper}", {"upper": upper}, (x, np.array(k)), (1,)


@_recipe("OneHot")
def _one_hot(dtype: str, opset: int) -> Iterator[Draw]:
    at = np.array([0, 2, -1, -3, 3, -4, 100, -100, 1]).astype(dtype)
    if dtypes.is_unsigned(dtype):
        at = np.array([0, 2, 3, 100, 1]).astype(dtype)
    for axis, values in product((-1, 0), ("float32", "int64", "bool")):
        pair = np.array([0, 1]).astype(values)
        yield f"axis={axis} {values}", {"axis": axis}, (at, _i8(3), pair), (1,)


@_recipe("Gather", "GatherElements")
def _gather(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 5, 4)
    at = np.array([[0, -1, 2, 1], [-4, 3, 3, -2]])
    least = at if opset >= 11 else at % 4
    yield "rows", {"axis": 0}, (x, least)
    yield "columns", {"axis": 1}, (x[:2], least)
    yield "columns int32", {"axis": 1}, (x[:2], least.astype("int32"))
    if opset >= 11:
        yield "axis -1", {"axis": -1}, (x[:2], least)


@_recipe("GatherND")
def _gather_nd(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 5, 4)
    yield "elements", {}, (x, np.array([[0, -1], [-5, 3]]))
    yield "rows", {}, (x, np.array([[-1], [2], [2]]))
    if opset >= 12:
        yield "batches", {"batch_dims": 1}, (x, np.array([[-1], [2], [0], [3], [-4]]))


@_recipe("Scatter", "ScatterElements")
def _scatter(dtype: str, opset: int) -> Iterator[Draw]:
    x = np.resize(edges(dtype)[1:] if dtypes.is_float(dtype) else edges(dtype), (5, 4))
    new = x[::-1].copy()
    once, twice = np.array([[1, -1, 0, -5]]), np.array([[1, 1, 0, -5], [1, -4, 3, 0]])
    kinds = ["none", *(["add", "mul"] if opset >= 16 else [])]
    kinds += ["max", "min"] if opset >= 18 else []
    for kind in kinds:
        attrs = {} if kind == "none" and opset < 16 else {"reduction": kind}
        at = once if kind == "none" else twice
        yield kind, {"axis": 0, **attrs}, (x, at, new[: len(at)])
        if kind == "none":
            yield "axis -1", {"axis": -1, **attrs}, (x, np.array([[-1, 0]]), new[:1, :2])


@_recipe("ScatterND")
def _scatter_nd(dtype: str, opset: int) -> Iterator[Draw]:
    for edge, attrs, (x, *_), *_ in _scatter(dtype, opset):
        new = x[::-1].copy()
        if edge == "axis -1":
            continue
        attrs = {k: v for k, v in attrs.items() if k != "axis"}
        at = np.array([[0], [-1], [2]] if edge == "none" else [[0], [-1], [4], [0]])
        yield f"rows {edge}", attrs, (x, at, new[: len(at)])
        pairs = np.array([[0, -1], [2, 3]] if edge == "none" else [[0, -1], [0, 3], [-5, 3]])
        yield f"elements {edge}", attrs, (x, pairs, new[0, : len(pairs)])


@_recipe("Cast")
def _cast(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    for target in dtypes.SUPPORTED:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtypes.check(target)))
        if dtypes.is_float(dtype) and not dtypes.is_float(target) and target != "bool":
            low, high = dtypes.limits(target)
            inside = x[(x.astype("float64") > float(low) - 1) & (x.astype("float64") < float(high))]
            yield f"to {target}", {"to": number}, (inside,)
        else:
            yield f"to {target}", {"to": number}, (x,)
    if opset >= 19 and dtypes.is_float(dtype):
        kinds = ("FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ")
        for kind, saturate in product(kinds, (0, 1)):
            number = getattr(onnx.TensorProto, kind)
            yield f"to {kind} saturate={saturate}", {"to": number, "saturate": saturate}, (x,)


@_recipe("QuantizeLinear")
def _quantize(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    real = "float32" if dtype == "int32" else dtype
    kinds = ["uint8", "int8", *(["uint16", "int16"] if opset >= 21 else [])]
    if dtypes.is_float(dtype):
        x = np.concatenate([x[1:], np.arange(-300, 300, 3.5).astype(x.dtype)])
        given = (np.full(3, np.nan).astype(x.dtype), np.array(1).astype(x.dtype))
        yield "nan", {}, (*given, np.array(-5, "int8"))
    for kind, scale in product(kinds, (0.5, 1.0, 3.0)):
        zero = np.array(3 if kind.startswith("u") else -5).astype(kind)
        yield f"{kind} by {scale}", {}, (x, np.array(scale).astype(real), zero)
    if opset >= 13:
        scales, zeros = np.array([0.5, 2.0]).astype(real), np.array([128, 0], "uint8")
        yield "by axis", {"axis": 0}, (np.stack([x, x[::-1]]), scales, zeros)


@_recipe("DequantizeLinear")
def _dequantize(dtype: str, opset: int) -> Iterator[Draw]:
    if dtypes.is_float(dtype):
        return
    x = edges(dtype)
    reals = ["float32", *(["float16"] if opset >= 19 else [])]
    for real, scale in product(reals, (0.5, 0.1, 100.0)):
        zeros = (None,) if dtype == "int32" else (None, x[5], x[-1])
        for zero in zeros:
            given = (x, np.array(scale).astype(real), *(() if zero is None else (np.array(zero),)))
            yield f"{real} by {scale} zero {zero}", {}, given


@_recipe("DynamicQuantizeLinear")
def _dynamic(dtype: str, opset: int) -> Iterator[Draw]:
    for word, values in (("nan", [np.nan, 1, 2]), ("infinite", [np.inf, 1, 0])):
        yield word, {}, (np.array(values, "float32"),), (), 3
    for values in ([0, 0, 0], [1, 2, 3], [-1, -2, -3], [0, 2, -3], [-0.5, 0.5, 1.5], [3e38, 0, 1]):
        yield f"{values}", {}, (np.array(values, "float32"),), (), 3


@_recipe("MatMulInteger")
def _matmul_integer(dtype: str, opset: int) -> Iterator[Draw]:
    for other in ("uint8", "int8"):
        a, b = _matrix(dtype, 3, 5), _matrix(other, 5, 4)
        zeros = a.reshape(-1)[1], b.reshape(-1)[2]
        yield f"by {other}", {}, (a, b)
        yield f"by {other} with zeros", {}, (a, b, np.array(zeros[0]), np.array(zeros[1]))
        yield f"by {other} known", {}, (a, b, np.array(zeros[0]), np.array(zeros[1])), (1, 2, 3)
        yield f"by {other} zeros by axis", {}, (a, b, np.resize(a, 3), np.resize(b, 4))


@_recipe("QLinearMatMul")
def _quantized_matmul(dtype: str, opset: int) -> Iterator[Draw]:
    a, b = _matrix(dtype, 3, 5), _matrix("int8", 5, 4)
    zero_a, zero_y = np.array(a.reshape(-1)[1]), np.array(3).astype(dtype)
    for scale in (0.5, 100.0, 1e-3):
        scales = [np.array(n, "float32") for n in (0.5, 0.25, scale)]
        given = (a, scales[0], zero_a, b, scales[1], np.array(-3, "int8"), scales[2], zero_y)
        yield f"to {scale}", {}, given


@_recipe("Compress")
def _compress(dtype: str, opset: int) -> Iterator[Draw]:
    some = np.array([True, False, True, True])
    yield "columns", {"axis": -1 if opset >= 11 else 1}, (_matrix(dtype, 3, 4), some), (1,)
    yield "elements", {}, (_matrix(dtype, 3, 4), some), (1,)


@_recipe("CastLike")
def _cast_like(dtype: str, opset: int) -> Iterator[Draw]:
    for edge, _, given in _cast(dtype, 15):
        target = np.dtype(dtypes.check(edge.removeprefix("to ")))
        yield edge, {}, (*given, np.zeros(1, target))


@_recipe("MatMul", "Gemm")
def _product(dtype: str, opset: int) -> Iterator[Draw]:
    x = rows(dtype)
    if dtypes.is_float(dtype):
        yield "rows", {}, (x, x[-3:])
    else:
        yield "rows", {}, (x % 100, x[:3])


@_recipe("Einsum")
def _einsum(dtype: str, opset: int) -> Iterator[Draw]:
    x = rows(dtype)[:3]
    for text, count in (
        ("ij,jk->ik", 2),
        ("ii->i", 1),
        ("ij->", 1),
        ("ij,ij->ij", 2),
        ("ij->ji", 1),
    ):
        yield text, {"equation": text}, (x,) * count


@_recipe("Range")
def _range(dtype: str, opset: int) -> Iterator[Draw]:
    sets = [(0, 5, 1), (3, 3, 1), (5, 0, 1), (1, 10, 4)]
    sets += [(10, 0, -3), (0, 3, -1)] if not dtypes.is_unsigned(dtype) else []
    sets += [(0.5, 2.5, 0.5), (0.0, 1.0, 0.1), (1, 0, -0.3)] if dtypes.is_float(dtype) else []
    for numbers in sets:
        yield f"{numbers}", {}, tuple(np.array(n).astype(dtype) for n in numbers), (0, 1, 2)


@_recipe("LayerNormalization", "RMSNormalization")
def _layer(dtype: str, opset: int) -> Iterator[Draw]:
    x = _few(rows(dtype))
    scale, many = np.array([1, 0.5, -2]).astype(x.dtype), _ramp(x.dtype, 4, 64)
    yield "rows", {}, (x, scale)
    yield "ramp", {}, (many, np.ones(64).astype(x.dtype))
    yield "ramp axis 0", {"axis": 0}, (many, np.ones((4, 64)).astype(x.dtype))
    yield "large", {}, ((many * 100).astype(x.dtype), np.ones(64).astype(x.dtype))


def _ramp(dtype: Any, *shape: int) -> Array:
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / 16 - count / 32).astype(dtype)


@_recipe("InstanceNormalization")
def _instance(dtype: str, opset: int) -> Iterator[Draw]:
    x = _ramp(dtypes.check(dtype), 2, 4, 6, 5)
    weights = [np.array([1, 2, -1, 0.5]).astype(x.dtype), np.array([0, 1, 2, 3]).astype(x.dtype)]
    yield "ramp", {}, (x, *weights)
    yield "large", {}, ((x * 40).astype(x.dtype), *weights)


@_recipe("GroupNormalization")
def _groups(dtype: str, opset: int) -> Iterator[Draw]:
    for edge, attrs, given in _instance(dtype, opset):
        x, scale, bias = given
        count = 4 if opset >= 21 else 2
        yield edge, {**attrs, "num_groups": 2}, (x, scale[:count], bias[:count])


@_recipe("BatchNormalization")
def _batch(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 4, 4)
    some = [np.array(v).astype(x.dtype) for v in ([1, 2, -1, 0.5], [0, 1, 2, 3], [0, 1, 2, 3])]
    yield "edges", {}, (x, *some, np.array([0, 1, 4, 0.25]).astype(x.dtype))


@_recipe("PRelu")
def _prelu(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)
    yield "one slope", {}, (x, x[2:3])
    if opset >= 7:
        yield "pairs", {}, (x[:, None] + np.zeros((1, x.size), x.dtype), x)


@_recipe("MaxPool", "AveragePool", "LpPool")
def _pool(dtype: str, opset: int) -> Iterator[Draw]:
    x = np.resize(edges(dtype), (1, 2, 5, 6))
    if dtypes.is_float(dtype):
        yield "nan 2 by 2", {"kernel_shape": [2, 2]}, (x,)
        x = np.resize(edges(dtype)[1:], (1, 2, 5, 6))
    yield "2 by 2", {"kernel_shape": [2, 2]}, (x,)
    attrs = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    yield "padded", attrs, (x,)
    if opset >= 10:
        yield "ceil", {**attrs, "ceil_mode": 1}, (x,)


@_recipe("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool(dtype: str, opset: int) -> Iterator[Draw]:
    yield "rows", {}, (rows(dtype).reshape(1, -1, 3, 1),)
    yield "nan", {}, (odd_rows(dtype)["nan"].reshape(1, -1, 3, 1),)


@_recipe("Concat")
def _concat(dtype: str, opset: int) -> Iterator[Draw]:
    x = _matrix(dtype, 2, 3)
    for axis in (0, 1, *((-1,) if opset >= 11 else ())):
        yield f"axis={axis}", {"axis": axis}, (x, x, x)
    yield "one of no elements", {"axis": 0}, (x, x[:0])


@_recipe("Tile")
def _tile(dtype: str, opset: int) -> Iterator[Draw]:
    if opset >= 6:
        yield "2 by 3", {}, (_matrix(dtype, 2, 3), _i8(2, 3)), (1,)


@_recipe("Expand")
def _expand(dtype: str, opset: int) -> Iterator[Draw]:
    x = edges(dtype)[:2]
    yield "to more", {}, (x[:, None], _i8(3, 1, 4)), (1,)
    yield "to fewer", {}, (x[:, None], _i8(1)), (1,)


@_recipe("Squeeze", "Unsqueeze")
def _squeezed(dtype: str, opset: int) -> Iterator[Draw]:
    attrs, more = _axes([0, -1] if opset >= 11 else [0, 2], opset, 13)
    yield "two axes", attrs, (edges(dtype)[None, :, None], *more), (1,) if more else ()


@_recipe("Resize")
def _resize(dtype: str, opset: int) -> Iterator[Draw]:
    if dtype not in ("float32", "float64", "float16", "uint8"):
        return
    x = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
    if opset < 11:
        for scales in ([1, 1, 2, 1.5], [1, 1, 0.6, 1.5]):
            yield f"nearest {scales}", {"mode": "nearest"}, (x, np.array(scales, "float32")), (1,)
        return
    modes = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    modes += ("half_pixel_symmetric",) if opset >= 19 else ()
    for mode, how in product(("nearest", "linear", "cubic"), modes):
        attrs = {"mode": mode, "coordinate_transformation_mode": how}
        for sizes in ([1, 1, 3, 8], [1, 1, 1, 1], [1, 1, 7, 2]):
            yield f"{mode} {how} to {sizes[2:]}", attrs, (x, None, None, _i8(*sizes)), (3,)
    x = np.arange(36).reshape(1, 1, 6, 6).astype(dtype)
    region = (None, (2,)) if opset >= 13 else (np.zeros(0, "float32"), (1, 2))
    rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    for nearest, how in product(rounding, ("half_pixel", "asymmetric")):
        attrs = {"nearest_mode": nearest, "coordinate_transformation_mode": how}
        for scales in ([1, 1, 1.5, 0.5], [1, 1, 1 / 3, 1.5]):
            edge = f"nearest {nearest} {how} by {scales[2]:.2f}"
            yield edge, attrs, (x, region[0], np.array(scales, "float32")), region[1]
    for mode in ("linear", "cubic") if opset >= 18 and dtype != "uint8" else ():
        attrs = {"mode": mode, "antialias": 1}
        yield f"{mode} antialias", attrs, (x, None, None, _i8(1, 1, 2, 5)), (3,)


#: Operators of one draw: its edge, attributes, and inputs of a dtype.
_SINGLE: dict[str, tuple[str, dict[str, Any], Callable[[str], tuple[Array, ...]]]] = {
    "MeanVarianceNormalization": ("ramp", {}, lambda d: (_ramp(dtypes.check(d), 2, 4, 6, 5),)),
    "LRN": (
        *("ramp", {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 1.0}),
        lambda d: (_ramp(dtypes.check(d), 2, 4, 3, 5),),
    ),
    "ReverseSequence": ("some", {}, lambda d: (_matrix(d, 4, 4), _i8(1, 4, 2, 3))),
    **dict.fromkeys(
        ("DepthToSpace", "SpaceToDepth"),
        ("2", {"blocksize": 2}, lambda d: (np.resize(edges(d), (1, 8, 4, 2)),)),
    ),
    **dict.fromkeys(
        ("Identity", "Flatten", "Transpose"), ("edges", {}, lambda d: (_matrix(d, 3, 4),))
    ),
    **dict.fromkeys(("EyeLike", "Shape", "Size"), ("plain", {}, lambda d: (_matrix(d, 3, 4),))),
}


_APART = """
    BitCast Col2Im ConcatFromSequence Constant ConstantOfShape Conv ConvInteger ConvTranspose DFT
    DeformConv Det Dropout GRU GridSample If LSTM Loop MaxUnpool MelWeightMatrix Optional
    OptionalGetElement OptionalHasElement QLinearConv RNN Reshape RoiAlign STFT Scan SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence
    TensorScatter TfIdfVectorizer Upsample
"""
#: Operators whose inputs are drawn by no table here: they compute sums of products and windows of
#: ordinary numbers, take sequences or graphs, or have no data.
APART = frozenset(_APART.split())


def recipe_of(operator: str, inputs: int) -> Recipe:
    """The recipe of an operator that needs so many inputs."""
    if operator in _RECIPES:
        return _RECIPES[operator]

    def recipe(dtype: str, opset: int) -> Iterator[Draw]:
        if operator in _SINGLE:
            edge, attrs, drawn = _SINGLE[operator]
            yield edge, attrs, drawn(dtype)
            return
        x = edges(dtype)
        if inputs == 2 and opset < 7:
            yield "two", {}, (x, x[::-1].copy())
        elif inputs == 2:
            yield "pairs", {}, (x[:, None], x[None])
            yield "0-d", {}, (x[1].reshape(()), x[0].reshape(()))
        else:
            for attrs in ({}, *_ATTRIBUTES.get(operator, ())):
                yield f"edges{_text(attrs)}", attrs, (x,)
            yield "0-d", {}, (x[0].reshape(()),)
            yield "no elements", {}, (x[:0],)

    return recipe
