"""A module of symbolic size, merged from two modules that were traced with different sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, Tuple, TupleGetItem, Var
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.types import TensorType
from loopwright.graph.ir.visitor import called, post_order, rewrite_each
from loopwright.ir.sizes import SizeVar

#: Nodes over children alone.
_PLAIN = (Function, Tuple, TupleGetItem)


@dataclass
class Generalised:
    """A module of symbolic size."""

    module: IRModule  # the second module, with a size variable in the types of its parameters
    size: SizeVar
    numbers: tuple[int, int]  # the value of the size in the two modules
    #: how extents depend on the size; a third module of equal pattern is this one for a number
    pattern: tuple[object, ...]


def generalised(first: IRModule, second: IRModule) -> Generalised:
    """Merge modules of two sizes into one of any size; ``main`` has to be a straight program.

    The first extent of an input that differs is the size; others are a multiple of it plus a
    number.
    """
    mains = first[MAIN], second[MAIN]
    nodes, others = map(post_order, mains)
    if len(nodes) != len(others):
        raise GraphError("modules of two sizes have other numbers of nodes")
    extents = zip(*(_extents(main.params) for main in mains), strict=True)
    one, other = next(((a, b) for a, b in extents if a != b), (0, 0))
    if one == other:
        raise GraphError("modules of two sizes have inputs of the same extents")
    pairs = dict(zip(others, nodes, strict=True))
    pairing = _Pairing(te.size_var("size"), one, other, pairs)
    main = rewrite_each(mains[1], pairing.merged)
    assert isinstance(main, Function)
    return Generalised(IRModule({MAIN: main}), pairing.size, (one, other), tuple(pairing.pattern))


def _extents(params: Sequence[Var]) -> list[Any]:
    return [n for p in params if isinstance(p.type, TensorType) for n in p.type.shape]


@dataclass
class _Pairing:
    """Maps nodes of the second module to those of the first."""

    size: SizeVar
    one: int
    other: int
    nodes: Mapping[Expr, Expr]
    pattern: list[object] = field(default_factory=list)

    def merged(self, e: Expr, rebuilt: Expr) -> Expr:
        """A node of the second module over merged children, with the variable in its extents."""
        twin = self.nodes[e]
        same = type(e) is type(twin) and [self.nodes[c] for c in e.children] == [*twin.children]
        match rebuilt, twin:
            case (Var(type=TensorType() as b), Var(type=TensorType() as a)) if (
                b.dtype == a.dtype and len(b.shape) == len(a.shape)
            ):
                shape = tuple(map(self._extent, a.shape, b.shape))
                return replace(rebuilt, type=TensorType(shape, b.dtype))
            case Constant(), Constant() if _equal(rebuilt.data, twin.data):
                return rebuilt
            case Call(), Call() if same and called(e) == called(twin) and called(e) is not None:
                return replace(rebuilt, attrs=self._attrs(e, rebuilt.attrs, twin.attrs))
            case OpRef(name=name), OpRef(name=known) if name == known:
                return rebuilt
            case _ if same and isinstance(e, _PLAIN):
                if getattr(e, "index", None) == getattr(twin, "index", None):
                    return rebuilt
        raise GraphError(f"a {type(e).__name__} {e.span} depends on the size by more than extents")

    def _extent(self, a: Any, b: Any) -> Any:
        factor, rest = divmod(b - a, self.other - self.one) if a != b else (0, 0)
        more = a - factor * self.one
        if rest or factor < 0 or more < 0:
            raise GraphError(f"extents {a} and {b} are no multiple of the size and a number more")
        self.pattern.append((factor, more))
        return self.size * factor + more if factor else more

    def _attrs(self, e: Expr, attrs: Mapping[str, Any], twin: Mapping[str, Any]) -> dict[str, Any]:
        merged = dict(attrs)
        for name in {*attrs, *twin}:
            if attrs.get(name) == twin.get(name):
                continue
            where = _differences(attrs.get(name), twin.get(name))
            if (called(e), name) != ("reshape", "newshape") or len(where) != 1:
                raise GraphError(f"{e.span or called(e)} depends on the size by its {name}")
            self.pattern.append(tuple(where))
            merged[name] = [-1 if n in where else extent for n, extent in enumerate(attrs[name])]
        return merged


def _differences(a: Any, b: Any) -> list[int]:
    """Positions at which two shapes differ; none where a -1 could not stand for the size."""
    if len(a) != len(b) or -1 in (*a, *b):
        return []
    return [n for n, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]]


def _equal(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits; they are often the same object."""
    if a.__array_interface__ == b.__array_interface__:
        return True
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(_bits(a), _bits(b)))


def _bits(a: Any) -> Any:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)
