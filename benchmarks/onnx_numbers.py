"""What compiled operators of ONNX give for numbers at the limits of their dtypes, beside ONNX
Runtime and onnx's own reference implementation.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from onnx.reference import ReferenceEvaluator

from benchmarks.onnx_number_cases import Array, Case, cases_of, dtypes_of, model_of, schemas
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


@dataclass(frozen=True)
class Meant:
    """A difference that is meant: regular expressions of operator, dtype and edge; and why."""

    operator: str
    dtype: str
    edge: str
    reason: str

    def fits(self, case: Case) -> bool:
        """Whether a case is one of them."""
        pairs = ((self.operator, case.operator), (self.dtype, case.dtype), (self.edge, case.edge))
        return all(re.fullmatch(pattern, text) for pattern, text in pairs)


_NAN = "NaN is given on, as NumPy does; other kernels do so by its place"
_FLOATS = "b?float.*"
#: Differences that are meant; ``docs/numbers.md`` tells them.
MEANT: tuple[Meant, ...] = (
    Meant("Reduce.*|Arg.*|Global.*|.*Pool|.*[mM]ax|TopK", _FLOATS, "nan.*", _NAN),
    Meant("Clip", _FLOATS, "nan to 1.*|0 to nan.*", _NAN),
    Meant("PRelu", _FLOATS, "pairs", "a slope that is NaN counts for numbers below 0 alone"),
    Meant("QuantizeLinear|DynamicQ.*", _FLOATS, "nan.*|infinite", "NaN is the whole number 0"),
    Meant("QuantizeLinear", "int32|b?float.*", ".*", "the reference does not saturate"),
    Meant("AveragePool", _FLOATS, "padded", "padding is not counted, as later versions say"),
    Meant("GlobalMaxPool", _FLOATS, "rows", "-inf is the largest where all are"),
    Meant("Reduce.*", "u?int.*", "limits.*", "whole numbers wrap"),
    Meant("ReduceSumSquare", "u?int.*", "rank 0.*", "the dtype is that of the input"),
    Meant("ReduceL2", _FLOATS, ".*noop", "the size of one number does not overflow"),
    Meant("ReduceLogSumExp", _FLOATS, ".*", "does not overflow on its way"),
    Meant("ReduceLogSum", "u?int.*", ".*", "the logarithm of less than 0 is NaN"),
    Meant("Pow", "int32|int64", "pairs of int.*", "whole numbers wrap"),
    Meant("Range", _FLOATS, ".*", "start + n * delta, as the specification says: no sum"),
    Meant("Resize", _FLOATS, r"cubic pytorch_half_pixel to \[1, 1\]", "0 for one element"),
    Meant("Resize", "uint8", "(linear|cubic).*", "cut, as ONNX Runtime does where it has a kernel"),
    Meant("Where", _FLOATS, "pairs.*", "the reference: -0.0 stays what it is"),
    Meant("LogSoftmax", "float64", ".*", "a distance to infinity is NaN, as of float32"),
    Meant("Hardmax", "float64", ".*", "one matrix before opset 13; the reference takes an axis"),
    Meant("Swish", "b?float16", ".*", "rounded once"),
    Meant("Sign", "float16", "edges.*|0-d.*", "NaN of float16 as of float32"),
    Meant("Shrink", "u?int.*|float64", "edges.*", "computed in float64, not in float32"),
    Meant("Erf|Gelu|GroupN.*|HardSwish|LRN", "float64", ".*", "computed in float64 throughout"),
    Meant("Clip", "float64|b?float16", ".*None.*", "bounds left out are the finite limits"),
    Meant("Pow", _FLOATS, "known 0.5.*", "as C has it: no square root, which -inf does not have"),
)


def by_runtime(case: Case) -> list[Array] | None:
    """What ONNX Runtime gives; None where it has no kernel."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        content = model_of([case]).SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in case.given().items()
        }
        found = session.run_with_ort_values(None, values)
        return [np.asarray(x.numpy()) for x in found]
    except Exception:
        return None


def by_reference(case: Case) -> list[Array] | None:
    """What onnx's reference implementation gives; None where it has none, or fails."""
    try:
        found = ReferenceEvaluator(model_of([case])).run(None, case.given())
    except Exception:
        return None
    return [np.asarray(x) for x in found]


def expected(case: Case) -> tuple[list[Array], str] | None:
    """What is right, and who says so; None where nobody does.

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


def difference(case: Case, found: Sequence[Array], wanted: Sequence[Array]) -> str:
    """How results differ; empty where they do not."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs for {len(wanted)}"
    for n, (a, b) in enumerate(zip(found, map(stored, wanted), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        wrong = ~_same(a, b, case.operator)
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
    """What became of a case.

    Attributes:
        case: the case.
        kind: ``same``, ``refused``, ``unknown`` (nobody says what is right), ``other`` (the
            reference's answer, where ONNX Runtime has another), ``meant``, ``wrong`` or ``failed``.
        text: how it differs, or why it was refused.
    """

    case: Case
    kind: str
    text: str = ""


def decided(case: Case) -> Iterator[Outcome]:
    """What becomes of a case whose inputs are all known, where the import decides its results."""
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


#: What kernels gave for the data of a case: versions of an operator are often one module.
_Results: TypeAlias = "dict[tuple[Any, ...], list[Array]]"


def outcomes(cases: Sequence[Case], results: _Results) -> Iterator[Outcome]:
    """What becomes of cases of one opset, compiled together unless results are known."""
    taken = []
    for case in cases:
        try:
            module = from_onnx(model_of([case]), fallback=False)
            taken.append((case, (case.operator, case.dtype, case.edge, str(module), *_bytes(case))))
        except LoopwrightError as exc:
            yield Outcome(case, "refused", str(exc).partition("\n")[0])
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
    """What compiled kernels give for each of some cases of one opset."""
    module = from_onnx(model_of(cases), fallback=False)
    compiled = graph.compile(module, TARGET)
    prefixes = [f"c{n}_" if len(cases) > 1 else "" for n in range(len(cases))]
    given = {
        f"{prefix}{name}": stored(x)
        for prefix, case in zip(prefixes, cases, strict=True)
        for name, x in case.given().items()
    }
    flat = iter(compiled(*(given[p.name] for p in module["main"].params)))
    return [[np.asarray(next(flat)) for _ in range(case.outputs)] for case in cases]


def judged(case: Case, found: Sequence[Array]) -> Outcome:
    """What results are worth."""
    right = expected(case)
    if right is None:
        return Outcome(case, "unknown")
    wanted, source = right
    text = difference(case, found, wanted)
    if not text:
        return Outcome(case, "same")
    text = f"{text} ({source})"
    if any(m.fits(case) for m in MEANT):
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
        if o.kind not in ("same", "unknown"):
            groups[o.kind, o.case.operator].append(o)
    for (kind, operator), members in sorted(groups.items()):
        where = Counter(f"{o.case.dtype}/{o.case.opset}" for o in members)
        print(f"{kind}: {operator} ({len(members)}): {', '.join(where)}")
        for o in members if everything else members[:3]:
            print(f"    {o.case.opset} {o.case.dtype} {o.case.edge}: {o.text}")


if __name__ == "__main__":
    main()
