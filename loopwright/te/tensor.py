"""Tensors and the operations that make them: `placeholder`, `compute`, `reduce_axis`, `var`.

``compute`` traces its function once; what is kept are expressions, never the function. The names
and meanings are those of TVM's te. Extents are positive Python integers or expressions over size
variables (`var`, `size_var`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.expr import Const, Expr, ExprOps, IfThenElse, IterVar, Read, Var, as_expr
from loopwright.ir.printer import shape_text
from loopwright.ir.reduction import Reduce, Reduced, Tuple, outputs_of
from loopwright.ir.sizes import Dim, Shape, Sizes, SizeVar, check_extent
from loopwright.ir.traversal import walk
from loopwright.te.reads import check_read

#: What a loop can be bound to.
THREAD_TAGS = (*(f"{p}.{c}" for p in ("blockIdx", "threadIdx") for c in "xyz"), "vthread")


class Tensor:
    """A multi-dimensional value: the output of an operation. ``A[i, j]`` is an element.

    Attributes:
        op: the operation that makes it.
        shape: extents, outermost first: ints, or expressions over size variables.
        dtype: name of the element type.
        value_index: which output of the operation it is.
    """

    __slots__ = ("dtype", "op", "shape", "value_index")

    def __init__(self, op: Operation, shape: Shape, dtype: str, value_index: int = 0) -> None:
        self.op, self.shape, self.dtype, self.value_index = op, shape, dtype, value_index

    @property
    def name(self) -> str:
        """Name of the operation; ``T.v1`` for output 1 of one with several."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __call__(self, *indices: Any) -> Any:
        """``A(i, j)``: the same as ``A[i, j]``."""
        return self[indices]

    def __getitem__(self, indices: Any) -> Any:
        idx = indices if isinstance(indices, tuple) else (indices,)
        if len(idx) > self.ndim or (self.ndim == 0 and idx):
            raise TensorError(
                f"{self.name} has {self.ndim} dimension(s) {shape_text(self.shape)}; "
                f"it was indexed with {len(idx)}"
            )
        if len(idx) < self.ndim:
            return TensorSlice(self, idx)
        indices = tuple(_index(self, d, i) for d, i in enumerate(idx))
        return Read(self, indices, self.dtype, self.value_index)

    def __iter__(self) -> NoReturn:
        raise TensorError(
            f"{self.name} is one tensor; where a list is asked for give [{self.name}]"
        )

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{shape_text(self.shape)})"


class TensorSlice(ExprOps):
    """``A[i]`` of a two-dimensional ``A``: waits for the remaining indices."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, more: Any) -> Any:
        extra = more if isinstance(more, tuple) else (more,)
        return self.tensor[self.indices + extra]

    def __repr__(self) -> str:
        return f"{self.tensor.name} with {len(self.indices)} of its {self.tensor.ndim} indices"


def _index(t: Tensor, dim: int, i: Any) -> Expr:
    if isinstance(i, slice):
        raise TensorError(f"{t.name}: slices are not indices; use one index a dimension")
    e = as_expr(i)
    if not dtypes.is_int(e.dtype):
        raise TensorError(
            f"{t.name}: index {dim} has dtype {e.dtype}; indices are integers (cast it)"
        )
    return e


class Operation:
    """Base class of operations; compared by identity. ``op.output(k)`` are its tensors."""

    name: str
    tag: str
    attrs: dict[str, Any]
    axis: list[IterVar]
    reduce_axis: list[IterVar]

    def __init__(self, name: str, shape: Shape, types: Sequence[str], tag: str = "") -> None:
        self.name, self.tag = name, tag
        self.attrs = {}
        self.axis, self.reduce_axis = [], []
        self._outputs = tuple(Tensor(self, shape, t, k) for k, t in enumerate(types))

    @property
    def num_outputs(self) -> int:
        """Number of tensors that the operation makes."""
        return len(self._outputs)

    def output(self, index: int) -> Tensor:
        """The tensor number ``index``.

        Raises:
            TensorError: there are not so many.
        """
        if index not in range(self.num_outputs):
            n = self.num_outputs
            many = "one output" if n == 1 else f"{n} outputs"
            raise TensorError(f"{self.name} has {many}; output({index}) was asked for")
        return self._outputs[index]

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads, in the order of first use, each once."""
        return []


class PlaceholderOp(Operation):
    """An input."""


class ComputeOp(Operation):
    """An element-by-element definition: ``body`` over ``axis`` and ``reduce_axis``.

    The body is an expression, a `Reduce`, or for several outputs a `Tuple` or a `Reduce` of tuples.
    """

    body: Expr

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the body reads, in the order of first use, each once."""
        seen: dict[Tensor, None] = {}
        for e in body_parts(self.body):
            walk(e, lambda n: seen.setdefault(n.source) if isinstance(n, Read) else None)
        return list(seen)


def body_parts(body: Expr) -> list[Expr]:
    """The expressions that a body evaluates: for a reduction its source, condition and start."""
    if isinstance(body, Reduce):
        return [*body.source, *([body.where] if body.where is not None else []), *(body.init or ())]
    return list(outputs_of(body))


def shape_of(shape: Any, what: str) -> Shape:
    """Check a shape: a sequence of extents (a single one is a vector).

    Raises:
        TensorError: it is no sequence, or an extent is neither a positive integer nor an
            expression over size variables.
    """
    single = _as_int(shape) is not None or isinstance(shape, Expr)
    if not single and not isinstance(shape, Iterable):
        raise TensorError(f"{what}: a shape is a sequence of positive integers, got {shape!r}")
    dims = (shape,) if single else tuple(shape)
    return tuple(_extent(d, dims, what) for d in dims)


def _extent(d: Any, dims: tuple[Any, ...], what: str) -> Dim:
    if isinstance(d, Expr) and not isinstance(d, Const):
        return check_extent(d, what)
    n = _as_int(d.value if isinstance(d, Const) else d)
    if n is None:
        raise TensorError(f"{what}: extents are positive integers, got {d!r} in {dims}")
    if n <= 0:
        raise TensorError(f"{what}: extents must be positive, got {n} in {dims}")
    return n


def _as_int(x: Any) -> int | None:
    """An integer of Python or NumPy as an int; None for everything else, bool included."""
    try:
        return None if isinstance(x, bool) else operator.index(x)
    except TypeError:
        return None


def placeholder(shape: Any, dtype: Any = "float32", name: str = "placeholder") -> Tensor:
    """Declare an input tensor.

    Args:
        shape: extents, outermost first: positive integers, or expressions over size variables
            with ``+``, ``-``, ``*``, and ``//`` and ``%`` by constants.
        dtype: element type; None is float32.
        name: printed name; it need not be unique.

    Raises:
        TensorError: an extent is zero, negative or no such expression; the dtype is not supported.
    """
    dims = shape_of(shape, f"placeholder {name!r}")
    return PlaceholderOp(name, dims, [dtypes.check(dtype or "float32")]).output(0)


def reduce_axis(dom: Any, name: str = "rv") -> IterVar:
    """Declare a reduction axis over ``dom = (0, extent)`` (or ``extent`` alone).

    Raises:
        TensorError: the domain is no pair, is empty, or does not start at 0.
    """
    return IterVar(Var(name), _domain(dom, f"reduce_axis {name!r}"), "reduce")


def _domain(dom: Any, what: str) -> Dim:
    """The extent of a domain ``(0, extent)``, or of ``extent`` alone."""
    single = _as_int(dom) is not None or isinstance(dom, Expr)
    if not single and not (isinstance(dom, list | tuple) and len(dom) == 2):
        raise TensorError(f"{what}: expected (0, extent), got {dom!r}")
    lo, hi = (0, dom) if single else dom
    if lo != 0:
        raise TensorError(f"{what}: domains start at 0, got ({lo}, {hi}); shift the index instead")
    (extent,) = shape_of((hi,), what)
    return extent


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """Declare a GPU thread axis for ``bind``, e.g. ``thread_axis("threadIdx.x")``.

    Args:
        dom: ``(0, n)`` or ``n``, the extent of the launch, which the bound loops must have; None
            takes it from them. A string is the tag.
        tag: ``"blockIdx.x"``, ``"threadIdx.x"`` (or y, z), or ``"vthread"``.
        name: printed name; default the tag.

    Raises:
        TensorError: an unknown tag; a domain that is empty or does not start at 0.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if tag not in THREAD_TAGS:
        raise TensorError(f"thread_axis: unknown tag {tag!r}; use one of {', '.join(THREAD_TAGS)}")
    extent = 0 if dom is None else _domain(dom, f"thread_axis {name or tag!r}")
    if not isinstance(extent, int):
        raise TensorError(f"thread_axis {name or tag!r}: the extent must be a number, got {extent}")
    return IterVar(Var(name or tag), extent, "thread", tag)


def compute(
    shape: Any,
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
        fcompute: gets one axis a dimension and returns the element's expression, or a tuple of
            them, one an output; of reductions only a whole reduction of tuples. It is called once.
        name: printed name; it need not be unique.
        tag: free text about the operation.
        attrs: free attributes.
        varargs_names: names of the axes that a function with ``*args`` gets through it; default
            ``i0``, ``i1`` and so on, by dimension.

    Returns:
        The tensor; with several outputs a tuple of them.

    Raises:
        TensorError: wrong number of arguments, a value that is no expression, a reduction inside
            another expression, an element that lies outside its tensor, a bool from ``==``.
    """
    dims = shape_of(shape, f"compute {name!r}")
    names = _axis_names(fcompute, len(dims), name, varargs_names)
    axes = [IterVar(Var(n), d, "spatial") for n, d in zip(names, dims, strict=True)]
    result = fcompute(*[a.var for a in axes])
    body = _body(result, name)
    op = ComputeOp(name, dims, [e.dtype for e in outputs_of(body)], tag)
    op.attrs = dict(attrs or {})
    op.axis = axes
    op.reduce_axis = list(body.axes) if isinstance(body, Reduce) else []
    op.body = body
    _check_body(op)
    return op.output(0) if op.num_outputs == 1 else op._outputs


def _body(result: Any, name: str) -> Expr:
    """The body that a function's result stands for."""
    given = list(result) if isinstance(result, list | tuple) else [result]
    if not given:
        raise TensorError(f"compute {name!r}: the function returned no expression")
    for x in given:
        if isinstance(x, bool):
            raise TensorError(f"compute {name!r}: returned the Python value {x}; see te.equal")
    values = tuple(as_expr(x) for x in given)
    first = values[0]
    if isinstance(first, Reduced) and values == first.reduce.outputs():
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
        return (fixed + _varargs(ndim, len(fixed), name, varargs_names))[:ndim]
    if varargs_names is not None:
        raise TensorError(f"compute {name!r}: varargs_names is for a function with *args; leave it")
    given = [p.name for p in params if p.default is p.empty]
    if len(given) != ndim:
        raise TensorError(
            f"compute {name!r}: the function takes {len(given)} axes ({', '.join(given)}), "
            f"the shape has {ndim} dimension(s)"
        )
    return given


def _varargs(ndim: int, fixed: int, name: str, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return [f"i{d}" for d in range(fixed, ndim)]
    names = [given] if isinstance(given, str) else [str(n) for n in given]
    if len(names) != max(ndim - fixed, 0):
        raise TensorError(
            f"compute {name!r}: varargs_names has {len(names)} name(s), *args gets "
            f"{max(ndim - fixed, 0)} of the {ndim} axes"
        )
    return names


def _check_body(op: ComputeOp) -> None:
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


def _scope(axes: list[IterVar]) -> Sizes:
    """The axes that an expression may use, with their bounds."""
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
        check_read(e, op.name, scope)
    if isinstance(e, IfThenElse):
        _check_expr(e.cond, op, scope, guarded)
        _check_expr(e.a, op, scope, True)
        _check_expr(e.b, op, scope, True)
        return
    for c in e.children():
        _check_expr(c, op, scope, guarded)
