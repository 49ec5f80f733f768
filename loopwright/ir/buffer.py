"""Memory: buffers, and the expression that reads one."""

from __future__ import annotations

from math import prod

from loopwright import dtypes
from loopwright.ir.expr import Binary, Call, Cast, Const, Dim, Expr, IfThenElse, Select, Unary, Var
from loopwright.ir.kinds import SHARED, Scope
from loopwright.ir.node import node

#: Largest buffer, in bytes, that code keeps on the stack, where it may become registers.
STACK_LIMIT = 4096


class Buffer:
    """Memory: an argument or an allocation. Compared by identity.

    Attributes:
        name: printed name; it need not be unique.
        dtype: element type.
        scope: the memory that it lies in.
        shape: extents, outermost first: ints, or expressions over size variables.
        strides: for each dimension the number of elements from one index to the next; only of a
            buffer whose shape is known. None stands for row-major without gaps.
        symbolic: whether the shape depends on size variables.
        constant: whether it is an argument whose values are known before calls.
    """

    __slots__ = ("constant", "dtype", "name", "scope", "shape", "strides", "symbolic")

    def __init__(
        self,
        name: str,
        shape: tuple[Dim, ...],
        dtype: str,
        scope: Scope = "global",
        strides: tuple[int, ...] | None = None,
        constant: bool = False,
    ) -> None:
        self.name, self.shape, self.dtype, self.scope = name, shape, dtype, scope
        self.strides, self.constant = strides, constant
        self.symbolic = not all(isinstance(n, int) for n in shape)

    @property
    def is_shared(self) -> bool:
        """Whether the threads of a block share it."""
        return self.scope in SHARED

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as numbers; only of a shape that is known (see `symbolic`)."""
        extents = tuple(n for n in self.shape if isinstance(n, int))
        assert len(extents) == len(self.shape), f"{self!r} has a shape that depends on sizes"
        return extents

    @property
    def size(self) -> int:
        """Elements that it takes, gaps included; only of a known shape (see `symbolic`)."""
        extents = self.extents
        return prod(extents) if not self.strides else extents[0] * self.strides[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer; only of a shape that is known (see `symbolic`)."""
        return self.size * dtypes.nbytes(self.dtype)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Buffer({self.name}: {self.dtype}[{shape}] {self.scope})"


@node
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str


#: Every class of expressions of the loop IR, the most frequent first. A `match` over it that
#: forgets one does not pass the type checker.
AnyExpr = Var | Const | Load | Binary | Cast | Select | IfThenElse | Unary | Call
