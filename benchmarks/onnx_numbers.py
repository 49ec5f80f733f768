"""Compiled operators of ONNX at the limits of their dtypes, beside ONNX Runtime and onnx's own
reference implementation.

``python -m benchmarks.onnx_numbers`` draws nodes by the schemas of ONNX (`onnx_number_cases`), in
every version and dtype, compiles many of them as one model, and prints what was tried and which
results differ. Where both others have an answer and disagree, ours may be either.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from onnx.reference import ReferenceEvaluator

from benchmarks.onnx_number_cases import Case, cases_of, dtypes_of, model_of, schemas
from benchmarks.onnx_number_inputs import Array, limits
from loopwright import dtypes, graph
from loopwright.errors import LoopwrightError
from loopwright.graph.frontend.onnx import from_onnx, stored
from loopwright.graph.ir.expr import Constant, Tuple

TARGET = "llvm -num-threads=1"
#: Nodes of a model that is compiled at once.
TOGETHER = 40
_EXACT = """
    Abs Add Cast Ceil Concat DequantizeLinear Div Expand Flatten Floor Gather GatherElements
    GatherND Identity Mul Neg OneHot Pad QuantizeLinear Range Reciprocal ReverseSequence Round
    Scatter Sign Slice Split Sqrt Squeeze Sub Tile TopK Transpose Trilu Unsqueeze Where
"""
_CHOSEN = "Clip LeakyRelu Max MaxPool Min PRelu ReduceMax ReduceMin Relu Shrink ThresholdedRelu"
#: Operators whose results are exact, or rounded once by one instruction.
EXACT = frozenset(f"{_EXACT} {_CHOSEN}".split())
#: Operators of which the sign of a zero is asked: IEEE 754 says it, or elements are moved.
SIGNED = frozenset(f"{_EXACT} Asin Asinh Atan Atanh Erf Mod Sin Sinh Tan Tanh".split())
#: Relative and absolute error that others' approximations may have, too.
_ERRORS = {
    "float64": (1e-9, 1e-12),
    "float32": (1e-5, 1e-5),
    "float16": (2.0**-10, 2.0**-24),
    "bfloat16": (2.0**-7, 1e-6),
}


#: Of a case, our output and the other: the elements that may differ. Floats are float64.
Excuse: TypeAlias = "Callable[[Case, Array, Array], Any]"


@dataclass(frozen=True)
class Meant:
    """A difference that is meant: regular expressions of operator, dtype and edge; why; where."""

    operator: str
    dtype: str
    edge: str
    reason: str
    excuse: Excuse

    def fits(self, case: Case) -> bool:
        """Whether a case may have some."""
        pairs = ((self.operator, case.operator), (self.dtype, case.dtype), (self.edge, case.edge))
        return all(re.fullmatch(pattern, text) for pattern, text in pairs)


def _input(case: Case, number: int = 0) -> Array:
    x = case.inputs[number]
    assert x is not None
    return x.astype("float64") if dtypes.is_float(x.dtype.name) else x


def _ours_is_nan(case: Case, a: Array, b: Array) -> Any:
    return np.isnan(a)


def _place_of_nan(case: Case, a: Array, b: Array) -> Any:
    x, axis = _input(case), case.attrs["axis"]
    places = a.astype("int64") if case.attrs.get("keepdims", 1) else np.expand_dims(a, axis)
    found = np.isnan(np.take_along_axis(x, places.astype("int64"), axis))
    return found.reshape(a.shape)


def _row_has_nan(case: Case, a: Array, b: Array) -> Any:
    return np.isnan(_input(case)).any(axis=case.attrs["axis"], keepdims=True)


def _pool_of_nan(case: Case, a: Array, b: Array) -> Any:
    return np.isnan(a) & ~np.isnan(b)


def _of_nan(case: Case, a: Array, b: Array) -> Any:
    return np.isnan(_input(case))


def _slope_of_zero(case: Case, a: Array, b: Array) -> Any:
    return (_input(case) == 0) & ~np.isfinite(_input(case, 1)) & (a == 0) & np.isnan(b)


def _range_not_finite(case: Case, a: Array, b: Array) -> Any:
    return ~np.isfinite(_input(case)).all() | np.zeros(a.shape, bool)


def _not_saturated(case: Case, a: Array, b: Array) -> Any:
    """Beyond 32 bits, or at a limit that rounding in 16 bits decides."""
    with np.errstate(all="ignore"):
        x, scale = _input(case), _input(case, 1)
        quotient = x / (scale.reshape(-1, 1) if "axis" in case.attrs else scale)
    beyond = np.abs(quotient) >= 2.0**31 - 256
    if case.dtype in dtypes.HALVES:
        beyond |= np.abs(quotient) > limits(case.dtype)[1]
        place = float(ml_dtypes.finfo(case.dtype).eps) * np.abs(quotient)
        beyond |= np.abs(a.astype("int64") - b.astype("int64")) <= np.minimum(place, 2**20) + 1
    return beyond


def _padding_counted(case: Case, a: Array, b: Array) -> Any:
    """Means of the elements of a window that are data, times their part of it."""
    area = np.prod(case.attrs["kernel_shape"])
    with np.errstate(all="ignore"):
        counted = b / a * area
    return (counted < area) & np.isclose(counted, np.round(counted), rtol=1e-2)


def _all_least(case: Case, a: Array, b: Array) -> Any:
    return (a == -np.inf) & (b == limits(case.dtype)[0])


def _wrapped(case: Case, a: Array, b: Array) -> Any:
    """Sums and products that do not fit; ONNX Runtime cuts them, the reference rounds or wraps."""
    x = _input(case).astype(object)
    value = {
        "ReduceSum": lambda: x.sum(axis=1), "ReduceMean": lambda: x.sum(axis=1),
        "ReduceL1": lambda: abs(x).sum(axis=1), "ReduceProd": lambda: x.prod(axis=1),
    }.get(case.operator, lambda: (x * x).sum(axis=1))()  # fmt: skip
    low, high = dtypes.limits(case.dtype)
    most = min(high, 2**53) if case.operator == "ReduceMean" else high  # the reference's float64
    return (value < low) | (value > most)


def _power_does_not_fit(case: Case, a: Array, b: Array) -> Any:
    """Beyond 53 bits, too: ONNX Runtime computes in float64."""
    exact = _input(case).astype(object) ** _input(case, 1).astype(object)
    return np.abs(exact) > min(2**53, dtypes.limits(case.dtype)[1])


def _overflows(case: Case, a: Array, b: Array) -> Any:
    return np.isfinite(a) & np.isinf(b)


def _below_one(case: Case, a: Array, b: Array) -> Any:
    """One less, where a logarithm a little below a whole number is cut; 0, where exp overflows."""
    return (b + 1 == a) & (a < 100) | (b == 0) & (a > 700)


def _mean_of_nothing(case: Case, a: Array, b: Array) -> Any:
    return (a == 0) & (_input(case).size == 0)


def _logarithm_of_nothing(case: Case, a: Array, b: Array) -> Any:
    return (a == 0) & (b == dtypes.limits(case.dtype)[0])


def _last_places(case: Case, a: Array, b: Array) -> Any:
    steps = np.arange(a.size) + 1
    largest = max(abs(_input(case, n)) for n in (0, 1))
    return np.abs(a - b) <= steps * largest * float(ml_dtypes.finfo(case.dtype).eps)


def _zeros(case: Case, a: Array, b: Array) -> Any:
    return (a == 0) & (b == 0)


def _beside_infinity(case: Case, a: Array, b: Array) -> Any:
    x = _input(case)
    unknown = np.isinf(x) | np.isnan(x)
    return np.isnan(a) & unknown.any()


def _axis_taken(case: Case, a: Array, b: Array) -> Any:
    return (a == 0) & (b == 1) & (case.opset < 13)


def _sigmoid_rounded(case: Case, a: Array, b: Array) -> Any:
    return np.abs(a - b) <= np.abs(_input(case)) * 2.0**-24


def _beyond_float32(case: Case, a: Array, b: Array) -> Any:
    x = _input(case).astype("float64")
    return np.isnan(x) | (x.astype("float32") != x) | (np.abs(x) >= 2.0**24) | (a == 0)


def _float32_steps(case: Case, a: Array, b: Array) -> Any:
    return np.isclose(a, b, rtol=4e-6, atol=4e-6)


def _channels_left_out(case: Case, a: Array, b: Array) -> Any:
    """As many channels as there are examples are normalised by the reference, in float32."""
    left_out = np.arange(a.shape[1])[:, None, None] >= a.shape[0]
    return np.isclose(a, b, rtol=4e-6) | left_out & (b == _input(case))


def _of_infinity(case: Case, a: Array, b: Array) -> Any:
    return np.isinf(_input(case))


def _last_place_cut(case: Case, a: Array, b: Array) -> Any:
    return abs(b.astype(int) - a) == 1


def _one_element(case: Case, a: Array, b: Array) -> Any:
    return a == _input(case).ravel()[0]


_NAN = "NaN is given on, as NumPy does; other kernels do so by its place"
_FLOATS, _INTEGERS = "b?float.*", "u?int.*"
_WRAP, _EXACT_STEPS = "whole numbers wrap", "computed in float64 throughout"
#: Differences that are meant; ``docs/numbers.md`` tells them.
MEANT: tuple[Meant, ...] = (
    Meant("ReduceM(ax|in)|Global.*|.*Pool", _FLOATS, "nan.*", _NAN, _pool_of_nan),
    Meant("Arg.*", _FLOATS, "nan.*", _NAN, _place_of_nan),
    Meant("Hardmax|TopK", _FLOATS, "nan.*", _NAN, _row_has_nan),
    Meant("Clip", _FLOATS, "nan to 1.*|0 to nan.*", _NAN, _ours_is_nan),
    Meant("PRelu", "float64", "pairs", "the reference: 0 has no slope", _slope_of_zero),
    Meant("QuantizeLinear", _FLOATS, "nan", "NaN is the whole number 0", _of_nan),
    Meant("DynamicQ.*", "float32", "nan|infinite", "as above", _range_not_finite),
    Meant(
        *("QuantizeLinear", "int32|b?float.*", ".* by .*|by axis"),
        *("the reference does not saturate, and divides in 16 bits", _not_saturated),
    ),
    Meant("AveragePool", _FLOATS, "padded", "as later versions say", _padding_counted),
    Meant("GlobalMaxPool", _FLOATS, "rows", "-inf is the largest where all are", _all_least),
    Meant("Reduce(Sum|SumSquare|Mean|Prod|L1|L2)", _INTEGERS, "limits.*", _WRAP, _wrapped),
    Meant("ReduceL2|ReduceLogSumExp", _FLOATS, "rank.*", "no step overflows", _overflows),
    Meant("ReduceLogSumExp", "uint.*", ".* noop|limits", "exp and log are in float64", _below_one),
    Meant("ReduceLogSum", _INTEGERS, ".*", "NaN is the whole number 0", _logarithm_of_nothing),
    Meant("Pow", "int32|int64", "pairs of int.*", _WRAP, _power_does_not_fit),
    Meant("Pow", _FLOATS, "known 0.5.*", "infinite, as in C: no square root", _of_infinity),
    Meant("Range", _FLOATS, ".*", "start + n * delta, as the specification says", _last_places),
    Meant("Resize", _FLOATS, r"cubic pytorch_half_pixel to \[1, 1\]", "0", _one_element),
    Meant("Resize", "uint8", "linear .* to .*", "cut, as ONNX Runtime does", _last_place_cut),
    Meant("Where", _FLOATS, "pairs.*", "the reference: -0.0 stays what it is", _zeros),
    Meant("LogSoftmax", "float64", ".*", "NaN, as of float32", _beside_infinity),
    Meant("Hardmax", "float64", "columns|default axis", "one matrix", _axis_taken),
    Meant("Swish", "b?float16", ".*", "rounded once", _sigmoid_rounded),
    Meant("Sign", "float16", "edges.*|0-d.*", "NaN, as of float32", _of_nan),
    Meant("Shrink", f"{_INTEGERS}|float64", "edges.*", _EXACT_STEPS, _beyond_float32),
    Meant("LRN", _FLOATS, ".*", "the reference leaves channels out", _channels_left_out),
    Meant("Erf|Gelu|GroupN.*|HardSwish|Resize", "float64", ".*", _EXACT_STEPS, _float32_steps),
    Meant("ReduceMean", "uint64", ".* decided", "the mean of nothing is 0", _mean_of_nothing),
    Meant("Clip", "float64|b?float16", ".*None.*", "the finite limits", _of_infinity),
)


def by_runtime(case: Case) -> list[Array] | None:
    """Results of ONNX Runtime; None where it has no kernel."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        content = model_of([case]).SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        convert = onnxruntime.OrtValue.ortvalue_from_numpy
        values = {name: convert(x) for name, x in case.feeds().items()}
        return [np.asarray(x.numpy()) for x in session.run_with_ort_values(None, values)]
    except Exception:
        return None


def by_reference(case: Case) -> list[Array] | None:
    """Results of onnx's reference implementation; None where it has none, or fails."""
    try:
        found = ReferenceEvaluator(model_of([case])).run(None, case.feeds())
    except Exception:
        return None
    if case.operator == "ReduceSumSquare":  # NumPy's sum of integers is of 64 bits
        return [np.asarray(x, case.dtype) for x in found]
    return [np.asarray(x) for x in found]


def expected(case: Case) -> tuple[list[Array], str] | None:
    """The right results and who says so; None where nobody does.

    A float of 16 bits for which ONNX Runtime has no kernel is what it makes of the same numbers
    as float32, rounded once.
    """
    found = by_runtime(case)
    if found is not None:
        return found, "onnxruntime"
    rounds = case.operator in ("Cast", "CastLike", "QuantizeLinear")
    if case.dtype in dtypes.HALVES and not rounds:
        narrow = np.dtype(dtypes.check(case.dtype))
        wide = tuple(
            x.astype("float32") if x is not None and x.dtype == narrow else x for x in case.inputs
        )
        found = by_runtime(replace(case, inputs=wide, dtype="float32"))
        if found is not None:
            with np.errstate(over="ignore"):
                results = [x.astype(narrow) if x.dtype == "float32" else x for x in found]
            return results, "onnxruntime in float32"
    found = by_reference(case)
    return None if found is None else (found, "onnx.reference")


def difference(
    case: Case, found: Sequence[Array], wanted: Sequence[Array], meant: Sequence[Meant] = ()
) -> str:
    """Describe the first difference that is not meant; empty where there is none."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs for {len(wanted)}"
    for n, (a, b) in enumerate(zip(found, map(stored, wanted), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        wrong = ~_same(a, b, case.operator)
        if wrong.any():
            x, y = (e.astype("float64") if dtypes.is_float(e.dtype.name) else e for e in (a, b))
            for m in meant:
                wrong = wrong & ~np.broadcast_to(m.excuse(case, x, y), wrong.shape)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"output {n}: {wrong.sum()} of {wrong.size}, first {list(at)}: "
                f"{a[at]} for {b[at]}{_read(case, at, a.shape)}"
            )
    return ""


def _read(case: Case, at: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The elements that an operator of elements read for one of its results."""
    try:
        read = [np.broadcast_to(x, shape)[at] for x in case.inputs if x is not None]
    except ValueError:
        return ""
    return f" of {', '.join(map(str, read))}"


def _same(a: Array, b: Array, operator: str) -> Array:
    if not dtypes.is_float(a.dtype.name):
        return np.asarray(a == b)
    x, y = a.astype("float64"), b.astype("float64")
    rtol, atol = (0.0, 0.0) if operator in EXACT else _ERRORS[a.dtype.name]
    with np.errstate(all="ignore"):
        close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if operator in SIGNED:
        close &= (x != 0) | (y != 0) | (np.signbit(x) == np.signbit(y))
    return np.asarray(close)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        case: the case.
        kind: ``same``, ``refused``, ``of no elements`` (refused, too), ``unknown`` (nobody says
            what is right), ``other`` (the reference's answer, where ONNX Runtime has another),
            ``meant``, ``wrong`` or ``failed``.
        text: how it differs, or why it was refused.
    """

    case: Case
    kind: str
    text: str = ""


def decided(case: Case) -> Iterator[Outcome]:
    """Outcome of a case whose inputs are all known, where the import computes its results."""
    places = tuple(n for n, x in enumerate(case.inputs) if x is not None)
    whole = replace(case, known=places, edge=f"{case.edge} decided")
    try:
        body = from_onnx(model_of([whole]), fallback=False)["main"].body
    except LoopwrightError:
        return
    parts = body.fields if isinstance(body, Tuple) else (body,)
    values = [e.data for e in parts if isinstance(e, Constant)]
    if len(values) == len(parts):
        yield judged(whole, values)


#: Results of kernels for the data of a case: versions of an operator are often one module.
_Results: TypeAlias = "dict[tuple[Any, ...], list[Array]]"


def outcomes(cases: Sequence[Case], results: _Results) -> Iterator[Outcome]:
    """Outcomes of cases of one opset, compiled together unless results are known."""
    taken = []
    for case in cases:
        try:
            module = from_onnx(model_of([case]), fallback=False)
            taken.append((case, (case.operator, case.dtype, case.edge, str(module), *_bytes(case))))
        except LoopwrightError as exc:
            empty = any(x is not None and not x.size for x in case.inputs)
            kind = "of no elements" if empty else "refused"
            yield Outcome(case, kind, str(exc).partition("\n")[0])
        except Exception as exc:
            yield Outcome(case, "failed", f"{type(exc).__name__}: {exc}")
    new = [(case, key) for case, key in taken if key not in results]
    for begin in range(0, len(new), TOGETHER):
        yield from _failed(new[begin : begin + TOGETHER], results)
    for case, key in taken:
        if key in results:
            yield judged(case, results[key])


def _bytes(case: Case) -> Iterator[bytes]:
    return (b"" if x is None else x.tobytes() for x in case.inputs)


def _failed(cases: Sequence[tuple[Case, Any]], results: _Results) -> Iterator[Outcome]:
    """Run cases, and give those that cannot be compiled."""
    try:
        found = run([case for case, _ in cases])
    except Exception as exc:
        if len(cases) > 1:
            half = len(cases) // 2
            yield from _failed(cases[:half], results)
            yield from _failed(cases[half:], results)
        else:
            text = f"{type(exc).__name__}: {exc}".partition("\n")[0]
            yield Outcome(cases[0][0], "failed", text)
        return
    results.update({key: x for (_, key), x in zip(cases, found, strict=True)})


def run(cases: Sequence[Case]) -> list[list[Array]]:
    """Results of compiled kernels for cases of one opset."""
    module = from_onnx(model_of(cases), fallback=False)
    compiled = graph.compile(module, TARGET)
    prefixes = [f"c{n}_" if len(cases) > 1 else "" for n in range(len(cases))]
    feeds = {
        f"{prefix}{name}": stored(x)
        for prefix, case in zip(prefixes, cases, strict=True)
        for name, x in case.feeds().items()
    }
    flat = iter(compiled(*(feeds[p.name] for p in module["main"].params)))
    return [[np.asarray(next(flat)) for _ in range(case.outputs)] for case in cases]


def judged(case: Case, found: Sequence[Array]) -> Outcome:
    """Compare results of a case with the right ones."""
    right = expected(case)
    if right is None:
        return Outcome(case, "unknown")
    wanted, source = right
    text = difference(case, found, wanted)
    if not text:
        return Outcome(case, "same")
    text = f"{text} ({source})"
    if not difference(case, found, wanted, [m for m in MEANT if m.fits(case)]):
        return Outcome(case, "meant", text)
    if source != "onnx.reference":
        other = by_reference(case)
        if other is not None and not difference(case, found, other):
            return Outcome(case, "other", text)
    return Outcome(case, "wrong", text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, and print what was tried and what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="operators whose names contain this text")
    parser.add_argument("--dtype", default="", help="one dtype")
    parser.add_argument("--all", action="store_true", help="print every difference, not three each")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    begin = time.perf_counter()
    by_opset: dict[int, list[Case]] = defaultdict(list)
    for schema in schemas(options.only):
        for dtype in dtypes_of(schema):
            if options.dtype in ("", dtype):
                by_opset[schema.since_version] += cases_of(schema, dtype)
    results: _Results = {}
    found = [o for cases in by_opset.values() for o in outcomes(cases, results)]
    latest = {(c.operator, c.dtype, c.edge): c for _, cs in sorted(by_opset.items()) for c in cs}
    found += [o for case in latest.values() for o in decided(case)]
    _print(found, options.all)
    print(f"{time.perf_counter() - begin:.0f} s")
    if any(o.kind in ("wrong", "failed") for o in found):
        sys.exit(1)


def _print(found: Sequence[Outcome], everything: bool) -> None:
    tried = {(o.case.operator, o.case.dtype) for o in found}
    versions = {(o.case.operator, o.case.opset) for o in found}
    print(
        f"{len(found)} cases: {len({o for o, _ in tried})} operators, {len(versions)} versions of "
        f"them, {len(tried)} pairs of an operator and a dtype"
    )
    print(", ".join(f"{n} {kind}" for kind, n in Counter(o.kind for o in found).most_common()))
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for o in found:
        if o.kind not in ("same", "unknown", "of no elements"):
            groups[o.kind, o.case.operator].append(o)
    for (kind, operator), members in sorted(groups.items()):
        where = Counter(f"{o.case.dtype}/{o.case.opset}" for o in members)
        print(f"{kind}: {operator} ({len(members)}): {', '.join(where)}")
        for o in members if everything else members[:3]:
            print(f"    {o.case.opset} {o.case.dtype} {o.case.edge}: {o.text}")


if __name__ == "__main__":
    main()
