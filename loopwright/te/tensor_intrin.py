"""Tensor intrinsics: a small computation, and statements that do it in a better way.

An intrinsic is data: its description is a DAG, its bodies are statements that were written once.
So it travels with a trace as JSON, to builders in other processes and into logs, and nothing in it
is ever executed but as part of a lowered program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Const, Expr, Read, Var, tracing
from loopwright.ir.instructions import INSTRUCTIONS
from loopwright.ir.node import Node
from loopwright.ir.stmt import Func, IntrinsicCall, Stmt, Store
from loopwright.ir.verify import verify
from loopwright.ir.visitor import nodes
from loopwright.te.dag import Dag
from loopwright.te.ir_builder import BufferView
from loopwright.te.op_node import OpNode
from loopwright.te.serial import Json, stmt_from_json, stmt_to_json
from loopwright.te.tensor import ComputeOp, Operation, ShapeLike, Tensor, shape_of, static_shape

#: For each dimension of an operand its stride in elements; None where any will do.
Strides = tuple[int | None, ...]
_BODIES = ("body", "reset", "update")
#: Digests of the intrinsics that this process has declared, or was told of by its parent. An
#: intrinsic from a file that is not among them has to be proved harmless before it is used
#: (`loopwright.te.intrin_proof`).
DECLARED: set[str] = set()
#: Digests of those that are not compared with their descriptions.
APPROXIMATE: set[str] = set()


class OperandBuffer:
    """Layout in memory of an operand of an intrinsic; made by `decl_buffer`."""

    def __init__(self, shape: tuple[int, ...], dtype: str, name: str, strides: Strides) -> None:
        self.shape, self.dtype, self.name, self.strides = shape, dtype, name, strides

    @property
    def compact(self) -> bool:
        """Whether it is row-major without gaps, or its strides may be such."""
        wanted = zip(self.strides, _compact(self.shape), self.shape, strict=True)
        return all(have in (None, need) or extent == 1 for have, need, extent in wanted)


def decl_buffer(
    shape: ShapeLike,
    dtype: str = "float32",
    name: str = "buffer",
    strides: Sequence[int | Expr | None] | None = None,
) -> OperandBuffer:
    """Say how an operand of an intrinsic must lie in memory, for `decl_tensor_intrin`.

    Args:
        shape, dtype: those of the tensor.
        strides: for each dimension the elements from one index to the next: a number, or a variable
            or None where any stride will do. None: row-major without gaps.

    Raises:
        TensorError: strides of another number of dimensions.
    """
    dims = static_shape(shape_of(shape, f"decl_buffer {name!r}"))
    if strides is None:
        return OperandBuffer(dims, dtypes.check(dtype), name, _compact(dims))
    numbers = tuple(s if isinstance(s, int) else None for s in strides)
    if len(numbers) != len(dims):
        raise TensorError(
            f"decl_buffer {name!r}: {len(numbers)} stride(s) for {len(dims)} dimension(s)"
        )
    return OperandBuffer(dims, dtypes.check(dtype), name, numbers)


def _compact(shape: Sequence[int]) -> Strides:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


class TensorIntrin:
    """A tensor intrinsic; made by `decl_tensor_intrin`.

    Its description ``dag`` has inputs, then one compute; ``strides`` are of each input in the order
    of the DAG, then of the output, and ``params`` the buffers of these in the bodies. ``body`` does
    the whole computation, ``reset`` sets the output to the reduction's starting value, ``update``
    adds the reduction to the output (both None where there is none).

    Example:
        >>> intrin = te.intrinsics.dot_uint8_int8_int32(16)
        >>> print(intrin, intrin.op.name, intrin.op.shape)
        TensorIntrin(dot_16x4_uint8_int8_int32) C (16,)
        >>> print(te.TensorIntrin.from_json(intrin.to_json()) == intrin)
        True
    """

    def __init__(
        self,
        name: str,
        dag: Dag,
        strides: Sequence[Strides],
        bodies: Sequence[Stmt | None],
        params: Sequence[Buffer],
    ) -> None:
        self.name, self.dag, self.strides = name, dag, tuple(strides)
        self.params = tuple(params)
        self.body, self.reset, self.update = bodies
        _check(self)

    @property
    def op(self) -> OpNode:
        """The operation that describes what is computed."""
        return self.dag.ops[-1]

    @cached_property
    def of_warp(self) -> bool:
        """Whether the lanes of a warp run it together, as those of tensor cores."""
        parts = [x for x in (self.body, self.reset, self.update) if x is not None]
        calls = (n for x in parts for n in nodes(x) if isinstance(n, IntrinsicCall))
        return any(INSTRUCTIONS[n.name].lanes is not None for n in calls)

    def to_json(self) -> dict[str, Json]:
        parts = {k: getattr(self, k) for k in _BODIES}
        return {
            "name": self.name,
            "dag": self.dag.to_json(),
            "strides": [list(s) for s in self.strides],
            **{k: s and stmt_to_json(s, self.params) for k, s in parts.items()},
        }

    @staticmethod
    def from_json(data: Json) -> TensorIntrin:
        """The intrinsic that `to_json` wrote; TensorError for malformed data."""
        want = {"name", "dag", "strides", *_BODIES}
        if not isinstance(data, dict) or set(data) != want:
            raise TensorError(f"the JSON of an intrinsic has the entries {', '.join(sorted(want))}")
        dag = Dag.from_json(data["dag"])
        params = operand_buffers(dag)
        if not isinstance(data["name"], str) or not isinstance(data["strides"], list):
            raise TensorError("the JSON of an intrinsic has a name, and a list of strides")
        bodies = [None if data[k] is None else stmt_from_json(data[k], params) for k in _BODIES]
        for s in data["strides"]:
            if not isinstance(s, list | tuple) or not all(x is None or type(x) is int for x in s):
                raise TensorError(f"strides are a list of integers and nulls, got {s!r}")
        return TensorIntrin(data["name"], dag, list(map(tuple, data["strides"])), bodies, params)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its JSON, by which two processes know that they mean the same intrinsic."""
        return json_digest(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorIntrin) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def json_digest(data: Json) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def operand_buffers(dag: Dag) -> list[Buffer]:
    """A buffer for each operand of a description: the inputs, then the output."""
    return [Buffer(op.name, op.shape, op.dtype) for op in dag.ops]


def decl_tensor_intrin(
    op: Operation | Tensor,
    fcompute: Callable[[list[BufferView], list[BufferView]], Stmt | Sequence[Stmt | None]],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, OperandBuffer] | None = None,
    default_buffer_params: Mapping[str, object] | None = None,
    approximate: bool = False,
) -> TensorIntrin:
    """Declare an intrinsic for ``s[C].tensorize``.

    Args:
        op: the description: a compute over placeholders (or its tensor), of constant extents. Each
            dimension of an input is read at one axis, or at a literal.
        fcompute: gets the inputs (in the order in which ``op`` reads them) and the outputs, and
            returns the statement that does the computation; or ``(body, reset, update)``, where
            ``reset`` sets the output to the reduction's starting value and ``update`` adds to it.
            It is called once.
        name: its name in messages.
        binds: how operands lie in memory (`decl_buffer`); default row-major without gaps.
        default_buffer_params: for scripts of TVM: ``offset_factor`` and ``data_alignment`` of the
            operands that are not in ``binds``, which change nothing.
        approximate: the body may give other values than the description: a product that saturates,
            a reciprocal of twelve bits. Else both are compared when a schedule first uses the
            intrinsic: on small integers, random data, zeros and limits, infinities and NaN. Tuning
            checks what it measures all the same; a template whose operands stay in a range that
            suits the intrinsic says so by its ``make_inputs``.

    Raises:
        TensorError: the description is no single compute over placeholders; what the function
            returns is no statement, touches other buffers, or is malformed; another parameter of
            buffers.

    Example:
        >>> x = te.placeholder((4,), name="x")
        >>> y = te.compute((4,), lambda i: x[i] * 2, name="y")
        >>> def double(inputs, outputs):
        ...     ib = te.ir_builder()
        ...     with ib.for_range(4, "l", "vectorized") as l:
        ...         ib.emit(outputs[0].store(l, inputs[0][l] * 2))
        ...     return ib.get()
        ...
        >>> intrin = te.decl_tensor_intrin(y.op, double, name="double4")
        >>> A = te.placeholder((16,), name="A")
        >>> B = te.compute((16,), lambda i: A[i] * 2, name="B")
        >>> s = te.create_schedule(B.op)
        >>> io, ii = s[B].split(B.op.axis[0], factor=4)
        >>> s[B].tensorize(ii, intrin)
        >>> print(lw.lower(s, [A, B]))
        def main(A: float32[16], B: out float32[16]):
          for i.0 in range(4):
            for l in vectorized(4):
              B[i.0 * 4 + l] = A[i.0 * 4 + l] * 2.0
    """
    op = op.op if isinstance(op, Tensor) else op
    who = f"decl_tensor_intrin {name!r}"
    if not isinstance(op, ComputeOp):
        raise TensorError(f"{who}: the description is a te.compute, got {op!r}")
    for parameter in default_buffer_params or ():
        # These change nothing: an operand may begin at any element.
        if parameter not in ("data_alignment", "offset_factor"):
            raise TensorError(
                f"{who}: default_buffer_params has {parameter!r}; say it of each operand in binds"
            )
    if any(isinstance(t.op, ComputeOp) for t in op.input_tensors):
        raise TensorError(
            f"{who}: the description reads what another compute makes; it is one "
            "compute over placeholders"
        )
    dag, _ = Dag.from_ops([op])
    if dag.sizes:
        raise TensorError(f"{who}: the extents of an intrinsic are numbers, not size variables")
    params = operand_buffers(dag)
    views = [BufferView(b) for b in params]
    with tracing(who):
        result = fcompute(views[:-1], views[-1:])
    bodies = list(result) if isinstance(result, Sequence) else [result, None, None]
    if len(bodies) != len(_BODIES) or not all(s is None or isinstance(s, Stmt) for s in bodies):
        raise TensorError(
            f"{who}: the function returns a statement, or (body, reset, update); got {result!r}"
        )
    strides = _declared_strides([*op.input_tensors, *op._outputs], binds or {}, who)
    intrin = TensorIntrin(name, dag, strides, bodies, params)
    DECLARED.add(intrin.digest)
    if approximate:
        APPROXIMATE.add(intrin.digest)
    return intrin


def _declared_strides(
    operands: Sequence[Tensor], binds: Mapping[Tensor, OperandBuffer], who: str
) -> list[Strides]:
    """Strides of the operands: those of the buffers in ``binds``, else of rows without gaps."""
    for t in binds:
        if t not in operands:
            raise TensorError(f"{who}: binds names {t!r}, which is no operand")
    strides = []
    for t in operands:
        b = binds.get(t)
        if b is not None and (b.shape, b.dtype) != (t.shape, t.dtype):
            raise TensorError(
                f"{who}: the buffer of {t.name!r} is {b.dtype}{list(b.shape)}, the tensor "
                f"{t.dtype}{list(t.shape)}"
            )
        strides.append(_compact(t.static_shape) if b is None else b.strides)
    return strides


def _check(x: TensorIntrin) -> None:
    who = f"decl_tensor_intrin {x.name!r}"
    *inputs, op = x.dag.ops
    if any(i.body is not None for i in inputs) or op.body is None or op.num_outputs != 1:
        raise TensorError(f"{who}: the description is one compute of one output over placeholders")
    if x.dag.sizes:
        raise TensorError(f"{who}: the extents of an intrinsic are numbers, not size variables")
    if len(x.strides) != len(x.dag.ops) or any(
        len(s) != len(o.shape) for s, o in zip(x.strides, x.dag.ops, strict=True)
    ):
        raise TensorError(f"{who}: strides do not fit the operands")
    if x.body is None:
        raise TensorError(f"{who}: there is no body")
    _check_reads(who, op)
    for part in (x.body, x.reset, x.update):
        if part is not None:
            _check_body(who, x, part)


def _check_reads(who: str, op: OpNode) -> None:
    red, axes = op.reduction, {a.var for a in (*op.axes, *op.reduce_axes)}
    if red is not None and (red.where is not None or red.init is not None):
        raise TensorError(f"{who}: the description's reduction has where= or init=; leave them out")

    def value(e: Node) -> None:
        if isinstance(e, Var):
            raise TensorError(
                f"{who}: the description uses the axis {e.name!r} as a value; it may only be an "
                "index"
            )
        if not isinstance(e, Read):
            for c in e.children():
                value(c)
            return
        used = [i for i in e.indices if not isinstance(i, Const)]
        if not all(i in axes for i in used) or len(set(used)) != len(used):
            raise TensorError(
                f"{who}: each dimension of an input is read at one axis or at a literal; an index "
                "of the description is neither"
            )

    for e in red.source if red is not None else (op.body,):
        assert e is not None
        value(e)


def _check_body(who: str, x: TensorIntrin, body: Stmt) -> None:
    stmt_to_json(body, x.params)
    declared = dict(zip(x.params, x.strides, strict=True))

    for n in nodes(body):
        if isinstance(n, Store) and n.buffer in x.params[:-1]:
            raise TensorError(f"{who}: the body writes the input {n.buffer.name!r}")
        if isinstance(n, IntrinsicCall):
            _check_operands(who, n, declared)
    outputs = tuple(b is x.params[-1] for b in x.params)
    verify(Func(x.name, x.params, outputs, body), "in the body of an intrinsic")


def _check_operands(who: str, call: IntrinsicCall, declared: Mapping[Buffer, Strides]) -> None:
    for x, want in zip(call.operands, INSTRUCTIONS[call.name].operands, strict=True):
        strides = declared.get(x.buffer, _compact(x.buffer.extents))[-len(want.shape) :]
        if strides != _compact(want.shape):
            raise TensorError(
                f"{who}: operand {want.name!r} of {call.name} is {list(want.shape)} without gaps; "
                f"the strides of {x.buffer.name!r} are {list(strides)}"
            )
