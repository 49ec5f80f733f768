"""Conversion of a whole ONNX model: inputs become parameters, initializers constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import GraphError, TensorError, did_you_mean
from loopwright.graph.frontend.onnx.files import check_opset, check_texts, load, numpy_dtype
from loopwright.graph.frontend.onnx.functions import check_calls
from loopwright.graph.frontend.onnx.importer import OnnxImporter, Scope
from loopwright.graph.frontend.onnx.node import NAMES, UnboundInputsError, constant, storage
from loopwright.graph.ir.expr import Expr, Function, Size, TensorType, Tuple, Var
from loopwright.graph.ir.module import MAIN, OUTPUT_NAMES, IRModule

if TYPE_CHECKING:
    import onnx


def from_onnx(
    model: str | Path | bytes | onnx.ModelProto,
    shape: Mapping[str, Sequence[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    *,
    fallback: bool = True,
) -> IRModule:
    """The module of an ONNX model; its ``main`` takes the inputs of the model in order.

    Args:
        model: a file (external data are read from its folder), its bytes, or the model itself.
        shape: shapes of inputs by name, in place of those that the model declares; a list of
            shapes for an input that is a sequence of tensors, which becomes a parameter for each.
            An extent is a number, or a name, such as ``"batch"``, for a size variable.
        constants: values of inputs by name, which are then no parameters of the module. Inputs that
            decide sizes, such as the shape that a ``Reshape`` reads, must be known. None for an
            optional input that is not there.
        fallback: whether unsupported nodes are computed by ``onnx.reference``, each as a call of a
            Python function (`HostFunction`). It is slow; False refuses them.

    Returns:
        A module whose weights are constants. An extent that has a name and no number becomes a size
        variable. Floats of 8 and 4 bits are passed as their bits, integers of 4 and 2 bits as int8
        or uint8: `stored` makes such arrays. Outputs that are sequences become outputs of their
        parts, in order.

    Raises:
        GraphError: the package onnx is missing; this is no model; the opset is not supported; an
            input has no known shape; nodes are not supported, and ``fallback`` is False or onnx
            cannot compute them either (all of them are told at once, each with its reason).
            `UnboundInputsError` where sizes depend on values of inputs.

    Example:
        >>> from onnx import TensorProto, helper
        >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
        >>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
        >>> g = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        >>> opset = helper.make_opsetid("", 17)
        >>> model = helper.make_model(g, opset_imports=[opset])
        >>> print(lw.graph.frontend.onnx.from_onnx(model))
        def @main(%x: float32[4]) [output_names=["y"]] {
          nn.relu(%x)
        }
    """
    loaded = load(model)
    check_calls(loaded)
    importer = OnnxImporter(check_opset(loaded), loaded.functions, fallback=fallback)
    inputs = _Inputs(loaded.graph, dict(shape or {}), dict(constants or {}), importer)
    scope = Scope()
    importer.initializers(loaded.graph, scope)
    params = inputs.bind(scope)
    for node in loaded.graph.node:
        importer.convert(node, scope)
    importer.check()
    parts: list[tuple[str, Expr]] = []
    for name in (o.name for o in loaded.graph.output):
        result = importer.result(name, scope)
        if isinstance(result, Tuple):  # a sequence, whose parts have its name and their numbers
            parts += [(f"{name}.{n}", part) for n, part in enumerate(result.fields)]
        else:
            parts.append((name, result))
    names, values = tuple(name for name, _ in parts), tuple(value for _, value in parts)
    body = values[0] if len(values) == 1 else Tuple(values)
    return IRModule({MAIN: Function(params, body, attrs={OUTPUT_NAMES: names})})


def input_types(
    loaded: Any, shape: Mapping[str, Sequence[int | str]] | None = None
) -> dict[str, TensorType]:
    """The types of the inputs of a ``ModelProto`` by name; ``shape`` is as of `from_onnx`."""
    importer = OnnxImporter(check_opset(loaded), loaded.functions, fallback=False)
    params = _Inputs(loaded.graph, dict(shape or {}), {}, importer).bind(Scope())
    return {p.name: p.type for p in params if isinstance(p.type, TensorType)}


class _Inputs:
    """The inputs of a model, with the shapes and values that the caller gives."""

    def __init__(
        self, graph: Any, shapes: dict[str, Any], constants: dict[str, Any], importer: OnnxImporter
    ) -> None:
        check_texts(*(i.name for i in (*graph.input, *graph.output)))
        weights = {t.name for t in graph.initializer}
        self._infos = [i for i in graph.input if i.name not in weights]
        self._shapes, self._constants = shapes, constants
        self._importer = importer
        self._sizes: dict[str, Size] = {}
        names = [i.name for i in self._infos]
        for name in (*shapes, *constants):
            if name not in names:
                hint = did_you_mean(name, names)
                raise GraphError(
                    f"the model has no input {name!r}{hint}; it has {', '.join(names) or 'none'}"
                )

    def bind(self, scope: Scope) -> tuple[Var, ...]:
        """Bind each input to its value in a scope; returns those that are variables."""
        for info in self._infos:
            make = self._constant if info.name in self._constants else self._value
            scope[info.name] = make(info)
        values = [scope[i.name] for i in self._infos]
        parts = [p for v in values for p in (v.fields if isinstance(v, Tuple) else (v,))]
        return tuple(p for p in parts if isinstance(p, Var))

    def _value(self, info: Any) -> Expr:
        """A variable, or a tuple of them for a sequence; an optional value counts as present."""
        declared = info.type
        if declared.WhichOneof("value") == "optional_type":
            declared = declared.optional_type.elem_type
        if declared.WhichOneof("value") != "sequence_type":
            return self._variable(info.name, declared, self._shapes.get(info.name))
        element = declared.sequence_type.elem_type
        shapes = self._shapes.get(info.name)
        if shapes is None or any(isinstance(s, int) for s in shapes):
            raise GraphError(
                f"input {info.name!r} is a sequence; give the shapes of its parts: "
                f"shape={{{info.name!r}: [(2, 3), (4, 3)]}}"
            )
        parts = [self._variable(f"{info.name}.{n}", element, s) for n, s in enumerate(shapes)]
        return Tuple(tuple(parts))

    def _constant(self, info: Any) -> Expr | None:
        if info.type.WhichOneof("value") == "optional_type" and self._constants[info.name] is None:
            return None
        declared = info.type.tensor_type.elem_type
        wanted = numpy_dtype(declared) if declared else None
        value = np.asarray(self._constants[info.name])
        if wanted is not None and value.dtype != wanted:
            raise GraphError(f"input {info.name!r} is {wanted}, got a constant of {value.dtype}")
        return constant(self._importer.types, value, info.name)

    def _variable(self, name: str, declared: Any, extents: Sequence[Size | str] | None) -> Var:
        var = Var(name, self._type(name, declared, extents))
        dtype = numpy_dtype(declared.tensor_type.elem_type).name
        if dtype in NAMES:
            self._importer.types.mark(var, dtype)
        return var

    def _type(self, name: str, declared: Any, extents: Sequence[Size | str] | None) -> TensorType:
        kind = declared.WhichOneof("value")
        if kind != "tensor_type":
            raise GraphError(
                f"input {name!r} is a {kind}; tensors, and sequences of them, are known"
            )
        tensor = declared.tensor_type
        try:
            dtype = numpy_dtype(tensor.elem_type).name
            dtype = storage(dtype) if dtype in NAMES else dtypes.check(dtype)
        except (TensorError, KeyError) as exc:
            raise GraphError(f"input {name!r}: {exc}") from exc
        if extents is None and not tensor.HasField("shape"):
            raise GraphError(f"input {name!r} has no shape; give it: shape={{{name!r}: ...}}")
        shape = [self._size(d, name) for d in tensor.shape.dim] if extents is None else extents
        named = self._sizes  # which all inputs share
        sizes = (named.setdefault(n, te.size_var(n)) if isinstance(n, str) else n for n in shape)
        t = TensorType(tuple(sizes), dtype)
        if 0 in t.shape:
            raise UnboundInputsError(
                f"input {name!r} is {t}, which has no elements: it cannot be an input of "
                "kernels; if nodes can do without, give it as one of constants={...}",
                [name],
            )
        return t

    def _size(self, dim: Any, name: str) -> Size | str:
        if not dim.HasField("dim_value") and not dim.dim_param:
            raise GraphError(
                f"input {name!r} has an extent that is not known; give its shape: "
                f"shape={{{name!r}: ...}}"
            )
        return int(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param)
