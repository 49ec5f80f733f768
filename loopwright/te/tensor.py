"""Tensors, the operations that make them, and axes: `placeholder`, `reduce_axis`, `thread_axis`.

An operation keeps expressions, never a function (`loopwright.te.computes`). The names and meanings
are those of TVM's te. Extents are positive Python integers or expressions over size variables
(`var`, `size_var`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir import expr as ir
from loopwright.ir.node import same
from loopwright.ir.printer import shape_text
from loopwright.ir.reduction import Reduce, Tuple, outputs_of
from loopwright.ir.sizes import Shape, Sizes, SizeVar, check_extent
from loopwright.ir.visitor import nodes
from loopwright.te import ufuncs
from loopwright.te.reducer import sum as te_sum

#: An extent as users give it, and a shape, of which a single extent is the one dimension. A float
#: is one where it is whole: ``N / 32`` in scripts of TVM.
DimLike = int | float | np.integer[Any] | ir.Expr
ShapeLike = DimLike | Iterable[DimLike]
#: The domain of an axis: ``(0, extent)``, or the extent alone.
Domain = DimLike | tuple[int, DimLike] | list[DimLike]
#: Axes that a loop can be bound to.
THREAD_TAGS = (*(f"{p}.{c}" for p in ("blockIdx", "threadIdx") for c in "xyz"), "vthread")


class Tensor(NDArrayOperatorsMixin):
    """A multi-dimensional value: the output of an operation. ``A[i, j]`` is an element.

    Its shape has the extents, outermost first: ints, or expressions over size variables.

    ``A + B``, ``A * 2``, ``A < B`` and functions of NumPy, such as ``np.exp(A)``, are tensors, with
    NumPy's dtype, values and broadcasting; ``A += B`` makes a new one. ``A == B`` asks whether both
    are one tensor; ``np.equal(A, B)`` compares elements. Sums over an axis are `te.sum`'s, but for
    ``A @ B``.

    Example:
        >>> A = te.placeholder((2, 3), name="A")
        >>> print(A.name, A.shape, A.dtype, A.ndim)
        A (2, 3) float32 2
        >>> print(A[0, 2])
        A[0, 2]
        >>> B = np.maximum(A * 2 + 1, 0)
        >>> print(B, "by", B.op.body)
        Tensor(maximum: float32[2, 3]) by max(add[i0, i1], 0.0)
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

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers; TensorError where it depends on sizes."""
        return static_shape(self.shape)

    def __call__(self, *indices: ir.ExprLike) -> Any:
        """``A(i, j)``: the same as ``A[i, j]``."""
        return self[indices]

    # Any: an element, or a slice that waits for more indices.
    def __getitem__(self, indices: ir.ExprLike | tuple[ir.ExprLike, ...]) -> Any:
        idx = indices if isinstance(indices, tuple) else (indices,)
        if len(idx) > self.ndim or (self.ndim == 0 and idx):
            raise TensorError(
                f"{self.name} has {self.ndim} dimension(s) {shape_text(self.shape)}; "
                f"it was indexed with {len(idx)}"
            )
        if len(idx) < self.ndim:
            return TensorSlice(self, idx)
        if any(isinstance(i, slice) for i in idx):
            raise TensorError(f"{self.name}: slices are not indices; use one index a dimension")
        at = tuple(map(ir.as_expr, idx))
        for d, e in enumerate(at):
            if not dtypes.is_int(e.dtype):
                raise TensorError(
                    f"{self.name}: index {d} has dtype {e.dtype}; indices are integers (cast it)"
                )
        return ir.Read(self, at, self.dtype, self.value_index)

    def __eq__(self, other: object) -> Any:
        if ir.traced() and isinstance(other, ir.ExprOps | int | float):
            ir.as_expr(self)  # says that an element is missing
        return NotImplemented

    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __pow__(self, exponent: object) -> Any:
        return ufuncs.to_power(self, exponent)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        if ufunc in (np.equal, np.not_equal) and isinstance(operands[0], np.ndarray):
            return ufunc is np.not_equal  # ``array == A``, or ``A == array``: no tensor
        ir.check_call(ufunc, method, options)
        operands = tuple(x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in operands)
        return _matmul(*operands) if ufunc is np.matmul else _elementwise(ufunc, operands)

    def astype(self, dtype: str) -> Any:
        """Each element in another dtype; floats that become integers as of `Expr.astype`."""
        axes = _axes(self.shape)
        return _computed("astype", self.shape, axes, (_element(self, axes).astype(dtype),))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function in (np.shape, np.ndim):
            return self.shape if function is np.shape else self.ndim
        if function is np.where and len(args) == 3:
            return _elementwise(np.where, args)
        return ir.call_counterpart(function, args, options)

    __float__ = __int__ = ir.no_value
    __round__ = ir.ExprOps.__round__

    def __bool__(self) -> NoReturn:
        raise TensorError(
            f"{self.name} has no truth value; te.select chooses between elements, np.where between "
            "tensors, and 'is None' asks whether there is a tensor"
        )

    def __iter__(self) -> NoReturn:
        raise TensorError(f"{self.name} is one tensor; where a list is expected give [{self.name}]")

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{shape_text(self.shape)})"


for _op in (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and",
    "xor", "or",
):  # fmt: skip
    # ``A += B`` names a new tensor, where ``np.add(A, B, out=A)`` is refused.
    setattr(Tensor, f"__i{_op}__", getattr(Tensor, f"__{_op}__"))


class TensorSlice(ir.ExprOps):
    """``A[i]`` of a two-dimensional ``A``: an element, once the remaining indices follow."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[ir.ExprLike, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, more: ir.ExprLike | tuple[ir.ExprLike, ...]) -> Any:
        return self.tensor[self.indices + (more if isinstance(more, tuple) else (more,))]

    def __repr__(self) -> str:
        return f"{self.tensor.name} with {len(self.indices)} of its {self.tensor.ndim} indices"


class Operation:
    """Base class of operations, which are compared by identity.

    Example:
        >>> A = te.placeholder((2, 3), name="A")
        >>> B = te.compute((3, 2), lambda i, j: A[j, i], name="B")
        >>> print(B.op)
        ComputeOp(B: float32[3, 2])
        >>> print([axis.name for axis in B.op.axis], B.op.input_tensors)
        ['i', 'j'] [Tensor(A: float32[2, 3])]
    """

    name: str  #: as it is printed
    tag: str  #: free text
    attrs: dict[str, Any]  #: free attributes
    axis: list[ir.IterVar]  #: one for each dimension of the outputs; none of an input
    reduce_axis: list[ir.IterVar]  #: those of the reduction, if it is one

    def __init__(self, name: str, shape: Shape, types: Sequence[str], tag: str = "") -> None:
        self.name, self.tag = name, tag
        self.attrs = {}
        self.axis, self.reduce_axis = [], []
        self._outputs = tuple(Tensor(self, shape, t, k) for k, t in enumerate(types))

    def __repr__(self) -> str:
        outputs = ", ".join(f"{t.name}: {t.dtype}{shape_text(t.shape)}" for t in self._outputs)
        return f"{type(self).__name__}({outputs})"

    @property
    def num_outputs(self) -> int:
        """Number of tensors that the operation computes."""
        return len(self._outputs)

    def output(self, index: int) -> Tensor:
        """The tensor number ``index``; TensorError where there are not so many."""
        if index not in range(self.num_outputs):
            n = self.num_outputs
            many = "one output" if n == 1 else f"{n} outputs"
            raise TensorError(f"{self.name} has {many}; there is no output({index})")
        return self._outputs[index]

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads, in the order of first use, each once."""
        return []


class PlaceholderOp(Operation):
    """An input.

    Example:
        >>> print(te.placeholder((4,), name="A").op)
        PlaceholderOp(A: float32[4])
    """

    constant = False  # whether its values are known before calls, as those of weights are


class ComputeOp(Operation):
    """An element-by-element definition: ``body`` over ``axis`` and ``reduce_axis``.

    The body is an expression, a `Reduce`, or for several outputs a `Tuple` or a `Reduce` of tuples.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> print(B.op)
        ComputeOp(B: float32[4])
        >>> print(B.op.body)
        A[i] + 1.0
    """

    body: ir.Expr
    #: `loopwright.te.computes` puts its checks of a body here.
    _check: ClassVar[Callable[[Any], None]]

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the body reads, in the order of first use, each once."""
        parts = body_parts(self.body)
        return list(
            dict.fromkeys(n.source for e in parts for n in nodes(e) if isinstance(n, ir.Read))
        )


def _elementwise(function: Any, operands: Sequence[Any]) -> Any:
    """The tensor, or tensors, of a function of NumPy, broadcast as it broadcasts."""
    name = function.__name__
    ir.counterpart(ufuncs.FUNCTIONS, function)
    for x in operands:
        if isinstance(x, ir.ExprOps) and ir.traced():
            ir.as_expr(next(t for t in operands if isinstance(t, Tensor)))  # an element is missing
        if isinstance(x, np.ndarray | list | tuple):
            raise TensorError(
                f"np.{name}: an array ({np.shape(x)}) beside a tensor; the values of tensors are "
                "given to the kernel: declare an input, te.placeholder"
            )
    dims = _broadcast(name, [x.shape for x in operands if isinstance(x, Tensor)])
    axes = _axes(dims)
    elements = [_element(x, axes) if isinstance(x, Tensor) else x for x in operands]
    result = ufuncs.value(function, *elements)
    return _computed(name, dims, axes, result if isinstance(result, tuple) else (result,))


def _axes(dims: Shape) -> list[ir.IterVar]:
    return [ir.IterVar.named(f"i{d}", n, "spatial") for d, n in enumerate(dims)]


def _element(x: Tensor, axes: Sequence[ir.ExprLike]) -> ir.Expr:
    """The element at the last of the axes; a dimension of one element has the same for all."""
    at = zip(x.shape, axes[len(axes) - x.ndim :], strict=True)
    return ir.as_expr(x[tuple(0 if same(n, 1) else axis for n, axis in at)])


def _computed(name: str, dims: Shape, axes: list[ir.IterVar], values: tuple[ir.Expr, ...]) -> Any:
    op = ComputeOp(name, dims, [e.dtype for e in values])
    op.axis, op.body = axes, Tuple(values, values[0].dtype) if len(values) > 1 else values[0]
    op.reduce_axis = list(op.body.axes) if isinstance(op.body, Reduce) else []
    op._check()
    return op.output(0) if op.num_outputs == 1 else op._outputs


def _matmul(a: Any, b: Any) -> Any:
    """``a @ b``: rows of a by columns of b; dimensions before the last two are broadcast."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim and b.ndim):
        raise TensorError(f"np.matmul: both are tensors of a dimension or more, got {a!r}, {b!r}")
    sizes = Sizes()
    if sizes.of(a.shape[-1]) != sizes.of(b.shape[-min(b.ndim, 2)]):
        raise TensorError(
            f"np.matmul: the rows of {a.name} {shape_text(a.shape)} and the columns of {b.name} "
            f"{shape_text(b.shape)} differ in length"
        )
    outer = _broadcast("matmul", [a.shape[:-2], b.shape[:-2]])
    dims = (*outer, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
    axes, k = _axes(dims), reduce_axis((0, a.shape[-1]), name="k")
    row = axes[len(outer) : len(outer) + (a.ndim > 1)]
    left = _element(a, [*axes[: len(outer)], *row, k])
    right = _element(b, [*axes[: len(outer)], k, *(axes[-1:] if b.ndim > 1 else ())])
    product = ufuncs.value(np.multiply, left, right)
    return _computed("matmul", dims, axes, (te_sum(product, axis=k),))


def _broadcast(name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape to which others broadcast."""
    most = max(map(len, shapes))
    return tuple(_common_extent(name, shapes, d) for d in range(-most, 0))


def _common_extent(name: str, shapes: Sequence[Shape], at: int) -> ir.Dim:
    """The extent of the dimension ``at``, counted from the last, to which shapes broadcast."""
    extents = [s[at] for s in shapes if len(s) >= -at]
    wide, sizes = [n for n in extents if not same(n, 1)], Sizes()
    if not all(same(n, wide[0]) or sizes.of(n) == sizes.of(wide[0]) for n in wide):
        texts = " and ".join(map(shape_text, shapes))
        raise TensorError(f"np.{name}: the shapes {texts} do not broadcast (dimension {at})")
    return wide[0] if wide else 1


def body_parts(body: ir.Expr | None) -> list[ir.Expr]:
    """Expressions that a body evaluates: for a reduction its source, condition and start."""
    if body is None:
        return []
    if isinstance(body, Reduce):
        return [*body.source, *([body.where] if body.where is not None else []), *(body.init or ())]
    return list(outputs_of(body))


def static_shape(shape: Iterable[ir.Dim]) -> tuple[int, ...]:
    """Extents as numbers; a TensorError where one of them depends on sizes."""
    dims = tuple(shape)
    extents = tuple(n for n in dims if isinstance(n, int))
    if len(extents) != len(dims):
        raise TensorError(f"the shape {shape_text(dims)} depends on sizes; bind them to numbers")
    return extents


def shape_of(shape: ShapeLike, what: str) -> Shape:
    """Extents of a shape, checked; a single extent is the shape of a vector."""
    if isinstance(shape, ir.Expr) or whole(shape) is not None:
        return (_extent(shape, (shape,), what),)
    if not isinstance(shape, Iterable):
        raise TensorError(f"{what}: a shape is a sequence of positive integers, got {shape!r}")
    dims = tuple(shape)
    return tuple(_extent(d, dims, what) for d in dims)


def _extent(d: object, dims: tuple[object, ...], what: str) -> ir.Dim:
    if isinstance(d, ir.Expr) and not isinstance(d, ir.Const):
        return check_extent(d, what)
    n = whole(d)
    if n is None:
        hint = "; divide with //" if isinstance(d, float) else ""
        raise TensorError(f"{what}: extents are positive integers, got {d!r} in {dims}{hint}")
    if n <= 0:
        raise TensorError(f"{what}: extents must be positive, got {n} in {dims}")
    return n


def whole(x: object) -> int | None:
    """A whole number as an int, be it a float or a literal; None for all else and for a bool."""
    if isinstance(x, ir.Const):
        return whole(x.value)
    if isinstance(x, float):
        return int(x) if x.is_integer() else None
    try:
        return None if isinstance(x, bool) else operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        return None


def placeholder(
    shape: ShapeLike,
    dtype: str | None = "float32",
    name: str = "placeholder",
    constant: bool = False,
) -> Tensor:
    """Declare an input tensor.

    Args:
        shape: extents, outermost first: positive integers, or expressions over size variables
            with ``+``, ``-``, ``*``, and ``//`` and ``%`` by constants.
        dtype: element type; None is float32.
        name: printed name; it need not be unique.
        constant: the values are known before calls and stay the same, as those of weights. Stages
            at the root that depend on such tensors alone are computed once for many calls
            (`loopwright.runtime.Module.with_constants`) and outside the times that are measured.

    Raises:
        TensorError: an extent is zero, negative or no such expression; the dtype is not supported;
            ``constant`` is no bool.

    Example:
        >>> W = te.placeholder((8, 4), name="W", constant=True)
        >>> print(W, W.op.constant)
        Tensor(W: float32[8, 4]) True
    """
    if not isinstance(constant, bool):
        raise TensorError(f"placeholder {name!r}: constant is True or False, got {constant!r}")
    dims = shape_of(shape, f"placeholder {name!r}")
    op = PlaceholderOp(name, dims, [dtypes.check(dtype or "float32")])
    op.constant = constant
    return op.output(0)


def reduce_axis(dom: Domain, name: str = "rv", thread_tag: str = "") -> ir.IterVar:
    """Declare a reduction axis over ``dom = (0, extent)`` (or ``extent`` alone).

    Raises:
        TensorError: the domain is no pair, is empty, or does not start at 0; a thread tag, which TE
            takes and gives no effect.

    Example:
        >>> A = te.placeholder((4, 8), name="A")
        >>> k = te.reduce_axis((0, 8), name="k")
        >>> rows = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="rows")
        >>> print(rows)
        Tensor(rows: float32[4])
    """
    if thread_tag:
        raise TensorError(
            f"reduce_axis {name!r}: thread_tag={thread_tag!r} binds nothing; leave it out and call "
            f"s[...].bind(axis, te.thread_axis({thread_tag!r}))"
        )
    return ir.IterVar.named(name, _domain(dom, f"reduce_axis {name!r}"), "reduce")


def _domain(dom: Domain, what: str) -> ir.Dim:
    lo: DimLike = 0
    if isinstance(dom, list | tuple) and len(dom) == 2:
        lo, hi = dom
    elif not isinstance(dom, list | tuple) and (isinstance(dom, ir.Expr) or whole(dom) is not None):
        hi = dom
    else:
        raise TensorError(f"{what}: expected (0, extent), got {dom!r}")
    if lo != 0:
        raise TensorError(f"{what}: domains start at 0, got ({lo}, {hi}); shift the index instead")
    (extent,) = shape_of((hi,), what)
    return extent


def thread_axis(dom: Domain | str | None = None, tag: str = "", name: str = "") -> ir.IterVar:
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
        return thread_axis(None, dom, name)
    if tag not in THREAD_TAGS:
        raise TensorError(f"thread_axis: unknown tag {tag!r}; use one of {', '.join(THREAD_TAGS)}")
    extent = 0 if dom is None else _domain(dom, f"thread_axis {name or tag!r}")
    if not isinstance(extent, int):
        raise TensorError(f"thread_axis {name or tag!r}: the extent must be a number, got {extent}")
    return ir.IterVar(ir.Var(name or tag), extent, "thread", tag)


def var(name: str = "n", dtype: str = "int32") -> SizeVar:
    """A size that is known only when the program runs: ``te.placeholder((n, 4))``.

    One built function then serves every size. The value comes from the shapes of the arrays that
    the function is called with; a variable that no dimension tells is passed as an int, at its
    place in ``build(s, [n, A, B])``. As an extent it must be 1 to 2**30 (checked at each call);
    it may be 0 where this leaves no output with elements: then nothing runs.

    Raises:
        TensorError: the dtype is not int32 or int64: another number is a tensor of shape ``()``.

    Example:
        >>> n = te.var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B])
        >>> for size in (2, 3):
        ...     b = np.empty(size, "float32")
        ...     f(np.zeros(size, "float32"), b)
        ...     print(b)
        ...
        [1. 1.]
        [1. 1. 1.]
    """
    return SizeVar(name, _size_dtype(name, dtype), False)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """As `var`, with the promise that it is not negative (a call checks it).

    Example:
        >>> n = te.size_var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] + 1, name="B")
        >>> print(lw.lower(te.create_schedule(B.op), [A, B]))
        def main(A: float32[n], B: out float32[n], n: int32):
          for i in range(n):
            B[i] = A[i] + 1.0
    """
    return SizeVar(name, _size_dtype(name, dtype), True)


def _size_dtype(name: str, dtype: str) -> str:
    if dtype not in ("int32", "int64"):
        raise TensorError(
            f"var {name!r}: size variables are int32 or int64, got {dtype}; pass other numbers as "
            "a tensor of shape ()"
        )
    return dtype
