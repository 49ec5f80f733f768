"""Equality and hashes of programs by structure: names of variables and buffers do not count."""

# Two programs are equal when one becomes the other by renaming: variables that a loop, a let, a
# reduction or a parameter list defines, and buffers that a parameter list or an allocation defines,
# stand for each other by the place of their definition (alpha equivalence, as of TVM's
# ``structural_equal``). Variables and buffers that nothing in the program defines are free: they
# are equal only to themselves, unless they are mapped to each other as well.

from __future__ import annotations

import hashlib
from typing import Any

from loopwright.errors import UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import IterVar, Var
from loopwright.ir.node import Node
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import Allocate, For, Func, Let, View

#: A part of a program's structure: a text, or an object, as its id and a text.
_Part = str | tuple[int, str]


def structural_equal(a: object, b: object, map_free_vars: bool = False) -> bool:
    """Whether two programs are the same but for names.

    Args:
        a, b: two functions of the loop IR, statements, expressions, or DAGs (`loopwright.te.Dag`).
        map_free_vars: let free variables and buffers stand for each other by the order in which
            they first occur; else each is equal to itself only.

    Raises:
        UsageError: one is no program.

    Example:
        >>> i, j = te.var("i"), te.var("j")
        >>> print(lw.ir.structural_equal(i * 2 + 1, j * 2 + 1))
        False
        >>> print(lw.ir.structural_equal(i * 2 + 1, j * 2 + 1, map_free_vars=True))
        True
    """
    return _structure(a, map_free_vars) == _structure(b, map_free_vars)


def structural_hash(a: object, map_free_vars: bool = False) -> int:
    """A hash of 64 bits that is equal for programs that are equal by structure.

    It is the same in every process. Free variables count with name and dtype, which only programs
    of other variables of the same names share. Arguments are as of `structural_equal`; the hash
    belongs to the same setting of ``map_free_vars``.

    Raises:
        UsageError: it is no program.
    """
    texts = (part if isinstance(part, str) else part[1] for part in _structure(a, map_free_vars))
    return int.from_bytes(hashlib.sha256("\n".join(texts).encode()).digest()[:8], "little")


def _structure(a: object, map_free_vars: bool) -> list[_Part]:
    if isinstance(a, Node | IterVar):
        walk = _Walk(map_free_vars)
        walk.value(a)
        return walk.parts
    structure = getattr(a, "structure", None)
    if isinstance(structure, str):
        return [structure]
    raise UsageError(
        f"a {type(a).__name__} has no structure; give a Func, a statement, an expression or a Dag"
    )


class _Walk:
    """Writes the structure of a program: definitions as numbers, free names as themselves."""

    def __init__(self, map_free: bool) -> None:
        self.parts: list[_Part] = []
        self._map_free = map_free
        self._count = 0
        self._defined: dict[Var | Buffer, int] = {}
        self._free: dict[Var | Buffer, int] = {}

    def define(self, x: Var | Buffer, numbers: dict[Var | Buffer, int]) -> None:
        numbers[x] = self._count
        self._count += 1
        if isinstance(x, Buffer):
            self.parts.append(f"buffer {x.dtype} {x.scope}")
            self.value((x.shape, x.strides))
            return
        sign = f" {x.nonnegative}" if isinstance(x, SizeVar) else ""
        self.parts.append(f"var {x.dtype}{sign}")

    def use(self, x: Var | Buffer) -> None:
        if x in self._defined:
            self.parts.append(f"#{self._defined[x]}")
        elif x in self._free:
            self.parts.append(f"#{self._free[x]}")
        elif self._map_free:
            self.define(x, self._free)
        else:
            self.parts.append((id(x), f"{type(x).__name__} {x.name} {x.dtype}"))

    # Any: the fields of nodes hold nodes, tuples of them, buffers and plain values.
    def value(self, x: Any) -> None:
        match x:
            case Var() | Buffer():
                self.use(x)
            case Node():
                outside = dict(self._defined)
                self.node(x)
                self._defined = outside
            case tuple():
                self.parts.append(f"({len(x)}")
                for y in x:
                    self.value(y)
            case IterVar():
                self.value((x.extent, x.kind, x.thread_tag))
                self.define(x.var, self._defined)
            case None | bool() | int() | float() | str():
                self.parts.append(repr(x))
            case _:  # a tensor or an operation, which is itself only
                self.parts.append((id(x), f"{type(x).__name__} {getattr(x, 'name', '')}"))

    def node(self, n: Node) -> None:
        """Write a node: first its definitions, which its other fields see."""
        self.parts.append(type(n).__name__)
        first: tuple[str, ...] = ()
        defined: tuple[Var | Buffer, ...] = ()
        match n:
            case Func():
                defined = (*n.sizes, *n.params)
            case For():
                first, defined = ("extent",), (n.var,)
            case Let():
                first, defined = ("value",), (n.var,)
            case Allocate() | View():
                defined = (n.buffer,)
            case Combiner():
                defined = (*n.lhs, *n.rhs)
            case Reduce():
                first = ("axes",)
        for name in first:
            self.value(getattr(n, name))
        for x in defined:
            self.define(x, self._defined)
        for name in n._fields:
            if name not in first:
                self.value(getattr(n, name))
