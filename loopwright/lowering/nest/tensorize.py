"""An intrinsic in place of a nest: places of its operands, and its statements over these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn

from loopwright import dtypes
from loopwright.ir.affine import Affine, form_expr, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Const, Dim, Expr, Read, Var, binary
from loopwright.ir.instructions import INSTRUCTIONS, Fragment, FragmentDigit, Operand
from loopwright.ir.kinds import SHARED
from loopwright.ir.node import Node
from loopwright.ir.stmt import IntrinsicCall, Seq, Stmt, Store, seq
from loopwright.ir.visitor import map_nodes
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.values import StageValues
from loopwright.schedule import (
    IntrinsicMatch,
    LayoutDim,
    StageBounds,
    StageId,
    is_digit,
    layout_text,
    match_intrinsic,
    refuse_match,
)
from loopwright.te import TensorIntrin

# ---------------------------------------------------------------- operands of warp instructions
#
# The operands of intrinsics of a warp: tiles in registers of its lanes, and in shared memory. A
# tile in registers begins at a multiple of itself; the layout of its buffer gives the registers of
# lane 0 and is compared, digit by digit, with what the instruction wants.

#: Bytes of a row that one lane reads at once, to which rows are aligned.
_ROW_BYTES = 16


class _WarpOperands:
    def __init__(self, buffers: Buffers, sb: StageBounds, match: IntrinsicMatch) -> None:
        assert sb.stage.tensorized is not None
        assert sb.kernel is not None
        self.b, self.sb, self.match = buffers, sb, match
        self.intrin = sb.stage.tensorized.intrin
        self.lane = sb.kernel.launches["threadIdx.x"].var
        self.params = {p: k for k, p in enumerate(self.intrin.params)}

    def fail(self, text: str) -> NoReturn:
        refuse_match(self.b.state, self.sb.stage, text)

    def statement(self, part: Stmt) -> Stmt:
        if isinstance(part, Seq):
            return seq(*map(self.statement, part.stmts))
        if not isinstance(part, IntrinsicCall):
            self.fail("the body of an intrinsic of a warp consists of instructions of a warp")
        instruction = INSTRUCTIONS[part.name]
        assert instruction.lanes is not None, "an instruction of a warp"
        loads = [
            self.operand(want, load)
            for want, load in zip(instruction.operands, part.operands, strict=True)
        ]
        return IntrinsicCall(part.name, tuple(loads), instruction.lanes(loads, self.lane))

    def operand(self, want: Operand, load: Load) -> Load:
        """First element of an operand: for fragments in the registers of lane 0."""
        k = self.params[load.buffer]
        op = self.intrin.dag.ops[k]
        if op.body is not None:
            source, index = self.sb.stage.id, 0
            forms = [self.sb.values[a.var] for a in self.sb.op.axes]
            described: Sequence[Expr] = [a.var for a in op.axes]
        else:
            read = self.match.reads[k]
            source, index = read.source, read.value_index
            forms = self.forms(want, read)
            described = next(r.indices for r in self.intrin.op.reads() if r.source == k)
        first = self.first(want, forms, described, load.indices)
        buffer = self.b.of[source][index]
        at = self.b.element(source, list(first))
        self.check_place(want, source, first)
        if want.fragment is None:
            self.check_rows(want, Load(buffer, at, buffer.dtype))
        else:
            self.check_layout(want, want.fragment, source)
        return Load(buffer, at, buffer.dtype)

    def forms(self, want: Operand, read: Read) -> list[Affine]:
        out = []
        for i in read.indices:
            form = to_affine(i, self.sb.values, self.b.bounds.ranges)
            if form is None:
                self.fail(f"operand {want.name!r}: an index of it is no sum of multiples of loops")
            out.append(form)
        return out

    def first(
        self, want: Operand, forms: list[Affine], described: Sequence[Expr], begins: Sequence[Expr]
    ) -> list[Affine]:
        """Indices of the first element of the tile: loops inside the intrinsic stand at 0."""
        # The last two dimensions of the tensor must be those of the tile, in order.
        inner = {v: (d, w) for d, v, w in self.weights(described)}
        out = []
        for q, form in enumerate(forms):
            d = q - (len(forms) - 2)
            moved = {v: c for v, c in form.terms.items() if v in inner}
            if moved != {v: w for v, (e, w) in inner.items() if e == d}:
                self.fail(
                    f"operand {want.name!r}: its rows and columns are not the last two dimensions "
                    f"of what it reads as {want.name!r}; transpose it in a stage of its own"
                )
            outer = {v: c for v, c in form.terms.items() if v not in inner}
            begin = begins[d] if d >= 0 else None
            offset = int(begin.value) if isinstance(begin, Const) else 0
            out.append(Affine(form.const + offset, outer))
        return out

    def weights(self, described: Sequence[Expr]) -> list[tuple[int, Var, int]]:
        """For each loop inside the intrinsic the dimension of the operand that it moves along."""
        out = []
        for v, axis in self.match.axes.items():
            dims = [d for d, i in enumerate(described) if i is v]
            for loop, weight in (axis.weights if axis is not None else {}).items():
                out += [(d, loop, weight) for d in dims]
        return out

    def check_place(self, want: Operand, source: StageId, first: Sequence[Affine]) -> None:
        """A tile begins at a multiple of itself, in memory of the right scope."""
        sb = self.b.bounds.stages.get(source)
        scopes = ("warp",) if want.fragment is not None else SHARED
        if sb is None or sb.scope not in scopes:
            has = "global" if sb is None else sb.scope
            self.fail(
                f"operand {want.name!r} must lie in {' or '.join(scopes)} memory, and "
                f"{self.b.state.label(source)!r} is {has}; cache_read it there"
            )
        tile = (1, _ROW_BYTES // dtypes.nbytes(want.dtype)) if want.fragment is None else want.shape
        for extent, form, base in zip(tile, first[-2:], sb.base[-2:], strict=True):
            local = form - base
            if any(c % extent for c in (local.const, *local.terms.values())):
                self.fail(
                    f"operand {want.name!r} of {self.b.state.label(source)!r} does not begin at a "
                    f"multiple of {extent} elements; split its loops by multiples of the tile"
                )

    def check_rows(self, want: Operand, first: Load) -> None:
        """Rows in memory begin at multiples of 16 bytes, without gaps between their elements."""
        b = first.buffer
        step = _ROW_BYTES // dtypes.nbytes(want.dtype)
        strides = b.strides or tuple(prod(b.extents[k + 1 :]) for k in range(len(b.extents)))
        source = next(sid for sid, bs in self.b.of.items() if b in bs)
        if self.b.bounds.stages[source].stage.layout is not None:
            self.fail(f"operand {want.name!r}: {b.name!r} has a layout of its own; leave it out")
        if strides[-1] != 1 or any(n % step for n in strides[:-1]):
            self.fail(
                f"operand {want.name!r}: the rows of {b.name!r} are {list(strides)} elements "
                f"apart, and must begin at multiples of {step}; storage_align can do that"
            )

    def check_layout(self, want: Operand, fragment: Fragment, source: StageId) -> None:
        """The buffer holds elements in the registers in which the instruction wants them."""
        sb = self.b.bounds.stages[source]
        layout = sb.stage.layout or ()
        ndim, n = len(sb.op.shape), len(fragment.registers)
        wanted = [*fragment.lane, *fragment.registers]
        fits = len(layout) >= n + 2 and all(map(is_digit, layout)) and not sb.stage.align
        pairs = zip([*layout[:2], *layout[-n:]], wanted, strict=True) if fits else ()
        fits = fits and all(_is(x, y, ndim, k == 2) for k, (x, y) in enumerate(pairs))
        fits = fits and all(_counts_tiles(x, want.shape, ndim) for x in layout[2:-n])
        if not fits:
            has = f"({layout_text(layout)})" if layout else "none"
            self.fail(
                f"operand {want.name!r}: the layout of {self.b.state.label(source)!r}, {has}, does "
                "not put its tiles into the registers of the lanes as the instruction wants; call "
                "transform_layout with te.intrinsics.fragment_layout"
            )


def _is(have: LayoutDim, need: FragmentDigit, ndim: int, first: bool) -> bool:
    # The first register may count further than a tile, as one tile may follow another there.
    assert is_digit(have)
    dim, div, mod = have
    which, wanted_div, wanted_mod = need
    same = (dim - (ndim - 2), div) == (which, wanted_div)
    return same and (mod == wanted_mod or (first and (mod is None or mod % wanted_mod == 0)))


def _counts_tiles(x: LayoutDim, tile: Sequence[int], ndim: int) -> bool:
    """Whether a dimension of a layout is the same for all elements of a tile."""
    assert is_digit(x)
    dim, div, _ = x
    which = dim - (ndim - 2)
    return which < 0 or div % tile[which] == 0


_COPY = "copy it to lie so (cache_read inside the loops around, transform_layout)"


@dataclass(frozen=True, eq=False)
class _Operand:
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

    def operate(self, part: Stmt, values: StageValues) -> Stmt:
        """A body of the intrinsic over the buffers of the stage; it tests no guard."""
        tested = set(values.guards.tested)
        if self.intrin.of_warp:
            out = _WarpOperands(self.b, self.sb, self.match).statement(part)
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
                described = list(next(r.indices for r in self.intrin.op.reads() if r.source == k))
            operands[param] = self._operand(k, buffer, indices, described)

        def change(n: Node) -> Node:
            if not isinstance(n, Load | Store) or n.buffer not in operands:
                return n
            x = operands[n.buffer]
            at = x.element(n.indices)
            if isinstance(n, Load):
                return Load(x.buffer, at, n.dtype)
            return Store(x.buffer, at, n.value)

        return map_nodes(part, Node, change)

    def _operand(
        self, k: int, buffer: Buffer, indices: tuple[Expr, ...], described: Sequence[Expr]
    ) -> _Operand:
        """Place of operand ``k``. The stage touches the element ``indices`` of ``buffer`` where the
        description touches the operand at ``described``."""
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
