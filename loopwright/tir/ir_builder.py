"""TVM's ``tir.ir_builder``: statements written by hand, with TVM's forms of loops and stores.

It writes the bodies of tensor intrinsics. `loopwright.te.IRBuilder` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, ExprLike
from loopwright.ir.stmt import Stmt
from loopwright.te import BufferView
from loopwright.te import IRBuilder as Statements
from loopwright.te.tensor import DimLike, ShapeLike, whole

_Kind = Literal["serial", "vectorized", "unrolled"]
#: The kinds of loops under TVM's names of several versions.
_KINDS: dict[str, _Kind] = {
    "serial": "serial",
    "unroll": "unrolled",
    "unrolled": "unrolled",
    "vectorize": "vectorized",
    "vectorized": "vectorized",
}


class BufferVar:
    """A buffer whose elements are read by ``b[i]`` and written by ``b[i] = value``.

    One index into several dimensions counts the elements row by row.
    """

    def __init__(self, builder: IRBuilder, view: BufferView) -> None:
        self._builder, self._view = builder, view

    @property
    def buffer(self) -> Buffer:
        """The buffer of the loop IR."""
        return self._view.buffer

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self._view.shape

    @property
    def dtype(self) -> str:
        """Type of an element."""
        return self._view.dtype

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        return self._view[self._at(indices)]

    def __setitem__(self, indices: ExprLike | tuple[ExprLike, ...], value: ExprLike) -> None:
        self._builder.emit(self._view.store(self._at(indices), value))

    def _at(self, indices: ExprLike | tuple[ExprLike, ...]) -> ExprLike | tuple[ExprLike, ...]:
        """The indices by dimension."""
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != 1 or len(self.shape) == 1:
            return indices
        rest, at = given[0], list[ExprLike]()
        for extent in reversed(self.shape[1:]):
            at.append(rest % extent)
            rest = rest // extent
        return (rest, *reversed(at))

    def __repr__(self) -> str:
        return f"BufferVar({self._view.name}: {self.dtype}{list(self.shape)})"


class IRBuilder:
    """Collects statements, one after the other, in loops and branches; made by `create`.

    Example:
        >>> from loopwright import te, tir
        >>> x = te.placeholder((8,), name="x")
        >>> y = te.compute((8,), lambda i: x[i] + 1.0, name="y")
        >>> def add_one(ins, outs):
        ...     ib = tir.ir_builder.create()
        ...     source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        ...     with ib.for_range(0, 8, "i", kind="vectorize") as i:
        ...         target[i] = source[i] + 1.0
        ...     return ib.get()
        >>> te.decl_tensor_intrin(y.op, add_one, name="add_one")
        TensorIntrin(add_one)
    """

    def __init__(self) -> None:
        self._statements = Statements()
        # Allocations to be closed with each open scope, the innermost scope last.
        self._scopes = [ExitStack()]

    def emit(self, stmt: Stmt) -> None:
        """Add a statement.

        Raises:
            TensorError: it is none.
        """
        self._statements.emit(stmt)

    @contextmanager
    def for_range(
        self,
        begin: DimLike,
        end: DimLike,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
    ) -> Iterator[Expr]:
        """A loop ``for name in range(begin, end)`` around what is added inside.

        Args:
            begin: the first value, a whole number.
            end: the value behind the last one, a whole number.
            name: printed name.
            dtype: accepted for TVM's sake: loops count in int32.
            kind: ``"serial"``, ``"vectorize"`` or ``"unroll"``.

        Raises:
            TensorError: there is no iteration, a bound is no number, or the kind is another one.
        """
        first, last = whole(begin), whole(end)
        if first is None or last is None:
            raise TensorError(
                f"for_range {name!r}: the bounds are whole numbers, got {begin!r}, {end!r}"
            )
        if kind not in _KINDS:
            raise TensorError(
                f"for_range {name!r}: unknown kind {kind!r}{did_you_mean(kind, _KINDS)}; use "
                "serial, vectorize or unroll (what runs in parallel is the schedule's to say)"
            )
        with self._statements.for_range(last - first, name, _KINDS[kind]) as var, self._scope():
            yield var + first if first else var

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """Run what is added inside where ``cond`` holds."""
        with self._statements.if_scope(cond), self._scope():
            yield

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Run what is added inside where the condition of the ``if_scope`` before does not hold.

        Raises:
            TensorError: there is no ``if_scope`` before it.
        """
        with self._statements.else_scope(), self._scope():
            yield

    def allocate(
        self, dtype: str, shape: ShapeLike, name: str = "buf", scope: str = ""
    ) -> BufferVar:
        """A buffer of the body's own, which exists until the scope ends in which it was asked for.

        Args:
            dtype: type of an element.
            shape: extents, numbers.
            name: printed name.
            scope: ``""``, ``"local"`` or ``"global"``; all are the caller's stack or workspace.

        Raises:
            TensorError: another scope, or an extent that is no positive number.
        """
        if scope not in ("", "local", "global"):
            raise TensorError(f"allocate {name!r}: scope={scope!r} is not there; leave it out")
        view = self._scopes[-1].enter_context(self._statements.allocate(shape, dtype, name))
        return BufferVar(self, view)

    def buffer_ptr(self, buf: BufferView) -> BufferVar:
        """An operand of the intrinsic, to be read and written by index."""
        return BufferVar(self, buf)

    def likely(self, expr: Expr) -> Expr:
        """The condition itself; TVM marks it as a hint."""
        return expr

    def get(self) -> Stmt:
        """All statements that were added.

        Raises:
            TensorError: a loop is still open.
        """
        if len(self._scopes) == 1:
            self._scopes[0].close()
        return self._statements.get()

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """End the life of what is allocated inside with the block."""
        with ExitStack() as own:
            self._scopes.append(own)
            try:
                yield
            finally:
                self._scopes.pop()


def create() -> IRBuilder:
    """A new builder, as ``tvm.tir.ir_builder.create`` makes one."""
    return IRBuilder()


__all__ = ["BufferVar", "IRBuilder", "create"]
