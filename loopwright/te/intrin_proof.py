"""Proof that an intrinsic from a file is harmless, and does what its description says.

A trace may hold a tensor intrinsic: statements that will run as machine code in this process. One
that this process has declared itself (`te.decl_tensor_intrin`) is trusted. Any other, such as one
from a log, is proved before it is used:

* its accesses stay inside the elements that its description names: their places must not depend on
  data, so that one run of the interpreter, which checks every access, shows all of them;
* its work is limited, which is counted before anything runs;
* it gives what the description gives, run by the interpreter on small integers, on random data, at
  the limits of integers and zero, and with infinities and NaN.

One that the program declares itself is compared in the same way when a schedule first uses it
(`require_equal`): it may do what cannot be proved, but not give another answer than it says.

Its operations need no proof: its JSON can name the functions and instructions of `loopwright.ir`
only (`loopwright.te.serial`).

Verdicts are kept by digest. A builder process learns from its parent which intrinsics that one has
declared (`declared_in`, `vouch_for`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import RunError, TensorError
from loopwright.ir import expr as ir
from loopwright.ir.affine import Interval, exact, fits, interval
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.node import distinct
from loopwright.ir.stmt import Allocate, For, Func, If, IntrinsicCall, Let, Seq, Stmt, Store, seq
from loopwright.ir.visitor import contains, map_nodes, nodes
from loopwright.te.exact_sums import exactness
from loopwright.te.intrinsics import call_of
from loopwright.te.serial import Json
from loopwright.te.tensor_intrin import APPROXIMATE, DECLARED, TensorIntrin, json_digest

Array = npt.NDArray[Any]
#: Largest intrinsic that is proved: nodes of the IR that one run of its statements passes through.
MAX_WORK = 1 << 17
#: Most elements that its operands, and its own buffers, may have together.
MAX_ELEMENTS = 1 << 16
#: Integers up to this size are tried where sums of no small integers are exact.
_SMALL = 3
#: Nodes of the longest index, and of the longest condition of a branch. What they can be is found
#: from their intervals, which takes longer than their length.
MAX_INDEX = 256
#: Relative errors of sums in another order.
_TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2e-1}

#: Why an intrinsic is not harmless, by its digest; None: it was proved.
_verdicts: dict[str, _Unproved | None] = {}


def intrinsic_from_json(data: Json) -> TensorIntrin:
    """Rebuild an intrinsic of a trace: a declared one, or one that is proved harmless."""
    x = TensorIntrin.from_json(data)
    if x.digest in DECLARED:
        return x
    why = _verdict(x)
    if why is not None:
        raise TensorError(
            f"intrinsic {x.name!r} was not declared by this program, and is not proved harmless: "
            f"{why}; if you know it, declare it with te.decl_tensor_intrin before the trace is read"
        )
    return x


def require_equal(x: TensorIntrin) -> None:
    """Refuse an intrinsic of this program whose bodies give something else than its description.

    Those of loopwright and approximate ones are not looked at; where nothing can be proved, as data
    decide what it does, the checks of kernels remain.
    """
    if x.digest in APPROXIMATE or call_of(x):
        return
    why = _verdict(x)
    if isinstance(why, _Wrong):
        raise TensorError(
            f"intrinsic {x.name!r} does not do what its description says: {why}; mend its body, or "
            "declare it with approximate=True"
        )


def _verdict(x: TensorIntrin) -> _Unproved | None:
    if x.digest not in _verdicts:
        _verdicts[x.digest] = _why_not(x)
    return _verdicts[x.digest]


def declared_in(trace: Iterable[Any]) -> list[str]:
    """Digests of the intrinsics of a trace, as JSON, that this process has declared."""
    digests = [json_digest(step[3]) for step in trace if step[0] == "tensorize"]
    return [x for x in digests if x in DECLARED]


def vouch_for(digests: Iterable[str]) -> None:
    """Take intrinsics as declared: the process that gives this one its work has declared them."""
    DECLARED.update(digests)


def why_not_harmless(x: TensorIntrin) -> str:
    """Reason why an intrinsic could not be proved harmless; empty where it was."""
    return str(_why_not(x) or "")


def _why_not(x: TensorIntrin) -> _Unproved | None:
    try:
        _check_operands(x)
        parts = {"body": x.body, "reset": x.reset, "update": x.update}
        present = {name: part for name, part in parts.items() if part is not None}
        for name, part in present.items():
            _Survey(name).check(part)
            _Survey("description").check(_described(x, name))
        for name, part in present.items():
            _compare(x, name, part)
    except _Unproved as reason:
        return reason
    except RunError as error:
        return _Wrong(f"the interpreter stopped it: {error}")
    except RecursionError:
        return _Unproved("it nests too deeply")
    return None


class _Unproved(Exception):
    """An intrinsic cannot be proved harmless; the text gives the reason."""


class _Wrong(_Unproved):
    """An intrinsic is not what its description says."""


def _check_operands(x: TensorIntrin) -> None:
    """Check that operands have just the elements that the description reads: these exist."""
    axes = {a.var: a.extent for a in (*x.op.axes, *x.op.reduce_axes)}
    for k, op in enumerate(x.dag.ops[:-1]):
        reads = distinct(r.indices for r in x.op.reads() if r.source == k)
        if len(reads) != 1:
            raise _Unproved(f"its description reads {op.name!r} at {len(reads)} places, not at one")
        for i, n in zip(reads[0], op.shape, strict=True):
            inside = i.value == 0 and n == 1 if isinstance(i, ir.Const) else axes.get(i) == n  # type: ignore[call-overload]
            if not inside:
                raise _Unproved(f"{op.name!r} has elements that its description does not read")
    _check_elements(sum(prod(op.static_shape) for op in x.dag.ops))
    if x.op.reduction is None and (x.reset is not None or x.update is not None):
        raise _Unproved("it has a reset or an update, and its description is no reduction")


def _check_elements(n: int) -> None:
    if n > MAX_ELEMENTS:
        raise _Unproved(f"its buffers have {n} elements, and at most {MAX_ELEMENTS} are proved")


class _Survey:
    """Walk over a body that counts its work, and sees that data decide nothing but values."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.ranges: dict[ir.Var, Interval] = {}
        self.work = self.elements = 0

    def check(self, body: Stmt) -> None:
        """Refuse a body that works too long, or whose accesses depend on data."""
        self.stmt(body, 1)

    def stmt(self, s: Stmt, times: int) -> None:
        match s:
            case Seq(stmts=stmts):
                for c in stmts:
                    self.stmt(c, times)
            case For(var=v, extent=n, body=body):
                assert isinstance(n, int)
                self.ranges[v] = (0, n - 1)
                self.count(times * n)
                self.stmt(body, times * n)
            case Let(var=v, value=e, body=body):
                self.expr(e, times)
                bounds = interval(e, {}, self.ranges)
                if bounds is not None and self.plain(e):
                    self.ranges[v] = bounds
                self.stmt(body, times)
            case If(cond=c, then=then, orelse=orelse):
                self.expr(c, times)
                if not self.decided(c):
                    raise _Unproved(f"in its {self.part} a branch depends on data")
                self.stmt(then, times)
                self.stmt(orelse or Seq(()), times)
            case Store(indices=indices, value=e):
                self.indices(indices)
                self.count(times * sum(map(_size, indices)))
                self.expr(e, times)
            case Allocate(buffer=b, body=body):
                self.elements += prod(b.extents)
                _check_elements(self.elements)
                self.count(times * prod(b.extents))
                self.stmt(body, times)
            case IntrinsicCall(operands=operands, body=body):
                for x in operands:
                    self.indices(x.indices)
                    self.count(times * sum(map(_size, x.indices)))
                self.stmt(body, times)
            case _:
                raise _Unproved(f"its {self.part} holds a {type(s).__name__}")

    def expr(self, e: ir.Expr, times: int) -> None:
        for n in nodes(e):
            self.count(times)
            match n:
                case Load(indices=indices):
                    self.indices(indices)
                case ir.IfThenElse(cond=c, a=a, b=b) if contains(a, Load) or contains(b, Load):
                    if not self.decided(c):
                        raise _Unproved(f"in its {self.part} data decide what is read")

    def count(self, times: int) -> None:
        self.work += times
        if self.work > MAX_WORK:
            raise _Unproved(
                f"its {self.part} has more than {MAX_WORK} operations, and no more are proved"
            )

    def indices(self, indices: Sequence[ir.Expr]) -> None:
        for i in indices:
            if not self.plain(i):
                raise _Unproved(
                    f"in its {self.part} an index depends on data, or leaves the range of {i.dtype}"
                )

    def plain(self, e: ir.Expr) -> bool:
        """Whether an integer follows from the loops, and does not wrap."""
        if (length := _size(e)) > MAX_INDEX:
            raise _Unproved(
                f"its {self.part} has an index or condition of {length} operations, and at most "
                f"{MAX_INDEX} are proved"
            )
        return exact(e, {}, self.ranges) and fits(e, {}, self.ranges)

    def decided(self, cond: ir.Expr) -> bool:
        """Whether a condition follows from the loops."""
        match cond:
            case ir.Const():
                return True
            case ir.Unary(op="not", a=a):
                return self.decided(a)
            case ir.Binary(op="and" | "or", a=a, b=b):
                return self.decided(a) and self.decided(b)
            case ir.Binary(op=op, a=a, b=b) if op in ir.COMPARE:
                return self.plain(a) and self.plain(b)
        return False


def _size(e: ir.Expr) -> int:
    return sum(1 for _ in nodes(e))


def _compare(x: TensorIntrin, name: str, part: Stmt) -> None:
    described = _described(x, name)
    outputs = tuple(b is x.params[-1] for b in x.params)
    funcs = [Func(x.name, x.params, outputs, s) for s in (described, part)]
    exact_up_to = exactness(x.dag)
    draws: dict[str, Callable[[np.random.Generator, Buffer], Array]] = {
        "small integers": partial(_small, _SMALL if exact_up_to is None else exact_up_to.largest),
        "random data": _random,
        "zeros and limits": _limits,
        "infinities and NaN": _special,
    }
    for number, (data, draw) in enumerate(draws.items()):
        inputs = [draw(np.random.default_rng(k), b) for k, b in enumerate(x.params)]
        if name != "update":
            fill = (np.nan, -3e4) if dtypes.is_float(x.params[-1].dtype) else (85, 42)
            inputs[-1] = np.full_like(inputs[-1], fill[number % 2])
        want, got = ([a.copy() for a in inputs] for _ in funcs)
        for f, arrays in zip(funcs, (want, got), strict=True):
            interpret(f, arrays)
        wrong = _differ(
            want[-1], got[-1], exactly=data == "small integers" and exact_up_to is not None
        )
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise _Wrong(
                f"on {data} its {name} does not give what its description gives: element "
                f"{list(at)} is {got[-1][at]}, not {want[-1][at]} ({int(wrong.sum())} of "
                f"{wrong.size} differ)"
            )


def _described(x: TensorIntrin, part: str) -> Stmt:
    """The description as plain loops: all of it, its starting value, or what it adds to that."""
    op, out = x.op, x.params[-1]
    at = tuple(a.var for a in op.axes)
    red = op.reduction
    if red is None:
        assert op.body is not None
        return _loops(op.axes, Store(out, at, _loads(op.body, x.params)))
    start = Store(out, at, ir.cast(red.combiner.identity[0], out.dtype))
    value = _loads(red.source[0], x.params)
    (total,) = red.combiner.combine((Load(out, at, out.dtype),), (value,))
    update = _loops(red.axes, Store(out, at, total))
    return _loops(op.axes, {"body": seq(start, update), "reset": start, "update": update}[part])


def _loops(axes: Sequence[ir.IterVar], body: Stmt) -> Stmt:
    for a in reversed(axes):
        body = For(a.var, a.extent, "serial", body)
    return body


def _loads(e: ir.Expr, params: Sequence[Buffer]) -> ir.Expr:
    loads: ir.Expr = map_nodes(e, ir.Read, lambda r: Load(params[r.source], r.indices, r.dtype))
    return loads


def _small(largest: int, rng: np.random.Generator, b: Buffer) -> Array:
    low = 0 if b.dtype == "bool" or dtypes.is_unsigned(b.dtype) else -largest
    high = 1 if b.dtype == "bool" else largest
    return np.asarray(rng.integers(low, high, b.extents, endpoint=True)).astype(np.dtype(b.dtype))


def _random(rng: np.random.Generator, b: Buffer) -> Array:
    if b.dtype == "bool":
        return _small(1, rng, b)
    if dtypes.is_float(b.dtype):
        return np.asarray(rng.uniform(-2, 2, b.extents)).astype(np.dtype(b.dtype))
    low, high = (int(x) for x in dtypes.limits(b.dtype))
    return np.asarray(rng.integers(low, high, b.extents, np.dtype(b.dtype), endpoint=True))


def _limits(rng: np.random.Generator, b: Buffer) -> Array:
    """Zeros, and the limits of integers; larger and smaller floats."""
    if b.dtype == "bool":
        return _small(1, rng, b)
    some = [0.0, -0.0, 1.0, -1.0, 20.0, -20.0, 0.01]
    if not dtypes.is_float(b.dtype):
        low, high = (int(x) for x in dtypes.limits(b.dtype))
        some = [low, high, high, 0, 1, high - 1]
    return np.asarray(
        np.array(some).astype(np.dtype(b.dtype))[rng.integers(0, len(some), b.extents)]
    )


def _special(rng: np.random.Generator, b: Buffer) -> Array:
    """Random values, a few of them infinite or NaN; integers all at their upper limit."""
    if not dtypes.is_float(b.dtype):
        return np.full(b.extents, True if b.dtype == "bool" else dtypes.limits(b.dtype)[1], b.dtype)
    values = _random(rng, b)
    few = rng.permutation(values.size)[: min(3, values.size // 4)]
    values.reshape(-1)[few] = np.array([np.nan, np.inf, -np.inf])[: few.size]
    return values


def _differ(want: Array, got: Array, exactly: bool) -> Array:
    if not dtypes.is_float(want.dtype.name):
        return np.asarray(want != got)
    a, b = want.astype(np.float64), got.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if exactly:
        return np.asarray(~same)
    finite = np.abs(a[np.isfinite(a)])
    error = _TOLERANCE[want.dtype.name]
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        wrong = ~(same | (np.abs(a - b) <= error * (np.abs(a) + scale)) & np.isfinite(a))
    return np.asarray(wrong)
