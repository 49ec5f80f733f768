"""`compute`: a function of axes, called once, becomes the body of an operation.

The body is checked: every index lies inside its tensor, a reduction is the whole body, and all axes
belong to the operation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.errors import TensorError
from loopwright.ir.affine import Extent, interval, to_affine
from loopwright.ir.expr import Expr, IfThenElse, IterVar, Read, Var, as_expr, tracing
from loopwright.ir.node import Node, same
from loopwright.ir.printer import print_expr
from loopwright.ir.reduction import Reduce, Reduced, Tuple, outputs_of
from loopwright.ir.sizes import Shape, Sizes, SizeVar
from loopwright.te.tensor import ComputeOp, ShapeLike, shape_of


def check_read(e: Read, source: str, shape: Shape, name: str, scope: Sizes) -> None:
    """Refuse an index that certainly leaves its dimension, for every size.

    Bounds of an affine index are attained. Others may be wide (``i - i // 4 * 4``), so those are
    refused only when no value of them lies inside.
    """
    for d, (i, dim) in enumerate(zip(e.indices, shape, strict=True)):
        extent = scope.of(dim)
        b = interval(i, {}, scope.ranges)
        if b is None or (b[0] >= 0 and (isinstance(extent, int) and b[1] < extent)):
            continue
        text = _leaves(i, extent, b, scope)
        if text:
            raise TensorError(
                f"compute {name!r}: index {d} of {source} {text}, the dimension has "
                f"{dim if isinstance(dim, int) else print_expr(dim)} elements; guard it with "
                "te.if_then_else"
            )


def _leaves(i: Expr, extent: Extent, b: tuple[int, int], scope: Sizes) -> str:
    """Words for the way in which an index leaves its dimension, or ''."""
    form = to_affine(i, {}, scope.ranges)
    if isinstance(extent, int) and not scope.ranges.upper:
        out = form is not None or b[1] < 0 or b[0] >= extent
        return f"runs from {b[0]} to {b[1]}" if out else ""
    if form is None:
        return ""
    least, most = form.extremes(scope.ranges)
    if least.bounds(scope.ranges)[1] >= 0 and (most - extent).bounds(scope.ranges)[0] < 0:
        return ""
    low, high = (print_expr(x.to_expr()) for x in (least, most))
    return f"runs from {low} to {high}"


def compute(
    shape: ShapeLike,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Define a tensor element by element: ``compute((n, m), lambda i, j: A[i, j] + 1)``.

    A function that returns a tuple defines several tensors of one shape, computed in one nest::

        S, D = te.compute((n,), lambda i: (A[i] + B[i], A[i] - B[i]))
        at, top = te.compute((n,), lambda i: te.argmax((k, A[i, k]), axis=k))

    Args:
        shape: extents of the result: positive integers or expressions over size variables.
        fcompute: gets one axis for each dimension and returns the element's expression, or a tuple
            with one for each output. A reduction of tuples must be returned as a whole. The
            function is called once.
        name, tag, attrs: printed name, which need not be unique, free text and free attributes.
        varargs_names: names of the axes that a function gets through ``*args``; default ``i0``,
            ``i1`` and so on, by dimension.

    Raises:
        TensorError: wrong number of arguments, a value that is no expression, one of more than
            262 144 nodes with what it uses several times written out, a reduction inside another
            expression, an element that lies outside its tensor, the truth of a condition
            that depends on the element (``if i == j``).

    Example:
        >>> A = te.placeholder((2, 3), name="A")
        >>> B = te.compute((2, 3), lambda i, j: A[i, j] * 2 + 1, name="B")
        >>> print(B)
        Tensor(B: float32[2, 3])
        >>> f = lw.build(te.create_schedule(B.op), [A, B])
        >>> b = np.empty((2, 3), "float32")
        >>> f(np.arange(6, dtype="float32").reshape(2, 3), b)
        >>> print(b)
        [[ 1.  3.  5.]
         [ 7.  9. 11.]]
    """
    # Any in the signature: what the function returns says whether there is one tensor.
    dims = shape_of(shape, f"compute {name!r}")
    names = _axis_names(fcompute, len(dims), name, varargs_names)
    axes = [IterVar.named(n, d, "spatial") for n, d in zip(names, dims, strict=True)]
    with tracing(f"compute {name!r}"):
        result = fcompute(*[a.var for a in axes])
    body = _body(result, name)
    op = ComputeOp(name, dims, [e.dtype for e in outputs_of(body)], tag)
    op.attrs, op.axis, op.body = dict(attrs or {}), axes, body
    op.reduce_axis = list(body.axes) if isinstance(body, Reduce) else []
    op._check()
    return op.output(0) if op.num_outputs == 1 else op._outputs


def _body(result: object, name: str) -> Expr:
    entries = list(result) if isinstance(result, list | tuple) else [result]
    if not entries:
        raise TensorError(f"compute {name!r}: the function returned no expression")
    for x in entries:
        if isinstance(x, bool):
            raise TensorError(
                f"compute {name!r}: returned the Python value {x} for every element; te.const({x}) "
                "is the constant, and for 'i in {a, b}' write te.any(i == a, i == b)"
            )
    values = tuple(as_expr(x) for x in entries)
    first = values[0]
    if isinstance(first, Reduced) and same(values, first.reduce.outputs()):
        return first.reduce
    if any(isinstance(v, Reduced) for v in values):
        raise TensorError(
            f"compute {name!r}: a reduction of tuples makes all of its outputs; return the whole "
            "result of the reducer and leave those that you do not need"
        )
    if len(values) == 1:
        return first
    if any(isinstance(v, Reduce) for v in values):
        raise TensorError(
            f"compute {name!r}: several reductions in one compute must be one reducer of tuples "
            "(te.comm_reducer), so that one loop makes them; or define one compute for each"
        )
    return Tuple(values, first.dtype)


def _axis_names(
    f: Callable[..., Any], ndim: int, name: str, varargs_names: Sequence[str] | None
) -> list[str]:
    if not callable(f):
        raise TensorError(f"compute {name!r}: expected a function of the axes, got {f!r}")
    params = list(inspect.signature(f).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in params):
        fixed = [p.name for p in params if p.kind is not p.VAR_POSITIONAL]
        rest = [f"i{d}" for d in range(len(fixed), ndim)]
        if varargs_names is not None:
            many = not isinstance(varargs_names, str)
            names = [str(n) for n in varargs_names] if many else [str(varargs_names)]
            if len(names) != len(rest):
                raise TensorError(
                    f"compute {name!r}: varargs_names has {len(names)} name(s), *args gets "
                    f"{len(rest)} of the {ndim} axes"
                )
            rest = names
        return (fixed + rest)[:ndim]
    if varargs_names is not None:
        raise TensorError(f"compute {name!r}: varargs_names is for a function with *args; leave it")
    names = [p.name for p in params if p.default is p.empty]
    if len(names) != ndim:
        raise TensorError(
            f"compute {name!r}: the function takes {len(names)} axes ({', '.join(names)}), "
            f"the shape has {ndim} dimension(s)"
        )
    return names


#: Nodes of a body in which each use of a part counts: more code than any target takes.
_MOST_NODES = 1 << 18


def _check_size(body: Expr, name: str) -> None:
    """Refuse a body that later walks, which visit a part at each of its uses, would not end."""
    sizes: dict[int, int] = {}

    def size(n: Node) -> int:
        if id(n) not in sizes:
            sizes[id(n)] = 1 + sum(map(size, n.children()))
        return sizes[id(n)]

    if (total := size(body)) > _MOST_NODES:
        raise TensorError(
            f"compute {name!r}: the expression has {total} nodes, more than {_MOST_NODES}, where "
            "parts that it uses several times are written out; give these parts computes of their "
            "own, which schedules inline or share"
        )


def _check_op(op: ComputeOp) -> None:
    """Refuse a body that is too large, leaves a tensor or has axes that are not the operation's."""
    _check_size(op.body, op.name)
    scope, body = _scope([*op.axis, *op.reduce_axis]), op.body
    guarded = isinstance(body, Reduce) and body.where is not None
    for e in outputs_of(body):
        _check_expr(e, op, scope, guarded)
    if not isinstance(body, Reduce):
        return
    if body.where is not None:
        _check_expr(body.where, op, scope, guarded=False)
    for e in body.init or ():
        _check_expr(e, op, _scope(op.axis), guarded=False)


ComputeOp._check = _check_op


def _scope(axes: list[IterVar]) -> Sizes:
    sizes = Sizes(a.extent for a in axes)
    for a in axes:
        sizes.ranges.enter(a.var, sizes.of(a.extent))
    return sizes


def _check_expr(e: Expr, op: ComputeOp, scope: Sizes, guarded: bool) -> None:
    if isinstance(e, Reduce | Reduced):
        raise TensorError(
            f"compute {op.name!r}: a reduction must be the whole body; give it a compute of its "
            "own and use that tensor in the expression"
        )
    if isinstance(e, SizeVar):
        scope.declare(e)
    if isinstance(e, Var) and e not in scope.ranges:
        raise TensorError(
            f"compute {op.name!r}: axis {e.name!r} does not belong to it; a reduce_axis is used "
            "inside te.sum(..., axis=...) and the like, and not in init="
        )
    if isinstance(e, Read) and not guarded:
        check_read(e, e.source.name, e.source.shape, op.name, scope)
    if isinstance(e, IfThenElse):
        _check_expr(e.cond, op, scope, guarded)
        _check_expr(e.a, op, scope, True)
        _check_expr(e.b, op, scope, True)
        return
    for c in e.children():
        assert isinstance(c, Expr)  # only a reduction holds other nodes
        _check_expr(c, op, scope, guarded)
