"""The operands of intrinsics of a warp: tiles in registers of its lanes, and in shared memory. A
tile in registers begins at a multiple of itself; the layout of its buffer gives the registers of
lane 0 and is compared, digit by digit, with what the instruction wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from loopwright import dtypes
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Const, Expr, Read, Var
from loopwright.ir.instruction_type import Fragment, FragmentDigit, Operand
from loopwright.ir.instructions import INSTRUCTIONS
from loopwright.ir.kinds import SHARED
from loopwright.ir.stmt import IntrinsicCall, Seq, Stmt, seq
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.primitives.layout import is_digit, layout_text
from loopwright.schedule.primitives.tensorize import IntrinsicMatch, refuse_match
from loopwright.schedule.state import LayoutDim, StageId

#: Bytes of a row that one lane reads at once, to which rows are aligned.
_ROW_BYTES = 16


def warp_statement(buffers: Buffers, sb: StageBounds, match: IntrinsicMatch, part: Stmt) -> Stmt:
    """A body (reset or update) of an intrinsic of a warp over the buffers of the program."""
    return _WarpOperands(buffers, sb, match).statement(part)


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
        """The instructions of a body over the program's buffers, as what each lane does."""
        if isinstance(part, Seq):
            return seq(*map(self.statement, part.stmts))
        if not isinstance(part, IntrinsicCall):
            self.fail("the body of an intrinsic of a warp consists of instructions of a warp")
        instruction = INSTRUCTIONS[part.name]
        assert instruction.lanes is not None, "an instruction of a warp"
        loads = [
            self.operand(want, given)
            for want, given in zip(instruction.operands, part.operands, strict=True)
        ]
        return IntrinsicCall(part.name, tuple(loads), instruction.lanes(loads, self.lane))

    def operand(self, want: Operand, given: Load) -> Load:
        """First element of an operand: for fragments in the registers of lane 0."""
        k = self.params[given.buffer]
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
        first = self.first(want, forms, described, given.indices)
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
        self,
        want: Operand,
        forms: Sequence[Affine],
        described: Sequence[Expr],
        begins: Sequence[Expr],
    ) -> list[Affine]:
        """Indices of the first element of the tile: loops inside the intrinsic stand at 0.

        The last two dimensions of the tensor must be those of the tile, in order.
        """
        inner = {v: (d, w) for d, v, w in self.weights(described)}
        out = []
        for q, form in enumerate(forms):
            d = q - (len(forms) - 2)
            moved = {v: c for v, c in form.terms.items() if v in inner}
            wanted = {v: w for v, (e, w) in inner.items() if e == d}
            if moved != wanted:
                self.fail(
                    f"operand {want.name!r}: its rows and columns are not the last two dimensions "
                    f"of {self.label(want)}; transpose it in a stage of its own"
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

    def label(self, want: Operand) -> str:
        return f"what it reads as {want.name!r}"

    # ------------------------------------------------------------ where it lies

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
        tile = want.shape if want.fragment is not None else (1, _ROW_BYTES // _size(want))
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
        step = _ROW_BYTES // _size(want)
        strides = b.strides or tuple(_compact(b.extents))
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
        digits = [*layout[:2], *layout[-n:]]
        pairs = zip(digits, wanted, strict=True) if fits else ()
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
    """Whether a dimension of a layout is a digit of a fragment.

    The first register may count further than a tile, as one tile may follow another there.
    """
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


def _size(x: Operand) -> int:
    return dtypes.nbytes(x.dtype)


def _compact(shape: Sequence[int]) -> list[int]:
    out = [1]
    for n in reversed(shape[1:]):
        out.insert(0, out[0] * n)
    return out
