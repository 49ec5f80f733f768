"""Statements by `loopwright.te.IRBuilder`, calls by name and buffers, under TVM's ``tir`` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, TypeAlias

from loopwright import dtypes, te
from loopwright.codegen import C_FUNCTIONS
from loopwright.errors import TensorError, did_you_mean, shown
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, ExprLike, as_expr, cast
from loopwright.ir.stmt import CallPacked, Func, Stmt, Store, seq
from loopwright.ir.verify import verify
from loopwright.ir.visitor import nodes
from loopwright.runtime import check_name
from loopwright.te import BufferView, DimLike, OperandBuffer, ShapeLike, whole
from loopwright.te import IRBuilder as Statements
from loopwright.te import decl_buffer as _decl_buffer

_NAME = re.compile(r"(?!lw_)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: Writes the body of a function from views of its inputs and of its outputs.
Body = Callable[[Sequence[BufferView], Sequence[BufferView]], Stmt]
#: An argument of `call_packed`.
PackedArg: TypeAlias = "Buffer | BufferView | BufferVar | ExprLike | str"


def call_packed(name: str, *args: PackedArg) -> CallPacked:
    """The statement that calls the packed function which the process knows as ``name``.

    The name is looked up when the statement runs (`loopwright.register_func`). The function gets an
    `NDArray` over the memory of each buffer, which is valid during the call only, and may write it,
    unless the buffer is an input of the program; copy what is to be kept. Its result is dropped. An
    exception that it raises leaves the kernel and is raised again where the kernel was called, with
    its traceback. In a parallel loop it is called from threads of the pool. Arguments are buffers
    (whole), numbers, expressions over scalars, and texts; a TensorError refuses others, a
    UsageError a name that is none.

    Example:
        >>> x, y = (lw.tir.decl_buffer((4,), "float32", name) for name in "xy")
        >>> body = lambda inputs, outputs: lw.tir.call_packed("docs.cumsum", inputs[0], outputs[0])
        >>> print(lw.tir.prim_func(body, [x], [y], "sums"))
        def sums(x: float32[4], y: out float32[4]):
          call_packed('docs.cumsum', x, y)
    """
    return CallPacked(check_name(name), tuple(_argument(name, k, x) for k, x in enumerate(args)))


def _argument(name: str, k: int, x: object) -> Buffer | Expr | str:
    if isinstance(x, Buffer):
        return x
    if isinstance(x, BufferVar | BufferView):
        return x.buffer
    if isinstance(x, str) and "\0" not in x:
        return x
    if isinstance(x, str):
        raise TensorError(f"call_packed {name!r}: argument {k} is a text with a zero byte")
    if isinstance(x, float):
        return as_expr(x, "float64")
    if isinstance(x, OperandBuffer):
        raise TensorError(
            f"call_packed {name!r}: argument {k} is the description of a buffer; pass the view of "
            "it that the body is given"
        )
    try:
        return as_expr(x)
    except TensorError:
        raise TensorError(
            f"call_packed {name!r}: argument {k} is {shown(x)} (a {type(x).__name__}); pass a "
            "buffer, a number, an expression or a str"
        ) from None


def stmt_seq(*stmts: Stmt) -> Stmt:
    """Statements in order, as ``tvm.tir.stmt_seq`` makes them; TensorError for others."""
    for s in stmts:
        if not isinstance(s, Stmt):
            raise TensorError(f"stmt_seq: expected statements, got {shown(s)}")
    return seq(*stmts)


def prim_func(
    body: Body,
    inputs: Sequence[OperandBuffer],
    outputs: Sequence[OperandBuffer],
    name: str = "main",
) -> Func:
    """A function of the loop IR that is written by hand, for `loopwright.build`.

    It is no schedule: it has no trace, is not tuned, and is compiled as it is. TensorError where a
    buffer has gaps, the name cannot be used, the body returns no statement, or it writes an input;
    LowerError where a statement is malformed; the message names it.

    Args:
        body: given views of the inputs and of the outputs, as two sequences, returns the
            statements; those of an `ir_builder`, for example.
        inputs: arrays that are read, by `decl_buffer`; row-major without gaps.
        outputs: arrays that are written.

    Example:
        >>> def double(inputs, outputs):
        ...     ib = lw.tir.ir_builder.create()
        ...     x, y = ib.buffer_ptr(inputs[0]), ib.buffer_ptr(outputs[0])
        ...     with ib.for_range(0, 4, "i") as i:
        ...         y[i] = x[i] * 2.0
        ...     return ib.get()
        >>> x, y = (lw.tir.decl_buffer((4,), "float32", name) for name in "xy")
        >>> print(lw.tir.prim_func(double, [x], [y], "double"))
        def double(x: float32[4], y: out float32[4]):
          for i in range(4):
            y[i] = x[i] * 2.0
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in C_FUNCTIONS:
        raise TensorError(
            f"prim_func: the name {shown(name)} cannot be used; take letters, digits and "
            "underscores, not beginning with 'lw_', and no function of C"
        )
    params = [_parameter(x) for x in (*inputs, *outputs)]
    views = [BufferView(b) for b in params]
    stmt = body(views[: len(inputs)], views[len(inputs) :])
    if not isinstance(stmt, Stmt):
        raise TensorError(f"prim_func {name!r}: the body returned {shown(stmt)}, no statement")
    marks = (False,) * len(inputs) + (True,) * len(outputs)
    f = Func(name, tuple(params), marks, stmt)
    verify(f, "of prim_func")
    for n in nodes(f.body):
        if isinstance(n, Store) and n.buffer in f.inputs:
            raise TensorError(
                f"prim_func {f.name!r}: the body writes the input {n.buffer.name!r}; declare it "
                "among the outputs"
            )
    return f


def _parameter(x: OperandBuffer) -> Buffer:
    if not isinstance(x, OperandBuffer):
        raise TensorError(
            f"prim_func: {shown(x)} is no buffer; declare it with tir.decl_buffer(shape, dtype, "
            "name)"
        )
    if not x.compact:
        raise TensorError(f"prim_func: the buffer {x.name!r} has gaps; leave strides out")
    return Buffer(x.name, x.shape, dtypes.check(x.dtype))


_Kind = Literal["serial", "vectorized", "unrolled"]
#: The kinds of loops under TVM's names of several versions.
_KINDS: dict[str, _Kind] = {"serial": "serial", "unroll": "unrolled", "unrolled": "unrolled"}
_KINDS |= {"vectorize": "vectorized", "vectorized": "vectorized"}


class BufferVar:
    """A buffer whose elements are read by ``b[i]`` and written by ``b[i] = value``; one index into
    several dimensions counts the elements row by row.
    """

    def __init__(self, builder: IRBuilder, view: BufferView) -> None:
        self._builder, self._view = builder, view
        self.buffer, self.shape, self.dtype = view.buffer, view.shape, view.dtype

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        return self._view[self._at(indices)]

    def __setitem__(self, indices: ExprLike | tuple[ExprLike, ...], value: ExprLike) -> None:
        self._builder.emit(self._view.store(self._at(indices), value))

    def _at(self, indices: ExprLike | tuple[ExprLike, ...]) -> ExprLike | tuple[ExprLike, ...]:
        listed = indices if isinstance(indices, tuple) else (indices,)
        if len(listed) != 1 or len(self.shape) == 1:
            return indices
        rest, at = listed[0], list[ExprLike]()
        for extent in reversed(self.shape[1:]):
            at.append(rest % extent)
            rest = rest // extent
        return (rest, *reversed(at))

    def __repr__(self) -> str:
        return f"BufferVar({self._view.name}: {self.dtype}{list(self.shape)})"


class IRBuilder:
    """Collects statements, one after the other, in loops and branches; made by `create`.

    Example:
        >>> ib = lw.tir.ir_builder.create()
        >>> x = ib.allocate("float32", (8,), "x")
        >>> with ib.for_range(0, 8, "i", kind="vectorize") as i:
        ...     x[i] = 1.0
        >>> print(ib.get())
        x = alloc(float32[8], local)
        for i in vectorized(8):
          x[i] = 1.0
    """

    def __init__(self) -> None:
        self._statements = Statements()
        # Allocations to be closed with each open scope, the innermost scope last.
        self._scopes = [ExitStack()]

    def emit(self, stmt: Stmt) -> None:
        """Add a statement."""
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
        """A loop ``for name in range(begin, end)`` of whole numbers around what is added inside.

        ``kind`` is ``"serial"``, ``"vectorize"`` or ``"unroll"``; ``dtype`` is accepted: loops
        count in int32. TensorError where there is no iteration, or an argument is another one.
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
        """Run what is added inside where the condition of the ``if_scope`` before does not hold."""
        with self._statements.else_scope(), self._scope():
            yield

    def allocate(
        self, dtype: str, shape: ShapeLike, name: str = "buf", scope: str = ""
    ) -> BufferVar:
        """A buffer of the body's own, which exists until the end of the scope that allocated it.

        ``scope`` is ``""``, ``"local"`` or ``"global"``: the caller's stack or workspace.
        """
        if scope not in ("", "local", "global"):
            raise TensorError(f"allocate {name!r}: scope={scope!r} is not supported; leave it out")
        view = self._scopes[-1].enter_context(self._statements.allocate(shape, dtype, name))
        return BufferVar(self, view)

    def buffer_ptr(self, buf: BufferView) -> BufferVar:
        return BufferVar(self, buf)

    def likely(self, expr: Expr) -> Expr:
        """The condition itself; TVM marks it as a hint."""
        return expr

    def get(self) -> Stmt:
        """All statements that were added; TensorError while a loop is open."""
        if len(self._scopes) == 1:
            self._scopes[0].close()
        return self._statements.get()

    @contextmanager
    def _scope(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._scopes.append(stack)
            try:
                yield
            finally:
                self._scopes.pop()


def create_builder() -> IRBuilder:
    """A new builder: ``tvm.tir.ir_builder.create``."""
    return IRBuilder()


Function = Callable[..., Expr]
# What may be called by name are the functions of `loopwright.te`, which have one definition and one
# bound of their error on every target: C's mathematics and TVM's own names stand for them.

#: C's functions of doubles; those of floats have an ``f`` behind. ``round`` is not among them: C
#: rounds ties away from zero.
_C: dict[str, Function] = {
    "atan": te.atan, "ceil": te.ceil, "cos": te.cos, "cosh": te.cosh, "erf": te.erf,
    "exp": te.exp, "exp2": te.exp2, "expm1": te.expm1, "fabs": te.abs, "floor": te.floor,
    "fma": te.fma, "fmod": te.fmod, "log": te.log, "log10": te.log10, "log1p": te.log1p,
    "log2": te.log2, "nearbyint": te.round, "pow": te.power, "rint": te.round, "sin": te.sin,
    "sinh": te.sinh, "sqrt": te.sqrt, "tan": te.tan, "tanh": te.tanh, "trunc": te.trunc,
}  # fmt: skip
#: TVM's functions of floats.
_TIR: dict[str, Function] = {f"tir.{name}": f for name, f in _C.items() if name != "rint"}
_TIR |= {
    "tir.abs": te.abs, "tir.round": te.round, "tir.rsqrt": te.rsqrt, "tir.sigmoid": te.sigmoid,
}  # fmt: skip
#: Numbers of arguments of functions that take more than one.
_ARGUMENTS: dict[Function, int] = {te.fma: 3, te.fmod: 2, te.power: 2}


def call_pure_extern(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """A function of C's mathematics, such as ``expf``: that of `loopwright.te` in its place.

    Functions of doubles are computed in float64, those with ``f`` behind in float32; their
    arguments are converted to that type, and the result to ``dtype``. TensorError where it is no
    such function, or has another number of arguments: code of other languages cannot be called.
    """
    floats = {f"{name}f": function for name, function in _C.items()}
    function = _find("call_pure_extern", func_name, {**floats, **_C})
    operands = "float32" if func_name in floats else "float64"
    return _call(function, func_name, dtype, [cast(as_expr(x), operands) for x in args])


def call_intrin(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """A function of TVM by its full name, such as ``"tir.exp"``: that of `loopwright.te`.

    TensorError where it is no function of floats, or has another number of arguments. An intrinsic
    of one's own is a function of Python; instructions are those of `te.call_intrin`.
    """
    return _call(_find("call_intrin", func_name, _TIR), func_name, dtype, args)


def _find(verb: str, name: str, functions: Mapping[str, Function]) -> Function:
    if name in functions:
        return functions[name]
    raise TensorError(
        f"tir.{verb}: there is no {name!r}{did_you_mean(str(name), functions)}; write what it "
        "computes with the functions of te (code of other languages cannot be called, since a "
        f"trace has to be complete); known: {', '.join(sorted(functions))}"
    )


def _call(function: Function, name: str, dtype: str, args: Sequence[ExprLike]) -> Expr:
    wanted = _ARGUMENTS.get(function, 1)
    if len(args) != wanted:
        raise TensorError(f"tir: {name!r} takes {wanted} argument(s), got {len(args)}")
    return cast(function(*args), dtypes.check(dtype))


def Cast(dtype: str, value: ExprLike) -> Expr:
    """A value in another dtype: ``loopwright.te.cast`` with TVM's order of arguments."""
    return cast(as_expr(value), dtype)


def decl_buffer(
    shape: ShapeLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: None = None,
    strides: Sequence[int | Expr | None] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> OperandBuffer:
    """Describe an operand's place in memory: `loopwright.te.decl_buffer` with TVM's arguments, of
    which some are refused by a TensorError, too.

    Args:
        strides: for each dimension the elements from one index to the next: a number, or a variable
            or None where any stride will do. None, or empty: row-major without gaps.
        scope: ``""`` or ``"global"``.
        elem_offset, data_alignment, offset_factor: without effect: an operand may begin at any
            element, and code assumes no alignment.
        data, buffer_type: refused: loopwright finds the memory, and does not broadcast.
    """
    refused = {"data": data is not None, "buffer_type": buffer_type != ""}
    refused["scope"] = scope not in ("", "global")
    for argument, is_given in refused.items():
        if is_given:
            raise TensorError(
                f"decl_buffer {name!r}: {argument}= is not supported; leave it out (operands lie "
                "in the memory that the schedule gives their tensors)"
            )
    return _decl_buffer(shape, dtype or "float32", name, strides or None)
