"""Models of any batch: programs for declared batches, and one that serves all others."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.errors import GraphError, UsageError
from loopwright.executors import BatchedModel, Model, SharedArrays, SizedModel, SizedValue
from loopwright.graph.building import CompiledModel, ModelBuilder, host_step, records_in_force
from loopwright.graph.fallbacks import ModelReport
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.onnx.files import load
from loopwright.graph.frontend.onnx.model import input_types
from loopwright.graph.frontend.source import ModelLike, check_model, is_torch
from loopwright.graph.ir.expr import TensorType
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.plan import plan_sized
from loopwright.graph.sized import bound, sized_kernels
from loopwright.graph.transform.pipeline import pipeline
from loopwright.ir.expr import Var
from loopwright.ir.printer import unique
from loopwright.ir.sizes import SizeVar, evaluate, size_json, size_vars
from loopwright.lowering import PassContext
from loopwright.runtime import linear


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
    text = ", ".join(f"{name}: {t}" for name, t in types.items())
    sizes = size_vars(n for t in types.values() for n in t.shape)
    if not sizes:
        raise GraphError(
            f"batches: every extent of the inputs is a number ({text}); give the batch a name when "
            'the model is imported, such as from_onnx(model, shape={"x": ("batch", 3, 224, 224)})'
        )
    if len(sizes) > 1:
        names = ", ".join(v.name for v in sizes)
        raise GraphError(
            f"batches: the inputs have the size variables {names} ({text}), and one may vary; give "
            "the others numbers where the model is imported, by shape={...}"
        )
    (size,) = sizes
    formulas = [size_json(n, {size: size.name}) for t in types.values() for n in t.shape]
    if all(isinstance(n, int) or linear(n) is None for n in formulas):
        raise GraphError(f"batches: no extent of the inputs tells {size.name} ({text})")
    return size


def checked_batches(batches: Iterable[int]) -> tuple[int, ...]:
    """The batches sorted and without duplicates; UsageError where one is no number from 1."""
    numbers = list(batches) if isinstance(batches, Iterable) else []
    wrong = [n for n in numbers if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    if wrong or not numbers:
        raise UsageError(
            f"batches is {batches!r:.60}; give whole numbers from 1, such as batches=(1, 8)"
        )
    return tuple(sorted(set(numbers)))


#: Models that are kept of those that were built for a batch when it first came.
KEEP = 4


@dataclass(frozen=True)
class BatchesReport:
    """The records that the programs of a model were built from."""

    size: str
    batches: Mapping[int, ModelReport]  #: the report of each declared batch
    rest: str  #: how other batches are served, in words

    def __str__(self) -> str:
        texts = [(batch, str(report)) for batch, report in self.batches.items()]
        lines = [f"{self.size} {n}:" + ("\n" if "\n" in t else " ") + t for n, t in texts]
        return "\n".join([*lines, f"any other {self.size}: {self.rest}"])


class CompiledBatches(BatchedModel):
    """A model of any batch whose kernels are built; made by `loopwright.graph.compile`.

    ``models`` are those of declared batches; ``rest`` serves all others, as ``served`` tells in
    words. Where it is None, a model is built for each batch on its first use, and the latest few
    are kept.

    Example:
        >>> x = lw.graph.var("x", (te.size_var("n"), 4))
        >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(lw.graph.op.exp(x)), batches=[2])
        >>> print(model(np.zeros((3, 4), "float32"))[0].shape)
        (3, 4)
        >>> print(model.report)
        n 2: nothing was built under this history
        any other n: one program, whose kernels have the schedules of n 2
    """

    models: dict[int, CompiledModel]  # type: ignore[assignment]

    def __init__(
        self,
        source: BatchSource,
        models: Mapping[int, CompiledModel],
        rest: SizedModel | None,
        served: str,
        build: Callable[[int], CompiledModel],
    ) -> None:
        super().__init__(source.size.name, source.inputs, models, rest)
        self._served, self._build = served, build
        self._built: OrderedDict[int, CompiledModel] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def report(self) -> BatchesReport:
        """The records its kernels were built from, and how undeclared batches are served."""
        reports = {batch: one.report for batch, one in self.models.items()}
        return BatchesReport(self.size, reports, self._served)

    def _other(self, batch: int) -> Model:
        if self.rest is not None:
            return self.rest.at(batch)
        with self._lock:
            model = self._built.pop(batch, None) or self._build(batch)
            self._built[batch] = model
            if len(self._built) > KEEP:
                self._built.popitem(last=False)
        return model


def compile_batches(
    source: BatchSource, batches: Sequence[int], builder: ModelBuilder
) -> CompiledBatches:
    """Build a model of any batch, with a program of its own for each of ``batches``."""
    builder = replace(builder, weights=SharedArrays(), packed=SharedArrays())
    models = {batch: builder.model(source.at(batch)) for batch in batches}
    history = records_in_force() if builder.history is None else builder.history
    later = replace(builder, history=history, finalists=None, kernels={})
    context = PassContext.current()

    def build(batch: int) -> CompiledModel:
        with context:
            return later.model(source.at(batch))

    rest, served = None, source.why_not
    if source.symbolic is not None:
        try:
            rest, served = _sized(source.symbolic, source.size, batches, builder)
        except GraphError as error:
            served = " ".join(str(error).split())
    if rest is None:
        served = f"built when it first comes, and {KEEP} are kept: {served}"
    return CompiledBatches(source, models, rest, served, build)


def _sized(
    symbolic: IRModule, size: SizeVar, batches: Sequence[int], builder: ModelBuilder
) -> tuple[SizedModel, str]:
    """A model for any batch, and how its kernels came about; GraphError where one needs it."""
    planned = plan_sized(pipeline(symbolic, target=builder.target), size)
    # Large batches have large tiles; remainders are guarded.
    kernels = sized_kernels(planned, size, sorted(batches, reverse=True), builder)
    constants = builder.shared(planned.constants)
    hosts = {name: host_step(name, host) for name, host in planned.hosts.items()}
    model = SizedModel(planned.program, kernels.modules, constants, hosts, builder.packed)
    as_for = " and ".join(f"{size.name} {batch}" for batch in kernels.scheduled_as)
    if as_for:
        return model, f"one program, whose kernels have the schedules of {as_for}"
    return model, f"one program, no kernel depends on {size.name}"
