"""Errors of the vector math functions: ``python -m fuzzing.ulp [NAME...]``.

Compiled code is compared with NumPy and SciPy in float64 (for float32) or in the platform's long
double (for float64, where that is longer; erf is then compared with the C library's). An error is
counted in units in the last place of the exact value: half a unit is the best that can be had.
Infinities, NaN and the sign of zero must be right.

Options: ``--dtype float64``, ``--target TARGET``, ``--count N`` samples (default 4 million), and
``--all`` for every one of the 2**32 float32 arguments (functions of one argument).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from loopwright import te
from loopwright.driver import build
from loopwright.schedule import create_schedule
from loopwright.testing.numpy_eval import Array

#: Functions that are measured.
NAMES = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "tanh", "sinh", "cosh",
    "erf", "rsqrt", "sin", "cos", "tan", "atan", "pow",
)  # fmt: skip
_BLOCK = 1 << 16


class Error(NamedTuple):
    #: Largest error of a finite result.
    ulp: float
    #: Its arguments.
    args: tuple[float, ...]
    #: Number of results of another kind: NaN, an infinity or the sign of zero.
    wrong: int
    #: Arguments of one of them.
    example: tuple[float, ...]
    #: Number of arguments.
    tried: int


def kernel(fn: str, dtype: str, target: str = "llvm -num-threads=1") -> Callable[..., None]:
    """A compiled function ``f(x, [y,] out)`` over arrays of 65536 elements, vectorised."""
    names = ("X", "Y") if fn == "pow" else ("X",)
    args = [te.placeholder((_BLOCK // 64, 64), dtype, name=n) for n in names]
    out = te.compute(args[0].shape, lambda i, j: te.call(fn, *(a[i, j] for a in args)), name="out")
    s = create_schedule(out)
    s[out].vectorize(out.op.axis[1])
    built = build(s, [*args, out], target=target)

    def run(*arrays: Array) -> None:
        built(*(a.reshape(_BLOCK // 64, 64) for a in arrays))

    return run


def exact(fn: str, args: tuple[Array, ...]) -> Array:
    wide = np.float64 if args[0].dtype == np.float32 else np.longdouble
    x: Array = args[0].astype(wide)
    match fn:
        case "sigmoid":
            e = np.exp(-np.abs(x))
            return np.asarray(np.where(x < 0, e, wide(1)) / (1 + e))
        case "rsqrt":
            return np.asarray(1 / np.sqrt(x))
        case "erf" if wide is np.float64:
            from scipy.special import erf

            return np.asarray(erf(x))
        case "erf":
            values = [math.erf(v) for v in args[0].ravel().tolist()]
            return np.array(values).reshape(x.shape).astype(wide)
        case "atan":
            return np.asarray(np.arctan(x))
        case "pow":
            return np.asarray(np.power(x, args[1].astype(wide)))
    return np.asarray(getattr(np, fn)(x))


def errors(got: Array, want: Array) -> tuple[Array, Array]:
    """Errors in ulp where both are finite, and a mask of results of the wrong kind."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        size = np.where(want == 0, want.dtype.type(info.tiny), np.abs(want))
        exponent = np.maximum(np.frexp(size)[1] - 1, info.minexp)
        unit = np.ldexp(want.dtype.type(1), exponent - info.nmant)
        finite = np.isfinite(rounded) & np.isfinite(got)
        ulp = np.where(finite, np.abs(got.astype(want.dtype) - want) / unit, 0)
        good = finite | (got == rounded) | (np.isnan(got) & np.isnan(want))
        # Either side of the largest number may round to infinity.
        most = info.max * (1 - 2 * info.eps)
        good |= (np.abs(want) > most) & (np.abs(got) >= most) & (np.sign(got) == np.sign(want))
        zero = (got == 0) & (want == 0)
        return ulp.astype(np.float64), ~good | (zero & (np.signbit(got) != np.signbit(want)))


def measure(
    fn: str, dtype: str, blocks: Iterator[tuple[Array, ...]], target: str = "llvm -num-threads=1"
) -> Error:
    run = kernel(fn, dtype, target)
    out = np.empty(_BLOCK, dtype)
    worst, wrong, count = 0.0, 0, 0
    at: tuple[float, ...] = ()
    example: tuple[float, ...] = ()
    with np.errstate(all="ignore"):
        for args in blocks:
            run(*args, out)
            ulp, bad = errors(out, exact(fn, args))
            k, j = int(np.argmax(ulp)), int(np.argmax(bad))
            worst, at = max((worst, at), (float(ulp[k]), _at(args, k)), key=lambda x: x[0])
            example = _at(args, j) if bad[j] else example
            wrong += int(bad.sum())
            count += len(out)
    return Error(worst, at, wrong, example, count)


def _at(args: tuple[Array, ...], k: int) -> tuple[float, ...]:
    return tuple(float(a[k]) for a in args)


def all_float32() -> Iterator[tuple[Array, ...]]:
    for start in range(0, 1 << 32, _BLOCK):
        yield (np.arange(start, start + _BLOCK, dtype=np.int64).astype(np.uint32).view(np.float32),)


def special(dtype: str) -> Array:
    """Values at which functions break: zeros, infinities, NaN, denormals and limits."""
    info = np.finfo(dtype)
    base = [0.0, 1.0, 0.5, 2.0, 3.0, math.inf, info.max, info.tiny, info.smallest_subnormal,
            info.eps, math.pi, math.pi / 2, math.e, math.log(2), 1e-3, 88.72, 103.97, 709.78, 745.1,
            8192.0, 1e5, 1e22, 2.0**24, 2.0**24 - 1, 2.0**53, 0.9275, 4.0, 6.0]  # fmt: skip
    with np.errstate(all="ignore"):
        up = np.array(base).astype(dtype)
        near = [up, np.nextafter(up, up.dtype.type(0)), np.nextafter(up, up.dtype.type(math.inf))]
    out = np.concatenate([*near, up.dtype.type(math.nan)[None]])
    return np.concatenate([out, -out])


def samples(dtype: str, count: int, arity: int, seed: int = 0) -> Iterator[tuple[Array, ...]]:
    """Random bit patterns, which meet every exponent, usual and `special` values, in whole
    blocks."""
    rng = np.random.default_rng(seed)
    s = special(dtype)
    pairs = [np.resize(a, _BLOCK) for a in np.meshgrid(*[s] * arity)] if arity > 1 else []
    yield tuple(a.reshape(-1) for a in pairs) if pairs else (np.resize(s, _BLOCK),)
    size = np.dtype(dtype).itemsize
    for block in range(-(-count // _BLOCK)):
        if block % 2:
            yield tuple(
                rng.integers(0, 256, _BLOCK * size, np.uint8).view(dtype) for _ in range(arity)
            )
            continue
        scales = [(1.0, 10.0, 100.0, 0.1)[block // 2 % 4], *(5.0 for _ in range(1, arity))]
        args = [(rng.standard_normal(_BLOCK) * scale).astype(dtype) for scale in scales]
        if arity > 1:
            args[0] = np.abs(args[0])
        yield tuple(args)


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m fuzzing.ulp", description=__doc__)
    p.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    p.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    p.add_argument("--target", default="llvm -num-threads=1")
    p.add_argument("--count", type=int, default=4_000_000)
    p.add_argument("--all", action="store_true", help="every float32")
    o = p.parse_args()
    if unknown := [n for n in o.names if n not in NAMES]:
        p.error(f"unknown function {', '.join(unknown)}; take of {', '.join(NAMES)}")
    for fn in o.names or NAMES:
        whole = o.all and o.dtype == "float32" and fn != "pow"
        blocks = all_float32() if whole else samples(o.dtype, o.count, 2 if fn == "pow" else 1)
        e = measure(fn, o.dtype, blocks, o.target)
        at = ", ".join(map(repr, e.args))
        tail = f"; {e.wrong} of the wrong kind, e.g. {e.example}" if e.wrong else ""
        print(f"{fn:8} {o.dtype} {e.ulp:8.3f} ulp at {at} ({e.tried} arguments){tail}", flush=True)


if __name__ == "__main__":
    main()
