"""Calibration: value ranges over sample data, from which quantised tensors get their scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from loopwright.errors import GraphError, UsageError, did_you_mean
from loopwright.graph.compile import compile
from loopwright.graph.ir.expr import Expr, Function, Tuple
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.task.task import TargetLike

Array: TypeAlias = np.ndarray[Any, Any]
#: Methods to choose a range.
Method: TypeAlias = Literal["min_max", "percentile", "entropy"]
METHODS = ("min_max", "percentile", "entropy")
#: Bins of a histogram; levels of 8 bits without the sign.
_BINS, _LEVELS = 2048, 128
#: Bins between the thresholds that are tried.
_STEP = 16


@dataclass(frozen=True)
class Range:
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
) -> list[Range]:
    """The ranges of some float tensors of a function over all data, which are inputs by name.

    ``percentile`` is the percentage of the numbers that lie inside, for that method.
    """
    whole = Function(main.params, Tuple(tuple(values)))
    executor = compile(IRModule({MAIN: whole}), target).executor()
    given = list(data)
    if not given:
        raise GraphError("there are no calibration data; give the inputs of one run at least")

    def each(see: Callable[[int, Array], None]) -> None:
        for inputs in given:
            executor.run(**inputs)
            for n in range(len(values)):
                see(n, np.asarray(executor.get_output(n)))

    found = [Range(0.0, 0.0)] * len(values)

    def widen(n: int, a: Array) -> None:
        low, high = float(a.min()), float(a.max())
        if not np.isfinite([low, high]).all():
            where = values[n].span or f"value {n}"
            raise GraphError(f"{where} is not finite for calibration data; look at the inputs")
        found[n] = Range(min(found[n].low, low), max(found[n].high, high))

    each(widen)
    if method == "min_max":
        return found
    counts = [np.zeros(_BINS, "int64") for _ in values]

    def count(n: int, a: Array) -> None:
        counts[n] += np.histogram(a, _BINS, _limits(found[n], method))[0]

    each(count)
    cut = _by_entropy if method == "entropy" else lambda c, r: _by_percentile(c, r, percentile)
    return [cut(c, r) for c, r in zip(counts, found, strict=True)]


def _limits(r: Range, method: Method) -> tuple[float, float]:
    """The limits of a histogram; those of the method entropy are symmetric around 0."""
    if r.low == r.high:
        return (-1.0, 1.0)
    most = max(-r.low, r.high)
    return (-most, most) if method == "entropy" else (r.low, r.high)


def _by_percentile(counts: Array, r: Range, percentile: float) -> Range:
    """The range without the outermost numbers, equally many at each end that is not 0."""
    edges = np.linspace(*_limits(r, "percentile"), _BINS + 1)
    share = np.cumsum(counts) / counts.sum()
    out = 1 - percentile / 100
    out = out / 2 if r.low < 0 < r.high else out
    low = edges[int(np.searchsorted(share, out, side="right"))] if r.low < 0 else 0.0
    high = edges[int(np.searchsorted(share, 1 - out)) + 1] if r.high > 0 else 0.0
    return Range(min(max(float(low), r.low), 0.0), max(min(float(high), r.high), 0.0))


def _by_entropy(counts: Array, r: Range) -> Range:
    """The range whose quantised numbers are distributed most like the numbers themselves.

    Its threshold minimises the Kullback-Leibler divergence, as in TensorRT (Migacz, 2017).
    """
    half = _BINS // 2
    sizes = counts[half:] + counts[:half][::-1]
    tried = range(_LEVELS, half + 1, _STEP)
    best = min(tried, key=lambda n: _divergence(sizes, n))
    threshold = max(-r.low, r.high) * best / half
    return Range(max(r.low, -threshold), min(r.high, threshold))


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
