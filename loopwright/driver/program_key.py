"""The identity of a program: a hash that is equal for lowered functions that give equal code.
Schedules may differ in steps alone (a split by 1, a mark on a loop that runs once, a limit of
unrolling that no loop reaches); a tuning run measures each program once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from loopwright.errors import InternalError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Const, IterVar, Var
from loopwright.ir.node import Node
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import UNROLL_HINT, For, Func, SplitFunc
from loopwright.target import Target

#: Digits of the hash. Among a million programs the chance of an error is 1e-8.
_DIGITS = 16


def program_key(f: Func, target: Target, passes: Mapping[str, Any]) -> str:
    """The hash of a lowered function, its target and its pass settings.

    Names of variables and buffers are left out, and so are loops that run once and pragmas that no
    code generator reads. Equal keys mean equal object code by one version of the compiler; unequal
    keys mean nothing, as a compiler may bring two programs to the same instructions.

    Args:
        f: the function.
        target: what it is compiled for.
        passes: settings of the `PassContext` that it was lowered in, as its ``to_json`` gives them.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> func = lw.lower(s, [A, B])
        >>> print(len(lw.driver.program_key(func, lw.Target("llvm"), {})))
        16
    """
    settings = json.dumps([target.canonical, passes], sort_keys=True)
    parts = ["in two parts"] if isinstance(f, SplitFunc) else []
    text = "\n".join([f.name, settings, *parts, _Writer().text(f)])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


class _Writer:
    """Writes a function with numbers in place of names."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._numbers: dict[Var | Buffer, int] = {}

    def text(self, f: Func) -> str:
        """The text of a function: one text, one program."""
        self._values((f.params, f.outputs, f.sizes, f.body))
        return "".join(self._parts)

    # Any: the fields of nodes hold nodes, tuples of them, buffers and plain values.
    def _value(self, x: Any) -> None:
        if isinstance(x, Var):
            self._var(x)
        elif isinstance(x, Const):
            self._parts.append(f"{x.value!r}:{x.dtype} ")
        elif isinstance(x, For):
            self._for(x)
        elif isinstance(x, Node):
            self._parts.append(f"{type(x).__name__}(")
            for name in x._fields:
                self._value(getattr(x, name))
            self._parts.append(")")
        elif isinstance(x, Buffer):
            self._buffer(x)
        elif isinstance(x, tuple):
            self._values(x)
        elif x is None or isinstance(x, str | int | float):
            self._parts.append(f"{x!r} ")
        elif isinstance(x, IterVar):
            self._values((x.var, x.extent, x.kind, x.thread_tag))
        else:
            raise InternalError(f"a lowered function holds a {type(x).__name__}, which has no text")

    def _values(self, values: tuple[Any, ...]) -> None:
        self._parts.append("(")
        for x in values:
            self._value(x)
        self._parts.append(")")

    def _for(self, s: For) -> None:
        if s.extent == 1 and s.kind in ("serial", "unrolled"):
            self._parts.append("once(")  # what is declared in the loop is gone after it
            self._numbers[s.var] = -1
            self._value(s.body)
            self._parts.append(")")
            return
        pragmas = [p for p in s.pragmas if p == UNROLL_HINT]
        self._values((s.kind, s.tag, tuple(pragmas), s.var, s.extent, s.body))

    def _var(self, v: Var) -> None:
        number = self._numbers.get(v)
        if number is not None:
            self._parts.append("0 " if number < 0 else f"v{number} ")
            return
        self._numbers[v] = number = len(self._numbers)
        sign = f":{v.nonnegative}" if isinstance(v, SizeVar) else ""
        self._parts.append(f"v{number}:{v.dtype}{sign} ")

    def _buffer(self, b: Buffer) -> None:
        number = self._numbers.get(b)
        if number is not None:
            self._parts.append(f"b{number} ")
            return
        self._numbers[b] = number = len(self._numbers)
        self._parts.append(f"b{number}:{b.dtype}:{b.scope}")
        self._values((b.shape, b.strides))
