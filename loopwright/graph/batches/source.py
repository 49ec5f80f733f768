"""Models with a symbolic batch: the module of one batch, and the module of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.errors import GraphError, UsageError
from loopwright.executors import SizedValue
from loopwright.graph.batches.binding import bound
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.onnx.files import load
from loopwright.graph.frontend.onnx.model import input_types
from loopwright.graph.frontend.source import ModelLike, check_model, is_torch
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.types import TensorType
from loopwright.graph.plan import unique
from loopwright.ir.expr import Var
from loopwright.ir.sizes import SizeVar, evaluate, size_json, size_vars
from loopwright.runtime.artifacts.manifest import linear


@dataclass(frozen=True)
class BatchSource:
    size: SizeVar  # the size variable that is the batch
    inputs: tuple[SizedValue, ...]
    at: Callable[[int], IRModule]  # the module of one batch
    #: the module in whose types the batch is a variable; None where there is none
    symbolic: IRModule | None
    why_not: str = ""  # why ``symbolic`` is None; else empty


def source_of(
    model: ModelLike | BatchSource,
    shape: Mapping[str, Sequence[int | str]] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
) -> BatchSource:
    """A model of any batch; exactly one extent of its inputs has to be a size variable."""
    if isinstance(model, BatchSource):
        return model
    if is_torch(model) or example_inputs is not None:
        raise GraphError(
            "batches are of modules and ONNX models, and this is a model of PyTorch, which is "
            "exported for the sizes of its example inputs: compile it for each batch by itself, or "
            "export it to ONNX with a batch that varies"
        )
    check_model(model)
    if isinstance(model, IRModule):
        return _of_module(model)
    loaded = load(model)
    types = input_types(loaded, shape)
    size = _size_of(types)
    try:
        module = from_onnx(loaded, shape, fallback=False)
    except GraphError as error:
        why = " ".join(str(error).split())

        def imported(batch: int) -> IRModule:
            shapes = {
                name: [evaluate(n, {size: batch}) for n in t.shape] for name, t in types.items()
            }
            return from_onnx(loaded, shape=shapes, fallback=fallback)

        return BatchSource(size, _values(types, size), imported, None, why)
    return _of_module(module)


def one_batch(model: ModelLike | BatchSource) -> ModelLike:
    """Return a model of one batch; GraphError where its inputs have a symbolic batch."""
    if isinstance(model, BatchSource):
        raise GraphError("this is a model of any batch; give batches= for which it is built")
    return model


def _of_module(module: IRModule) -> BatchSource:
    types: dict[str, TensorType] = {}
    used: set[str] = set()
    for p in module[MAIN].params:
        if not isinstance(p.type, TensorType):
            raise GraphError(f"batches: parameter {p.name!r} is {p.type}; models take tensors")
        types[unique(p.name, used)] = p.type
    size = _size_of(types)
    return BatchSource(size, _values(types, size), lambda n: bound(module, size, n), module)


def _values(types: Mapping[str, TensorType], size: SizeVar) -> tuple[SizedValue, ...]:
    names: dict[Var, str] = {size: size.name}
    return tuple(
        SizedValue(name, tuple(size_json(n, names) for n in t.shape), t.dtype, "input")
        for name, t in types.items()
    )


def _size_of(types: Mapping[str, TensorType]) -> SizeVar:
    """The one size variable of the inputs of a model; its value has to follow from an extent."""
    told = ", ".join(f"{name}: {t}" for name, t in types.items())
    found = size_vars(n for t in types.values() for n in t.shape)
    if not found:
        raise GraphError(
            f"batches: every extent of the inputs is a number ({told}); give the batch a name when "
            'the model is imported, such as from_onnx(model, shape={"x": ("batch", 3, 224, 224)})'
        )
    if len(found) > 1:
        names = ", ".join(v.name for v in found)
        raise GraphError(
            f"batches: the inputs have the size variables {names} ({told}), and one may vary; give "
            "the others numbers where the model is imported, by shape={...}"
        )
    (size,) = found
    formulas = [size_json(n, {size: size.name}) for t in types.values() for n in t.shape]
    if all(isinstance(n, int) or linear(n) is None for n in formulas):
        raise GraphError(f"batches: no extent of the inputs tells {size.name} ({told})")
    return size


def checked_batches(batches: Iterable[int]) -> tuple[int, ...]:
    """The batches sorted and without duplicates; UsageError where one is no number from 1."""
    given = list(batches) if isinstance(batches, Iterable) else []
    wrong = [n for n in given if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    if wrong or not given:
        raise UsageError(
            f"batches is {batches!r:.60}; give whole numbers from 1, such as batches=(1, 8)"
        )
    return tuple(sorted(set(given)))
