"""Values that an input may take that is used as an index, found from the expression.

Indices that depend on data must stay inside their tensor for all iterations, by interval arithmetic
over intervals of the data: a first value is looked for and grown in both directions while they do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from loopwright import dtypes
from loopwright.errors import UsageError
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Read, Select, Unary, Var
from loopwright.ir.reduction import Reduce, outputs_of
from loopwright.ir.visitor import contains, nodes
from loopwright.te.exact_sums import SIGNIFICANT_BITS
from loopwright.te.op_node import reads_of

if TYPE_CHECKING:
    from loopwright.te.dag import Dag
    from loopwright.te.op_node import OpNode


#: Least and largest value of what an index is read from.
Span = tuple[int, int]
_Bounds = tuple[float, float]


class _Access(NamedTuple):
    op: OpNode
    place: Expr  # an index that depends on data
    dimension: int
    extent: int  # of the dimension
    tensor: str


class _Unbounded(Exception):
    """Nothing is known of the values of an expression."""


def is_data_dependent(dag: Dag) -> bool:
    return any(True for _ in _accesses(dag))


def index_operands(dag: Dag) -> set[int]:
    """The placeholders that are used as an index, by their position among the operations."""
    return {p for a in _accesses(dag) for p in _placeholders(dag, a.place)}


def index_spans(dag: Dag) -> dict[int, Span]:
    """Values that keep every access inside, of each placeholder that is used as an index."""
    accesses = list(_accesses(dag))
    used = sorted(index_operands(dag))
    if not used:
        return {}
    rooms = {p: _room(dag.ops[p].dtype) for p in used}
    for value in _candidates(accesses):
        spans = dict.fromkeys(used, (value, value))
        fits = all(low <= value <= high for low, high in rooms.values())
        if fits and _broken(dag, accesses, spans) is None:
            break
    else:
        broken = _broken(dag, accesses, {}) or accesses[0]
        names = ", ".join(f"`{dag.ops[p].name}`" for p in sorted(_placeholders(dag, broken.place)))
        raise UsageError(
            f"operand {names} is used as an index into dimension {broken.dimension} of "
            f"`{broken.tensor}`, and no values are known that stay inside its {broken.extent} "
            "elements; give the template make_inputs, which makes one array per input"
        )
    _grow(dag, spans, accesses, rooms)
    return spans


def _accesses(dag: Dag) -> Iterator[_Access]:
    for op in dag.ops:
        for read in op.reads():
            tensor = dag.ops[read.source]
            for d, index in enumerate(read.indices):
                if contains(index, Read):
                    yield _Access(op, index, d, tensor.static_shape[d], tensor.name)


def _placeholders(dag: Dag, e: Expr) -> set[int]:
    out: set[int] = set()
    for read in reads_of(e):
        op = dag.ops[read.source]
        if op.body is None:
            out.add(read.source)
            continue
        for inner in op.reads():
            out |= _placeholders(dag, inner)
    return out


def _broken(dag: Dag, accesses: list[_Access], spans: Mapping[int, Span]) -> _Access | None:
    """An access that may leave its tensor for such values of the placeholders, or None."""
    values = _Values(dag, spans)
    return next((a for a in accesses if not values.inside(a)), None)


class _Values:
    """Interval arithmetic over a DAG; placeholders without ``spans`` take any value."""

    def __init__(self, dag: Dag, spans: Mapping[int, Span]) -> None:
        self._dag, self._spans = dag, spans
        self._axes: dict[Var, _Bounds] = {}
        for op in dag.ops:
            self._axes |= {a.var: (0, a.count - 1) for a in (*op.axes, *op.reduce_axes)}
        self._known: dict[tuple[int, int], _Bounds] = {}

    def inside(self, access: _Access) -> bool:
        try:
            low, high = self.of(access.place)
        except _Unbounded:
            return False
        return low >= 0 and high < access.extent

    def of(self, e: Expr) -> _Bounds:
        """Least and largest value; `_Unbounded` where nothing is known of it."""
        bounds = self._of(e)
        if dtypes.is_float(e.dtype):
            return bounds
        low, high = dtypes.limits(e.dtype)
        return bounds if low <= bounds[0] and bounds[1] <= high else (low, high)

    def _of(self, e: Expr) -> _Bounds:
        match e:
            case Const(value=v):
                return v, v
            case Var():
                return self._axes[e]
            case Read(source=op, value_index=k):
                if (op, k) not in self._known:
                    self._known[op, k] = self._result(op, k)
                return self._known[op, k]
            case Cast(value=v, dtype=d):
                low, high = self.of(v)
                if dtypes.is_float(v.dtype) and dtypes.is_int(d):
                    return dtypes.truncate(low, d), dtypes.truncate(high, d)
                return low, high
            case Select(a=a, b=b) | IfThenElse(a=a, b=b):
                p, q = self.of(a), self.of(b)
                return min(p[0], q[0]), max(p[1], q[1])
            case Unary(op="-", a=a):
                low, high = self.of(a)
                return -high, -low
            case Binary(op=op, a=a, b=b):
                return _binary(op, a, b, self)
            case Call(fn="floor" | "ceil" | "trunc" | "round", args=(a,)):
                low, high = self.of(a)
                finite = math.isfinite(low) and math.isfinite(high)
                return (math.floor(low), math.ceil(high)) if finite else (low, high)
        raise _Unbounded

    def _result(self, op: int, output: int) -> _Bounds:
        node = self._dag.ops[op]
        if node.body is None:
            limits = dtypes.limits(node.dtype)
            return self._spans.get(op, (limits[0], limits[1]))
        if not isinstance(node.body, Reduce):
            return self.of(outputs_of(node.body)[output])
        r = node.body
        result = r.combiner.result[output]
        each = self.of(r.source[output])
        if any(
            isinstance(n, Call | Cast) or (isinstance(n, Binary) and n.op in "+-*/%")
            for n in nodes(result)
        ):
            if len(r.source) > 1 or not isinstance(result, Binary) or result.op != "+":
                raise _Unbounded
            terms = math.prod(a.count for a in r.axes)
            start = self.of(r.start[0])
            return min(0, terms * each[0]) + start[0], max(0, terms * each[1]) + start[1]
        return each  # one of the values: a maximum, a minimum, or where it is


def _binary(op: str, a: Expr, b: Expr, values: _Values) -> _Bounds:
    p, q = values.of(a), values.of(b)
    match op:
        case "+":
            return p[0] + q[0], p[1] + q[1]
        case "-":
            return p[0] - q[1], p[1] - q[0]
        case "min":
            return min(p[0], q[0]), min(p[1], q[1])
        case "max":
            return max(p[0], q[0]), max(p[1], q[1])
        case "*":
            return _corners([x * y for x in p for y in q])
        case "//" if q[0] > 0:
            return _corners([x // y for x in p for y in q])
        case "/" if q[0] > 0:
            return _corners([x / y for x in p for y in q])
        case "%" if q[0] > 0:
            return (p[0], p[1]) if p[0] >= 0 and p[1] < q[0] else (0, q[1] - 1)
        case "&" if q[0] >= 0:
            return 0, q[1]
    raise _Unbounded


def _corners(values: list[float]) -> _Bounds:
    if any(v != v for v in values):
        raise _Unbounded
    return min(values), max(values)


def _candidates(accesses: list[_Access]) -> list[int]:
    """Values worth trying: small ones, and those that stand in the indices or bound them."""
    near: set[int] = set()
    for access in accesses:
        near |= {access.extent, access.extent - 1, access.extent // 2}
        for e in nodes(access.place):
            if isinstance(e, Const) and math.isfinite(e.value) and abs(e.value) < 1 << 40:
                near.add(int(e.value))
    tried = {0, 1, *near, *(-n for n in near), *(n - 1 for n in near), *(1 - n for n in near)}
    return sorted(tried, key=lambda n: (abs(n), n < 0))


def _room(dtype: str) -> Span:
    if dtypes.is_float(dtype):
        most = 1 << SIGNIFICANT_BITS[dtype]
        return -most, most
    low, high = dtypes.limits(dtype)
    return int(low), int(high)


def _grow(
    dag: Dag, spans: dict[int, Span], accesses: list[_Access], rooms: Mapping[int, Span]
) -> None:
    """Widen the spans in turns, by ever smaller steps, up to twice the largest dimension."""
    most = 2 * max(a.extent for a in accesses)
    step = 1 << max(0, most.bit_length())
    while step:
        grown = False
        for p, (low, high) in list(spans.items()):
            least, largest = max(rooms[p][0], -most), min(rooms[p][1], most)
            for wider in ((low, high + step), (low - step, high)):
                current = spans[p]
                both = min(current[0], wider[0]), max(current[1], wider[1])
                fits = least <= both[0] and both[1] <= largest
                if fits and _broken(dag, accesses, {**spans, p: both}) is None:
                    spans[p], grown = both, True
        step = step if grown else step // 2
