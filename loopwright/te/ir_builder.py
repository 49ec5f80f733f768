"""Statements written by hand, for the bodies of tensor intrinsics.

The function of an intrinsic gets a `BufferView` for each operand and returns statements: those of
`BufferView.store` and `call_intrin`, or loops around several of them, built by an `IRBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, ExprLike, Var, as_expr, cast, tracing
from loopwright.ir.instructions import call_instruction
from loopwright.ir.stmt import Allocate, For, If, IntrinsicCall, Stmt, Store, seq
from loopwright.te.math import condition
from loopwright.te.tensor import ShapeLike, shape_of, static_shape

#: Kinds of loops that a body may have.
_BodyLoop = Literal["serial", "vectorized", "unrolled"]
_KINDS: tuple[_BodyLoop, ...] = get_args(_BodyLoop)

#: Attributes that operands have in TVM and not here, with replacements.
_INSTEAD = {
    "access_ptr": "no code of other languages is called; write the statements over its elements",
    "data": "no code of other languages is called; write the statements over its elements",
    "elem_offset": "indices count from where the operand begins",
    "strides": "indices are those of the operand, whose strides te.decl_buffer said",
    "vload": "read the elements, b[i], in a loop of kind 'vectorized', or call te.call_intrin",
    "vstore": "store the elements, b.store(i, x), in a loop of kind 'vectorized', or call "
    "te.call_intrin",
}


class BufferView:
    """A buffer in a body that is being written: ``a[i, k]`` is an element.

    Attributes:
        name, shape, dtype: of the buffer; extents are outermost first.

    Example:
        >>> ib = te.ir_builder()
        >>> with ib.allocate((4,), "float32", "t") as t:
        ...     print(t, t[1])
        ...     print(t.store(1, t[0] + 1))
        ...
        BufferView(t: float32[4]) t[1]
        t[1] = t[0] + 1.0
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.extents

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        return Load(self.buffer, self._indices(indices), self.buffer.dtype)

    def store(self, indices: ExprLike | tuple[ExprLike, ...], value: ExprLike) -> Store:
        """The statement ``buffer[indices] = value``; the value is cast to the buffer's dtype."""
        e = as_expr(value, None if isinstance(value, Expr) else self.dtype)
        return Store(self.buffer, self._indices(indices), cast(e, self.dtype))

    def _indices(self, indices: ExprLike | tuple[ExprLike, ...]) -> tuple[Expr, ...]:
        idx = tuple(as_expr(i) for i in (indices if isinstance(indices, tuple) else (indices,)))
        if len(idx) != len(self.shape):
            raise TensorError(
                f"{self.name} has {len(self.shape)} dimension(s) {list(self.shape)}; it was "
                f"indexed with {len(idx)}"
            )
        for d, i in enumerate(idx):
            if not dtypes.is_int(i.dtype):
                raise TensorError(f"{self.name}: index {d} has dtype {i.dtype}; cast it")
        return idx

    def __repr__(self) -> str:
        return f"BufferView({self.name}: {self.dtype}{list(self.shape)})"

    if not TYPE_CHECKING:  # a type checker shall know which names there are

        def __getattr__(self, name: str) -> NoReturn:
            why = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"BufferView has no attribute {name!r}{why}")


class IRBuilder:
    """Collects statements, one after the other, in loops and branches.

    Example:
        >>> ib = te.ir_builder()
        >>> with ib.allocate((4,), "float32", "t") as t, ib.for_range(4, "i") as i:
        ...     with ib.if_scope(i < 2):
        ...         ib.emit(t.store(i, 1.0))
        ...     with ib.else_scope():
        ...         ib.emit(t.store(i, 2.0))
        ...
        >>> print(ib.get())
        t = alloc(float32[4], local)
        for i in range(4):
          if i < 2:
            t[i] = 1.0
          else:
            t[i] = 2.0
    """

    def __init__(self) -> None:
        self._open: list[list[Stmt]] = [[]]

    def emit(self, stmt: Stmt) -> None:
        """Add a statement."""
        if not isinstance(stmt, Stmt):
            raise TensorError(f"emit: expected a statement, such as c.store(i, x), got {stmt!r}")
        self._open[-1].append(stmt)

    @contextmanager
    def for_range(self, extent: int, name: str = "i", kind: _BodyLoop = "serial") -> Iterator[Var]:
        """A loop ``for name in range(extent)`` around what is added inside.

        ``kind`` is ``"serial"``, ``"vectorized"`` or ``"unrolled"``. TensorError for another one,
        or where the extent is no number from 1.
        """
        (n,) = static_shape(shape_of((extent,), f"for_range {name!r}"))
        if kind not in _KINDS:
            raise TensorError(f"for_range {name!r}: kind is one of {', '.join(_KINDS)}")
        var = Var(name)
        self._open.append([])
        with tracing(f"for_range {name!r}"):
            yield var
        self.emit(For(var, n, kind, self._close()))

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """Run the statements that are added inside where ``cond`` holds.

        A bool of Python, which is no condition, is a TensorError.
        """
        checked = condition(cond, "if_scope")
        self._open.append([])
        yield
        self.emit(If(checked, self._close()))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Run the statements that are added inside where the ``if_scope`` before does not hold.

        TensorError where the statement before is no branch, or has an alternative already.
        """
        last = self._open[-1][-1] if self._open[-1] else None
        if not isinstance(last, If) or last.orelse is not None:
            raise TensorError("else_scope: it stands directly behind an if_scope")
        self._open.append([])
        yield
        self._open[-1][-1] = If(last.cond, last.then, self._close())

    @contextmanager
    def allocate(self, shape: ShapeLike, dtype: str, name: str = "buf") -> Iterator[BufferView]:
        """A buffer of the body's own, of fixed shape, which exists for what is added inside."""
        extents = static_shape(shape_of(shape, f"allocate {name!r}"))
        b = Buffer(name, extents, dtypes.check(dtype), "local")
        self._open.append([])
        yield BufferView(b)
        self.emit(Allocate(b, self._close()))

    def _close(self) -> Stmt:
        return seq(*self._open.pop())

    def get(self) -> Stmt:
        """All statements that were added."""
        if len(self._open) != 1:
            raise TensorError("get: a loop is still open; call it after the with block")
        return seq(*self._open[0])


def ir_builder() -> IRBuilder:
    """A new `IRBuilder`."""
    return IRBuilder()


def call_intrin(name: str, *operands: Expr) -> IntrinsicCall:
    """The statement that runs an instruction; on CPUs without it, loops that do the same.

    ``name`` is one of `loopwright.ir.instructions.INSTRUCTIONS`. For each operand it takes the
    element where it begins, such as ``c[0]``.

    Raises:
        TensorError: no such instruction; number, dtypes or dimensions of the operands are wrong.

    Example:
        >>> ib = te.ir_builder()
        >>> with (
        ...     ib.allocate((16,), "int32", "c") as c,
        ...     ib.allocate((4,), "uint8", "a") as a,
        ...     ib.allocate((16, 4), "int8", "b") as b,
        ... ):
        ...     print(te.call_intrin("dot_16x4_u8s8s32", c[0], a[0], b[0, 0]))
        ...
        dot_16x4_u8s8s32(c[0], a[0], b[0, 0])
    """
    return call_instruction(name, operands)
