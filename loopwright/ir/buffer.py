"""Memory: buffers, and the expression that reads one."""

from __future__ import annotations

import numpy as np

from loopwright import dtypes
from loopwright.ir.expr import Expr
from loopwright.ir.node import node


class Buffer:
    """Memory of known shape: an argument or an allocation. Compared by identity."""

    __slots__ = ("dtype", "name", "scope", "shape")

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: str, scope: str = "global"
    ) -> None:
        self.name, self.shape, self.dtype, self.scope = name, shape, dtype, scope

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer."""
        return self.size * dtypes.nbytes(self.dtype)

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}{list(self.shape)} {self.scope})"


@node
class Load(Expr):
    """An element of a buffer, one index a dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str
