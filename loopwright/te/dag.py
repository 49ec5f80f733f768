"""The DAG of a program: operations in topological order, canonical JSON, hash and FLOP count.

A `Dag` holds no functions and no objects of users: a body reads other operations by their index.
The JSON names axes by position and keeps their names only as labels, so that the hash depends only
on what is computed; it is the same in another process and on another machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.expr import Binary, Call, IfThenElse, Read, Select, Unary, Var
from loopwright.ir.node import Node
from loopwright.ir.reduction import Reduce, Tuple, outputs_of
from loopwright.ir.sizes import Sizes, SizeVar
from loopwright.ir.visitor import contains, map_nodes
from loopwright.te import serial
from loopwright.te.computes import check_read
from loopwright.te.op_node import OpNode, SizeValues, bind_sizes, sizes_of
from loopwright.te.serial import Json
from loopwright.te.source import program_source
from loopwright.te.tensor import ComputeOp, Operation, PlaceholderOp, body_parts, shape_of

#: An argument as data: the index of an operation, or that and the number of one of its outputs.
ArgId = int | tuple[int, int]


def arg_id(index: int, output: int = 0) -> ArgId:
    """Output ``output`` of operation ``index``: the index alone for output 0."""
    return index if output == 0 else (index, output)


def read_arg_id(x: Json) -> tuple[int, int]:
    """Operation and output of an `ArgId`, from JSON as well."""
    op, output = x if isinstance(x, list | tuple) and len(x) == 2 else (x, 0)
    if any(not isinstance(v, int) or isinstance(v, bool) for v in (op, output)):
        raise TensorError(
            f"an argument is the index of an operation, or [index, output], got {x!r}"
        )
    return op, output


@dataclass(frozen=True, eq=False)
class Dag:
    """The operations of a program.

    ``Read.source`` is an index into ``ops``, which are in topological order; ``outputs`` are the
    indices of the results.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> dag, index = te.Dag.from_ops([B.op])
        >>> print([op.name for op in dag.ops], index[B.op])
        ['A', 'B'] 1
        >>> print(dag.consumers(0), te.Dag.from_json(dag.to_json()).hash == dag.hash)
        [1] True
    """

    ops: tuple[OpNode, ...]
    outputs: tuple[int, ...]

    @staticmethod
    def from_ops(outputs: Sequence[Operation]) -> tuple[Dag, dict[Operation, int]]:
        """The DAG of everything that ``outputs`` need, and the index of each operation in it.

        A constant tensor among them is a TensorError.
        """
        # Depth first, what an operation reads before it; with a stack, so that deep chains do not
        # hit Python's recursion limit.
        index: dict[Operation, int] = {}
        stack = [(op, False) for op in reversed(outputs)]
        while stack:
            op, done = stack.pop()
            if op in index:
                continue
            if done:
                index[op] = len(index)
                continue
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(op.input_tensors))
        dag = Dag(tuple(_to_node(op, index) for op in index), tuple(index[op] for op in outputs))
        dag._check_constants()
        return dag, index

    def with_inputs(self, inputs: Sequence[Operation]) -> Dag:
        """The same with further placeholders behind its operations, which nothing reads."""
        return replace(self, ops=(*self.ops, *(_to_node(op, {}) for op in inputs)))

    @property
    def constants(self) -> tuple[int, ...]:
        """Indices of the constant placeholders (`loopwright.te.placeholder`)."""
        return tuple(i for i, op in enumerate(self.ops) if op.constant)

    @cached_property
    def sizes(self) -> tuple[SizeVar, ...]:
        """Size variables in the order of first use; a program of known sizes has none."""
        return sizes_of(self.ops)

    def bind(self, values: SizeValues) -> Dag:
        """The program for given sizes, as if it had been written with these numbers.

        ``values`` has a positive int for each size variable, by the variable or by its name;
        TensorError where one is missing, or makes an extent that is not positive.
        """
        return replace(self, ops=bind_sizes(self.ops, values)) if self.sizes else self

    def to_json(self) -> dict[str, Json]:
        names: dict[Var, str] = {v: f"s{k}" for k, v in enumerate(self.sizes)}
        out: dict[str, Json] = {
            "v": 1,
            "ops": [serial.op_to_json(op, names) for op in self.ops],
            "outputs": list(self.outputs),
        }
        return out | {"sizes": serial.sizes_to_json(self.sizes)} if names else out

    @staticmethod
    def from_json(data: dict[str, Json]) -> Dag:
        """The DAG that `to_json` wrote; TensorError for another version, or malformed data."""
        if not isinstance(data, dict) or data.get("v") != 1:
            raise TensorError("this is not the JSON of a DAG in version 1")
        try:
            scope = serial.sizes_from_json(data.get("sizes", []))
            ops = tuple(serial.op_from_json(d, scope) for d in data["ops"])
            dag = Dag(ops, tuple(map(serial.integer, data["outputs"])))
            dag._check()
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as e:
            raise TensorError(f"malformed JSON of a DAG: {type(e).__name__}: {e}") from e
        except RecursionError:
            raise TensorError(
                "the JSON of a DAG nests too deeply for Python's recursion limit "
                f"({sys.getrecursionlimit()}); raise it with sys.setrecursionlimit"
            ) from None
        return dag

    def _check(self) -> None:
        """Refuse a DAG that no program can have written: JSON may come from a damaged log."""
        for i, op in enumerate(self.ops):
            shape_of(op.extents, f"operation {i}")
            for dtype in (op.dtype, *op.dtypes):
                dtypes.check(dtype)
            if op.dtype != op.dtypes[0]:
                raise TensorError(
                    f"malformed JSON of a DAG: operation {i} is {op.dtype} and computes "
                    f"{op.dtypes[0]}"
                )
            for part in body_parts(op.body):
                if contains(part, (Reduce, Tuple)):
                    raise TensorError(
                        f"malformed JSON of a DAG: operation {i} has a reduction, or several "
                        "values, inside of an expression"
                    )
            for r in op.reads():
                self._check_read(i, r)
            self._check_places(op)
        for o in self.outputs:
            if o not in range(len(self.ops)):
                raise TensorError(f"malformed JSON of a DAG: output {o} is no operation")
        self._check_constants()

    def _check_constants(self) -> None:
        for op in (self.ops[o] for o in self.outputs):
            if op.constant:
                raise TensorError(
                    f"the constant tensor {op.name!r} is an output; compute a copy of it, or leave "
                    "out constant=True"
                )

    def _check_places(self, op: OpNode) -> None:
        """Refuse reads that leave their tensor, as `te.compute` does."""
        scope = Sizes(op.extents)
        for v in op.sizes:
            scope.declare(v)
        for a in (*op.axes, *op.reduce_axes):
            scope.ranges.enter(a.var, scope.of(a.extent))
        for r in op.unguarded_reads():
            source = self.ops[r.source]
            check_read(r, source.name, source.shape, op.name, scope)

    def _check_read(self, i: int, r: Read) -> None:
        """Refuse a read that is wrong: an operation may only read operations before it."""
        what = f"malformed JSON of a DAG: operation {i} reads"
        if r.source not in range(i):
            raise TensorError(f"{what} {r.source}")
        if r.value_index not in range(self.ops[r.source].num_outputs):
            raise TensorError(f"{what} output {r.value_index} of {r.source}")
        if r.dtype != self.ops[r.source].dtypes[r.value_index]:
            raise TensorError(f"{what} {r.source} as {r.dtype}")
        if len(r.indices) != len(self.ops[r.source].shape):
            raise TensorError(f"{what} {r.source} with {len(r.indices)} indices")

    def as_python(self) -> str:
        """The program as Python source that writes it with ``te``.

        Executing the text defines every tensor under a name like its own, and ``outputs``, the list
        of what is computed. ``te.create_schedule(outputs).dag`` then has the `hash` of this DAG::

            from loopwright import te

            A = te.placeholder((4, 8), "float32", name="A")
            k = te.reduce_axis((0, 8), name="k")
            C = te.compute((4,), lambda i: te.sum(A[i, k] * 2.0, axis=[k]), name="C")
            outputs = [C]

        Dtypes and conversions are written out. Of a DAG from JSON that te's functions cannot have
        made (constants not folded, operations in another order) the hash may differ.
        """
        return program_source(self.ops, self.outputs)

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_text

        count = f"{len(self.ops)} operation{'s' * (len(self.ops) != 1)}"
        title = f"Tensor expression of {count}, hash {self.hash}"
        return html_block(title, html_text(self.as_python()))

    @cached_property
    def hash(self) -> str:
        """SHA-256 (first 16 hex digits) of the canonical JSON without names."""
        return hashlib.sha256(self.structure.encode()).hexdigest()[:16]

    @property
    def structure(self) -> str:
        """The canonical JSON without names: equal for programs that compute the same alike."""
        return json.dumps(serial.without_names(self.to_json()), sort_keys=True, allow_nan=True)

    @cached_property
    def flop(self) -> int:
        """Arithmetic operations of one evaluation; multiply and add count one each.

        Index arithmetic is not counted, integer operations are. A program with size variables is a
        TensorError; ``dag.bind({"n": 64}).flop`` tells it.
        """
        if self.sizes:
            names = ", ".join(v.name for v in self.sizes)
            raise TensorError(
                f"flop: the program has size variables ({names}); give their values with "
                f"dag.bind({{{self.sizes[0].name!r}: 64}}).flop"
            )
        return sum(_op_flop(op) for op in self.ops)

    def consumers(self, i: int) -> list[int]:
        """Indices of the operations that read operation ``i``."""
        return [j for j, op in enumerate(self.ops) if any(r.source == i for r in op.reads())]


class CallWork(NamedTuple):
    stored: int  # bytes of its outputs
    shortest: int  # bytes of the shortest element of its inputs
    flop: int  # operations, without those that constants determine


def call_work(dag: Dag, arg_ids: Sequence[ArgId]) -> CallWork:
    """Least work of a call of a program of known sizes with these arguments."""
    places = [(dag.ops[op], output) for op, output in map(read_arg_id, arg_ids)]
    stored = sum(
        prod(op.static_shape) * dtypes.nbytes(op.dtypes[output])
        for op, output in places
        if not op.is_placeholder
    )
    shortest = min((dtypes.nbytes(op.dtype) for op, _ in places if op.is_placeholder), default=4)
    fixed: list[bool] = []  # whether constants determine it
    for op in dag.ops:
        fixed.append(op.constant if op.is_placeholder else all(fixed[r.source] for r in op.reads()))
    flop = sum(_op_flop(op) for op, is_fixed in zip(dag.ops, fixed, strict=True) if not is_fixed)
    return CallWork(stored, shortest, flop)


def _to_node(op: Operation, index: dict[Operation, int]) -> OpNode:
    out = op.output(0)
    if not isinstance(op, ComputeOp):
        constant = isinstance(op, PlaceholderOp) and op.constant
        return OpNode(op.name, out.shape, out.dtype, constant=constant)

    def by_index(r: Read) -> Read:
        return Read(index[r.source.op], r.indices, r.dtype, r.value_index)

    axes, reduce_axes = tuple(op.axis), tuple(op.reduce_axis)
    body = map_nodes(op.body, Read, by_index)
    return OpNode(op.name, out.shape, out.dtype, axes, reduce_axes, body, op.tag)


def _op_flop(op: OpNode) -> int:
    if op.body is None:
        return 0
    points = prod(op.static_shape)
    red = op.reduction
    if red is None:
        return points * sum(_expr_flop(e) for e in outputs_of(op.body))
    per_point = sum(_expr_flop(e) for e in (*red.source, *red.combiner.result))
    return points * prod(a.count for a in op.reduce_axes) * per_point


def _expr_flop(e: Node) -> int:
    match e:
        case Read() | Var():
            return 0
        case Select(a=a, b=b) | IfThenElse(a=a, b=b):
            return max(_expr_flop(a), _expr_flop(b))
    return isinstance(e, Binary | Unary | Call) + sum(_expr_flop(c) for c in e.children())
