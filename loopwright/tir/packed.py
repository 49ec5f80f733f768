"""Functions written by hand, and the statement that calls a packed function from one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from loopwright import dtypes
from loopwright.codegen.c_library import C_FUNCTIONS
from loopwright.errors import TensorError, shown
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, ExprLike, as_expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import CallPacked, Func, Stmt, Store, seq
from loopwright.ir.traversal import walk
from loopwright.ir.verify import verify
from loopwright.runtime.packed import check_name
from loopwright.te import BufferView
from loopwright.te.tensor_intrin import OperandBuffer
from loopwright.tir.ir_builder import BufferVar

_NAME = re.compile(r"(?!lw_)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: An argument of `call_packed`.
PackedArg = Buffer | BufferView | BufferVar | ExprLike | str
#: Writes the body of a function from views of its inputs and of its outputs.
Body = Callable[[Sequence[BufferView], Sequence[BufferView]], Stmt]


def call_packed(name: str, *args: PackedArg) -> CallPacked:
    """The statement that calls the packed function which the process knows as ``name``.

    The name is looked up when the statement runs (`loopwright.register_func`). The function gets an
    `NDArray` over the memory of each buffer, which is valid during the call only, and may write
    it, unless the buffer is an input of the program; copy what is to be kept. Its result is
    dropped. An exception that it raises leaves the kernel and is raised again where the kernel was
    called, with its traceback. In a parallel loop it is called from threads of the pool.

    Args:
        name: a name of a global function.
        args: buffers (whole), numbers, expressions over scalars, and texts.

    Raises:
        TensorError: an argument is none of these, or a text has a zero byte.
        UsageError: the name is none.

    Example:
        >>> from loopwright import tir
        >>> def body(inputs, outputs):
        ...     return tir.call_packed("docs.cumsum", inputs[0], outputs[0])
        ...
        >>> x, y = (tir.decl_buffer((4,), "float32", name) for name in "xy")
        >>> f = lw.build(tir.prim_func(body, [x], [y], "sums"), target="llvm")
        >>> @lw.register_func("docs.cumsum", override=True)
        ... def cumsum(a, out):
        ...     out[:] = np.cumsum(a.numpy())
        ...
        >>> y = np.empty(4, "float32")
        >>> f(np.ones(4, "float32"), y)
        >>> print(y)
        [1. 2. 3. 4.]
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
    """Statements one after the other, as ``tvm.tir.stmt_seq`` makes them.

    Raises:
        TensorError: one is no statement.

    Example:
        >>> from loopwright import tir
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
        >>> print(f.with_body(tir.stmt_seq(f.body, tir.call_packed("docs.log", f.params[1]))))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
          call_packed('docs.log', B)
    """
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

    It is no schedule: it has no trace, is not tuned, and is compiled as it is.

    Args:
        body: given views of the inputs and of the outputs, as two sequences, returns the
            statements; those of an `ir_builder`, for example.
        inputs: arrays that are read, by `decl_buffer`; row-major without gaps.
        outputs: arrays that are written.
        name: of the function.

    Raises:
        TensorError: a buffer has gaps, the name cannot be used, the body returns no statement, or
            it writes an input.
        LowerError: the statements are malformed; it is said which, and how.

    Example:
        >>> from loopwright import tir
        >>> def double(inputs, outputs):
        ...     ib = tir.ir_builder.create()
        ...     x, y = ib.buffer_ptr(inputs[0]), ib.buffer_ptr(outputs[0])
        ...     with ib.for_range(0, 4, "i") as i:
        ...         y[i] = x[i] * 2.0
        ...     return ib.get()
        ...
        >>> x, y = (tir.decl_buffer((4,), "float32", name) for name in "xy")
        >>> print(tir.prim_func(double, [x], [y], "double"))
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
    _check_inputs(f)
    return f


def _check_inputs(f: Func) -> None:
    def visit(n: Node) -> None:
        if isinstance(n, Store) and n.buffer in f.inputs:
            raise TensorError(
                f"prim_func {f.name!r}: the body writes the input {n.buffer.name!r}; declare it "
                "among the outputs"
            )

    walk(f.body, visit)


def _parameter(x: OperandBuffer) -> Buffer:
    if not isinstance(x, OperandBuffer):
        raise TensorError(
            f"prim_func: {shown(x)} is no buffer; declare it with tir.decl_buffer(shape, dtype, "
            "name)"
        )
    if not x.compact:
        raise TensorError(f"prim_func: the buffer {x.name!r} has gaps; leave strides out")
    return Buffer(x.name, x.shape, dtypes.check(x.dtype))
