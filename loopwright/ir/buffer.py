"""Memory: buffers, and the expression that reads one."""

from __future__ import annotations

from math import prod
from typing import Any

from loopwright import dtypes
from loopwright.ir.expr import Expr
from loopwright.ir.node import node

#: Largest buffer, in bytes, that code keeps on the stack, where it may become registers.
STACK_LIMIT = 4096


class Buffer:
    """Memory: an argument or an allocation. Compared by identity.

    Attributes:
        name, dtype, scope: what they say.
        shape: extents, outermost first: ints, or expressions over size variables.
        strides: elements from one index to the next, one a dimension (then the shape is known);
            None stands for row-major without gaps.
    """

    __slots__ = ("dtype", "name", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        shape: tuple[Any, ...],
        dtype: str,
        scope: str = "global",
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.name, self.shape, self.dtype, self.scope = name, shape, dtype, scope
        self.strides = strides

    @property
    def symbolic(self) -> bool:
        """Whether the shape depends on size variables."""
        return not all(isinstance(n, int) for n in self.shape)

    @property
    def size(self) -> int:
        """Elements that it takes, gaps included; only of a known shape (see `symbolic`)."""
        return prod(self.shape) if not self.strides else int(self.shape[0] * self.strides[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer; only of a shape that is known (see `symbolic`)."""
        return self.size * dtypes.nbytes(self.dtype)

    def __repr__(self) -> str:
        from loopwright.ir.printer import shape_text

        return f"Buffer({self.name}: {self.dtype}{shape_text(self.shape)} {self.scope})"


@node
class Load(Expr):
    """An element of a buffer, one index a dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str
