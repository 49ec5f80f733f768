"""An intrinsic in place of a nest: places of its operands, and its statements over these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from loopwright.ir.affine import Affine, form_expr, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Dim, Expr, Var, binary
from loopwright.ir.stmt import Stmt, Store
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.values import Values
from loopwright.lowering.nest.warp_operands import warp_statement
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.primitives.tensorize import IntrinsicMatch, match_intrinsic, refuse_match
from loopwright.te.tensor_intrin import TensorIntrin

_COPY = "copy it to lie so (cache_read inside the loops around, transform_layout)"


@dataclass(frozen=True, eq=False)
class _Operand:
    """Place of an operand in a buffer."""

    buffer: Buffer
    first: tuple[Expr, ...]  #: indices of its first element
    #: Indices to add for one more in a dimension; None where the operand has one element there.
    steps: tuple[tuple[int, ...] | None, ...]

    def element(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        out = list(self.first)
        moves = [
            (q, i, step)
            for i, steps in zip(indices, self.steps, strict=True)
            for q, step in enumerate(steps or ())
            if step
        ]
        for q, i, step in moves:
            out[q] = binary("+", out[q], binary("*", i, step))
        return tuple(out)


class Tensorization:
    def __init__(self, buffers: Buffers, sb: StageBounds) -> None:
        tensorized = sb.stage.tensorized
        assert tensorized is not None
        self.b, self.sb = buffers, sb
        self.intrin: TensorIntrin = tensorized.intrin
        #: The axes and reads of the stage that are those of the intrinsic.
        self.match: IntrinsicMatch = match_intrinsic(buffers.state, sb)
        #: Index of the tensorized loop.
        self.position = self.match.position

    def operate(self, part: Stmt, values: Values) -> Stmt:
        """A body of the intrinsic over the buffers of the stage; it tests no guard."""
        tested = set(values.guards.tested)
        if self.intrin.of_warp:
            out = warp_statement(self.b, self.sb, self.match, part)
            values.guards.tested = tested
            return out
        reads = {k: values.load_of(r) for k, r in self.match.reads.items()}
        values.guards.tested = tested
        return self.statement(part, values.own_element(), reads)

    def refuse_guard(self) -> NoReturn:
        """Refuse a tile of which only some elements exist, for an intrinsic of a warp."""
        self._fail(
            "a guard is tested inside of it, and the lanes of a warp run it for whole tiles only; "
            "pad the tensors to multiples of the tile in a stage of their own"
        )

    def statement(self, part: Stmt, own: tuple[Expr, ...], reads: dict[int, Load]) -> Stmt:
        """A body of the intrinsic over the buffers of the program; ``own`` are the indices of the
        stage's element, ``reads`` its loads for each input of the description."""
        operands: dict[Buffer, _Operand] = {}
        dag = self.intrin.dag
        for k, (param, op) in enumerate(zip(self.intrin.params, dag.ops, strict=True)):
            if op.body is not None:
                buffer, indices = self.b.of[self.sb.stage.id][0], own
                described: list[Expr] = [a.var for a in op.axes]
            else:
                buffer, indices = reads[k].buffer, reads[k].indices
                described = list(self._described(k))
            operands[param] = self._operand(k, buffer, indices, described)

        # Any: an expression gives an expression and a statement a statement.
        def go(n: Any) -> Any:
            n = n.map_children(go)
            if isinstance(n, Load) and n.buffer in operands:
                x = operands[n.buffer]
                return Load(x.buffer, x.element(n.indices), n.dtype)
            if isinstance(n, Store) and n.buffer in operands:
                x = operands[n.buffer]
                return Store(x.buffer, x.element(n.indices), n.value)
            return n

        out: Stmt = go(part)
        return out

    def _described(self, k: int) -> tuple[Expr, ...]:
        """The indices at which the description reads an input."""
        return next(r.indices for r in self.intrin.op.reads() if r.source == k)

    def _operand(
        self, k: int, buffer: Buffer, indices: tuple[Expr, ...], described: Sequence[Expr]
    ) -> _Operand:
        """Place of operand ``k``.

        The stage touches the element ``indices`` of ``buffer`` where the description touches the
        operand at ``described``.
        """
        name = self.intrin.dag.ops[k].name
        inner = {v for a in self.match.axes.values() if a for v in a.weights}
        forms: list[Affine] = []
        for q, i in enumerate(indices):
            form = to_affine(i, {}, self.b.bounds.ranges)
            if form is None:
                self._fail(
                    f"operand {name!r}: index {q} of {buffer.name!r} is no sum of multiples of "
                    f"loops; {_COPY}"
                )
            forms.append(form)
        steps = {v: self._steps(name, forms, v, buffer) for v in self.match.axes}
        self._compare(k, buffer, described, steps)
        outer = [
            Affine(f.const, {v: c for v, c in f.terms.items() if v not in inner}) for f in forms
        ]
        first = tuple(form_expr(f, self.b.bounds.ranges) for f in outer)
        by_dimension = tuple(steps[i] if isinstance(i, Var) else None for i in described)
        return _Operand(buffer, first, by_dimension)

    def _steps(
        self, name: str, forms: Sequence[Affine], v: Var, buffer: Buffer
    ) -> tuple[int, ...] | None:
        """Indices to add for one more of an axis of the description."""
        axis = self.match.axes[v]
        if axis is None:
            return None
        ((one, _),) = [(x, w) for x, w in axis.weights.items() if w == 1]
        out = tuple(f.terms.get(one, 0) for f in forms)
        for x, w in axis.weights.items():
            if tuple(f.terms.get(x, 0) for f in forms) != tuple(n * w for n in out):
                self._fail(
                    f"operand {name!r}: along axis {axis.axis.name!r} the elements of "
                    f"{buffer.name!r} do not lie at one distance; {_COPY}"
                )
        return out

    def _compare(
        self,
        k: int,
        buffer: Buffer,
        described: Sequence[Expr],
        steps: Mapping[Var, tuple[int, ...] | None],
    ) -> None:
        """Compare distances in memory with the strides that the intrinsic wants."""
        name, wanted = self.intrin.dag.ops[k].name, self.intrin.strides[k]
        shape = buffer.shape
        own: tuple[int | None, ...] | None = buffer.strides
        own = own or tuple(_elements(shape[q + 1 :]) for q in range(len(shape)))
        for v, by in steps.items():
            axis = self.match.axes[v]
            if axis is None or by is None:
                continue
            distance = _distance(by, own)
            dims = [d for d, i in enumerate(described) if i is v]
            if not dims and distance != 0:
                self._fail(
                    f"operand {name!r} is the same along axis {v.name!r} of the intrinsic; "
                    f"{buffer.name!r} is read at steps of {_shown(distance)} along "
                    f"{axis.axis.name!r}; declare an intrinsic that reads it so"
                )
            if dims and wanted[dims[0]] not in (None, distance):
                self._fail(
                    f"operand {name!r}, dimension {dims[0]}: the intrinsic wants a stride of "
                    f"{wanted[dims[0]]}, {buffer.name!r} has {_shown(distance)} along "
                    f"{axis.axis.name!r}; {_COPY}, or declare the operand with another stride "
                    "(None: any)"
                )

    def _fail(self, text: str) -> NoReturn:
        refuse_match(self.b.state, self.sb.stage, text)


def _elements(shape: Sequence[Dim]) -> int | None:
    """Elements of a shape; None where that is known only when the program runs."""
    numbers = [n for n in shape if isinstance(n, int)]
    return prod(numbers) if len(numbers) == len(shape) else None


def _distance(by: Sequence[int], strides: Sequence[int | None]) -> int | None:
    """Elements between two places whose indices differ ``by`` so much; None where that is known
    only when the program runs."""
    out = 0
    for step, stride in zip(by, strides, strict=True):
        if step and stride is None:
            return None
        out += step * (stride or 0)
    return out


def _shown(distance: int | None) -> str:
    return "one known only when the program runs" if distance is None else str(distance)
