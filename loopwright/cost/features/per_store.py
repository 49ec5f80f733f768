"""Store features: 164 numbers for each statement that stores, Ansor's (OSDI 2020).

The `STORES` stages with the most arithmetic stand side by side, the others are summed up: rows have
one length, where Ansor adds up predictions for each store. These expressions hold for a population:
loops of one iteration count for nothing, accesses keep the order of the expression, and the curve
has the last depth that fits instead of an interpolation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from loopwright import dtypes
from loopwright.cost.cpu.footprint import Touched
from loopwright.cost.features.feature import (
    Feature,
    FeatureType,
    ScheduleFigures,
    Slot,
    StageFigures,
)
from loopwright.cost.symbolic.loop_nest import NestLoop
from loopwright.cost.symbolic.symbols import Number, at_most, most, product, total, where
from loopwright.ir.expr import Binary, Call, Cast, IfThenElse, Read, Select, Unary
from loopwright.ir.node import Node
from loopwright.ir.reduction import outputs_of
from loopwright.te import OpNode

#: Stages with features of their own; accesses of a store; points of the curve.
STORES, ACCESSES, SAMPLES = 3, 5, 10

_KINDS = ("mad", "addsub", "mul", "divmod", "cmp", "math", "other")
_OF_BINARY = {"+": "addsub", "-": "addsub", "*": "mul"} | dict.fromkeys(
    ("/", "//", "%", "tdiv", "tmod"), "divmod"
)
_TESTS = ("<", "<=", ">", ">=", "==", "!=", "min", "max")
#: Counted operations of a statement, in words.
OPERATIONS = {
    **{f"float_{kind}": f"operations on floats: {kind}" for kind in _KINDS},
    **{f"int_{kind}": f"operations on integers: {kind}" for kind in _KINDS},
    "bool_op": "operations on truth values",
    "select_op": "choices between two values",
}
#: Position of the innermost loop with a mark among the loops of its kind.
POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


# -- what is computed -----------------------------------------------------------------------------


@cache
def operations(op: OpNode) -> Counter[str]:
    """Counts of `OPERATIONS` in one iteration of an operation's statement.

    A sum or difference of which one operand is a product is one multiply-add.
    """
    counts: Counter[str] = Counter()
    bodies = [] if op.body is None else outputs_of(op.body)
    for e in bodies:
        _count(e, counts)
    if op.body is None or op.reduction is None:
        return counts
    for e, body in zip(op.reduction.combiner.result, bodies, strict=True):
        before = counts.copy()
        _count(e, counts)
        kind = _number(e.dtype)
        if _is(e, "+") and _is(body, "*") and counts[f"{kind}_mul"]:
            counts = before + Counter({f"{kind}_mad": 1}) - Counter({f"{kind}_mul": 1})
    return counts


def _count(e: Node, counts: Counter[str]) -> None:
    match e:
        case Read():
            return
        case Binary(op="+" | "-", a=a, b=b, dtype=dtype) if _is(a, "*") or _is(b, "*"):
            counts[f"{_number(dtype)}_mad"] += 1
            factor, other = (a, b) if _is(a, "*") else (b, a)
            for part in (*factor.children(), other):
                _count(part, counts)
            return
        case Binary(op=op, a=a, dtype=dtype):
            if op in ("and", "or"):
                counts["bool_op"] += 1
            else:
                kind = "cmp" if op in _TESTS else _OF_BINARY.get(op, "other")
                counts[f"{_number(a.dtype if op in _TESTS else dtype)}_{kind}"] += 1
        case Unary(op=op, dtype=dtype):
            counts["bool_op" if op == "not" else f"{_number(dtype)}_addsub"] += 1
        case Call(dtype=dtype):
            counts[f"{_number(dtype)}_math"] += 1
        case Cast(dtype=dtype):
            counts[f"{_number(dtype)}_other"] += 1
        case Select() | IfThenElse():
            counts["select_op"] += 1
    for part in e.children():
        _count(part, counts)


def _is(e: Node, op: str) -> bool:
    return isinstance(e, Binary) and e.op == op


def _number(dtype: str) -> str:
    return "float" if dtypes.is_float(dtype) else "int"


# -- how loops are marked -------------------------------------------------------------------------


def _operations_in_all(s: StageFigures, kind: str) -> Number:
    return s.nest.iterations * operations(s.nest.op)[kind]


def _along(s: StageFigures, tag: str) -> Number:
    return product(x.extent for x in s.nest.loops if x.tag == tag)


def _marked(s: StageFigures, mark: str) -> list[NestLoop]:
    return [x for x in s.nest.loops if x.mark == mark]


def _of_mark(name: str, mark: str) -> Iterator[Feature[StageFigures]]:
    yield Feature(
        f"{name}_num",
        f"loops that are {mark}",
        lambda s: total(where(at_most(x.extent, 1), 0, 1) for x in _marked(s, mark)),
    )
    yield Feature(
        f"{name}_prod",
        f"iterations of {mark} loops",
        lambda s: product(x.extent for x in _marked(s, mark)),
    )
    yield Feature(
        f"{name}_len",
        f"iterations of the innermost {mark} loop",
        lambda s: next((x.extent for x in _marked(s, mark)[-1:]), 0),
    )
    for p in POSITIONS:
        words = f"place of the innermost {mark} loop: {p}"
        value = partial(_position, mark=mark, position=p)
        yield Feature(f"{name}_type.{p}", words, value, logged=False)


def _position(s: StageFigures, mark: str, position: str) -> int:
    loops = _marked(s, mark)
    if not loops:
        return int(position == "none")
    last = loops[-1]
    alike = [x.key for x in s.nest.loops if x.kind == last.kind]
    at = alike.index(last.key)
    where_ = "inner" if at == len(alike) - 1 else "middle" if at else "outer"
    return int(position == f"{where_}_{last.kind}")


# -- what is touched ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreAccess:
    stage: StageFigures
    access: Touched

    @property
    def writes(self) -> bool:
        return self.access.access.write

    @property
    def reads(self) -> bool:
        """Whether it reads: a load, or the store of a reduction."""
        return not self.writes or self.stage.nest.op.reduction is not None

    @property
    def bytes(self) -> Number:
        """Bytes of all its executions."""
        return self.stage.nest.iterations * self.access.access.buffer.itemsize

    @property
    def unique_bytes(self) -> Number:
        return self.access.elements[0] * self.access.access.buffer.itemsize

    @property
    def lines(self) -> Number:
        """Cache lines of all runs of the innermost loop."""
        depth = max(len(self.stage.nest.loops) - 1, 0)
        return self.access.lines[depth] * self.stage.touches.outer[depth]

    @property
    def unique_lines(self) -> Number:
        return self.access.lines[0]

    def _at_reuse(self, by_depth: Callable[[int], Number], otherwise: Number) -> Number:
        """Value at the innermost loop of more than one iteration that does not move it."""
        out = otherwise
        for depth, loop in enumerate(self.stage.nest.loops):
            if not self.access.moves[depth]:
                out = where(at_most(loop.extent, 1), out, by_depth(depth))
        return out

    @property
    def repeats(self) -> Number:
        """Iterations of the loop that uses the same data again; 0 without one."""
        return self._at_reuse(lambda d: self.stage.nest.loops[d].extent, 0)

    @property
    def made_here(self) -> bool:
        """Whether a stage of the program computes the loaded data."""
        return not self.writes and self.access.access.buffer.stage in self.stage.made

    @property
    def distance(self) -> Number:
        """Iterations between two uses of the same data, in its own loops where another stage made
        it; 0 where it is used once."""
        t = self.stage.touches
        own = t.inner[len(self.stage.nest.loops) - self.stage.nest.own]
        return self._at_reuse(lambda d: t.inner[d + 1], own if self.made_here else 0)

    @property
    def distance_bytes(self) -> Number:
        """Bytes of all accesses between two uses of the same data."""
        t = self.stage.touches
        own = t.bytes[len(self.stage.nest.loops) - self.stage.nest.own]
        return self._at_reuse(lambda d: t.bytes[d + 1], own if self.made_here else 0)

    def repeated(self, kind: str) -> int | Number:
        """1 for its kind of reuse: by a loop, by another statement, or none."""
        by_loop = where(at_most(self.repeats, 1), 0, 1)
        if kind == "loop":
            return by_loop
        other = self.made_here if kind == "serial" else not self.made_here
        return 1 - by_loop if other else 0

    def each(self, figure: Number) -> Number:
        """Value for each use of the same data; Ansor doubles it where there is one."""
        times = self.repeats
        return where(at_most(times, 1), figure * 2, figure / most(times, 1))

    @property
    def stride(self) -> Number:
        """Bytes from one iteration to the next of the innermost loop that moves it."""
        out: Number = 0
        for depth, loop in enumerate(self.stage.nest.loops):
            if self.access.moves[depth]:
                out = where(at_most(loop.extent, 1), out, self.access.strides[depth])
        return out


# -- operations for each byte, buffers, places ----------------------------------------------------


def _curve(s: StageFigures, sample: int) -> Number:
    """Operations per byte of the largest inner part of the loops with at most ``sample`` tenths of
    the iterations, as logarithms."""
    t = s.touches
    each = most(sum(operations(s.nest.op).values()), 1)
    limit = _power(t.inner[0], sample)
    out: Number = each / t.bytes[-1]
    for depth in range(len(s.nest.loops) - 1, -1, -1):
        fits = at_most(_power(t.inner[depth], SAMPLES), limit)
        out = where(fits, t.inner[depth] * each / t.bytes[depth], out)
    return out


def _power(x: Number, exponent: int) -> Number:
    return product([x * 1.0] * exponent)


def _allocation_count(s: StageFigures) -> Number:
    """Allocations of its buffer: iterations of the loops outside its lifetime."""
    within = s.touches.accesses[0].access.buffer.within
    return product(x.extent for x in s.nest.loops if x.key in within)


_COMPUTED: tuple[Feature[StageFigures], ...] = (
    *(Feature(k, words, partial(_operations_in_all, kind=k)) for k, words in OPERATIONS.items()),
    *_of_mark("vec", "vectorized"),
    *_of_mark("unroll", "unrolled"),
    *_of_mark("parallel", "parallel"),
    Feature("is_gpu", "runs in a kernel", lambda s: int(s.nest.kernel), logged=False),
    *(
        Feature(f"{tag.replace('.', '_')}_len", f"iterations of loops bound to {tag}",
                partial(_along, tag=tag))
        for tag in (*_AXES, "vthread")
    ),
)  # fmt: skip
_TOUCHED: tuple[Feature[StoreAccess], ...] = (
    Feature("type.read", "reads alone", lambda a: int(not a.writes), logged=False),
    Feature("type.write", "writes alone", lambda a: int(a.writes and not a.reads), logged=False),
    Feature("type.read_write", "reads and writes", lambda a: int(a.writes and a.reads),
            logged=False),
    Feature("bytes", "bytes of all executions", lambda a: a.bytes),
    Feature("unique_bytes", "different bytes", lambda a: a.unique_bytes),
    Feature("lines", "cache lines of all runs of the innermost loop", lambda a: a.lines),
    Feature("unique_lines", "different cache lines", lambda a: a.unique_lines),
    *(
        Feature(f"reuse.{kind}", words, partial(StoreAccess.repeated, kind=kind), logged=False)
        for kind, words in (
            ("loop", "a loop uses it again"),
            ("serial", "another statement made it, and no loop uses it again"),
            ("none", "it is used once"),
        )
    ),
    Feature("reuse_dis_iter", "iterations between two uses", lambda a: a.distance),
    Feature("reuse_dis_bytes", "bytes touched between two uses", lambda a: a.distance_bytes),
    Feature("reuse_ct", "uses by the innermost loop that uses it again", lambda a: a.repeats),
    Feature("bytes_d_reuse_ct", "bytes for each use", lambda a: a.each(a.bytes)),
    Feature("unique_bytes_d_reuse_ct", "different bytes for each use",
            lambda a: a.each(a.unique_bytes)),
    Feature("lines_d_reuse_ct", "lines for each use", lambda a: a.each(a.lines)),
    Feature("unique_lines_d_reuse_ct", "different lines for each use",
            lambda a: a.each(a.unique_lines)),
    Feature("stride", "bytes between two iterations of the loop that moves it", lambda a: a.stride),
)  # fmt: skip
_PLACED: tuple[Feature[StageFigures], ...] = (
    *(
        Feature(f"arith_intensity_curve_{k}",
                f"operations for each byte within {k + 1} tenths of the iterations, as logarithms",
                partial(_curve, sample=k + 1))
        for k in range(SAMPLES)
    ),
    Feature("alloc_size", "bytes of its buffer", lambda s: s.buffer_bytes),
    Feature("alloc_prod", "bytes of its buffer, every time",
            lambda s: s.buffer_bytes * _allocation_count(s)),
    Feature("alloc_outer_prod", "how often its buffer is made", _allocation_count),
    Feature("alloc_inner_prod", "iterations while its buffer is there",
            lambda s: s.nest.iterations / _allocation_count(s)),
    Feature("outer_prod", "iterations of its statement", lambda s: s.nest.iterations),
    Feature("num_loops", "loops around its statement", lambda s: len(s.nest.loops)),
    Feature("auto_unroll_max_step", "largest body that is unrolled by itself",
            lambda s: max((v for _, key, v in s.nest.stage.pragmas
                           if key == "auto_unroll_max_step" and isinstance(v, int)), default=0)),
)  # fmt: skip


def _of_access(number: int, feature: Feature[StoreAccess]) -> Feature[StageFigures]:
    """Feature of the access with that number, 0 where a stage has fewer."""

    def value(s: StageFigures) -> Number:
        accesses = s.touches.accesses
        return feature.value(StoreAccess(s, accesses[number])) if number < len(accesses) else 0

    name = f"B{number}.{feature.name}"
    place = f"load {number}" if number else "store"
    return Feature(name, f"{place}: {feature.meaning}", value, feature.logged)


#: The 164 features of one store.
STORE: tuple[Feature[StageFigures], ...] = (
    *_COMPUTED,
    *(_of_access(number, f) for number in range(ACCESSES) for f in _TOUCHED),
    *_PLACED,
)


def _summed(feature: Feature[StageFigures]) -> Feature[Sequence[StageFigures]]:
    name, meaning, value = feature.name, feature.meaning, feature.value
    return Feature(name, meaning, lambda stages: total(map(value, stages)), feature.logged)


FEATURES = FeatureType(
    [
        *(
            Slot(f"store{k}", f"store {k + 1} by arithmetic", STORE,
                 partial(ScheduleFigures.stage, number=k))
            for k in range(STORES)
        ),
        Slot("others", "all other stores together", tuple(map(_summed, STORE)),
             lambda p: p.stages[STORES:]),
    ]
)  # fmt: skip
