"""``torch.compile(model, backend="loopwright")``: graphs of PyTorch as compiled models.

PyTorch finds the backend by the entry point ``torch_dynamo_backends`` of this package. TorchDynamo
takes a model apart into graphs, AOTAutograd makes them functional and decomposes them to the core
operators of ATen; each becomes a model. Parameters arrive as inputs that are marked static: they
become constants, from which kernels pack their weights once.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from loopwright.errors import GraphError, RunError
from loopwright.executors import GraphExecutor, Model, SharedArrays, SizedModel
from loopwright.graph.building import CompiledModel, ModelBuilder, records_in_force, records_of
from loopwright.graph.frontend.torch import fallback
from loopwright.graph.frontend.torch.fallback import FallbackShare, held, is_empty
from loopwright.graph.frontend.torch.importer import TorchImporter, attribute, lacks_converter
from loopwright.graph.frontend.torch.memory import (
    TensorLayout,
    as_array,
    dtype_of,
    is_tensor,
    torch_package,
)
from loopwright.graph.frontend.torch.model import decompositions, input_type
from loopwright.graph.frontend.torch.options import Options, options_of
from loopwright.graph.frontend.torch.outputs import (
    InputView,
    eager_layouts,
    eager_outputs,
    input_views,
    outputs_of,
)
from loopwright.graph.frontend.torch.weights import Weights, is_weight
from loopwright.graph.ir.expr import Expr, Function, HostFunction, Tuple, Var
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import post_order
from loopwright.graph.plan import plan_sized
from loopwright.graph.registry import get_op
from loopwright.graph.sized import Generalised, generalised, sized_kernels
from loopwright.graph.transform.pipeline import pipeline
from loopwright.runtime import Module, device_of_target


def loopwright(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend: the function that TorchDynamo calls for each graph of a model.

    Args:
        gm: the graph, a ``torch.fx.GraphModule``.
        example_inputs: its inputs; parameters are among them.
        options: see `Options`: target, history, trials, timeout, fallback, freezing.
        mode: must be None.

    Returns:
        A function from inputs to outputs.

    Raises:
        GraphError: gradients are asked for, an option is unknown, a mode is given.
    """
    torch = torch_package()
    if mode is not None:
        raise GraphError(f"the backend loopwright has no mode {mode!r}; give options={{...}}")
    settings = options_of(options)
    from torch._dynamo.backends.common import aot_autograd

    outputs = eager_outputs(gm)

    def inference(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return CompiledGraph(graph, _static_inputs(), settings, _behind_others(outputs)).boxed()

    def refuse_gradients(graph: Any, inputs: Sequence[Any]) -> Any:
        raise GraphError(_NO_GRADIENTS)

    backend = aot_autograd(
        fw_compiler=refuse_gradients,
        inference_compiler=inference,
        decompositions={
            **torch._decomp.core_aten_decompositions(),
            **decompositions(settings.fallback),
        },
    )
    compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


#: Models that were built and still exist, in order.
_MODELS: list[weakref.ref[CompiledModel]] = []
#: Number of sizes of a graph whose programs are kept.
_KEEP = 4
#: Arrays that kernels compute from weights, which programs of several sizes share.
_PACKED = SharedArrays()
#: Outputs of fewer bytes are copied.
_COPIED = 1 << 17
_NO_GRADIENTS = (
    "the backend loopwright is for inference: gradients are asked for. Call the model under "
    "torch.inference_mode() or torch.no_grad(), or give its parameters requires_grad_(False)"
)


def compiled_models() -> list[CompiledModel]:
    """The models that the backend built in this process and that are still used, in order.

    Their ``report`` says what their kernels were built from, and which nodes PyTorch computes.

    Example:
        >>> import torch
        >>> from loopwright.graph.torch_backend import compiled_models, loopwright
        >>> spectrum = torch.compile(lambda x: torch.fft.fft(x).abs(), backend=loopwright)
        >>> _ = spectrum(torch.ones(8))
        >>> print([f.by for f in compiled_models()[-1].report.fallbacks])
        ['PyTorch']
    """
    return [model for ref in _MODELS if (model := ref()) is not None]


def _metadata() -> Any:
    """AOTAutograd's facts about the graph that is compiled; None where there are none."""
    context = torch_package()._guards.TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _static_inputs() -> frozenset[int]:
    """The indices of inputs that are parameters or buffers, as AOTAutograd found them. A buffer
    that the model itself writes into is not among them: it is a new tensor in every call.
    """
    metadata = _metadata()
    if metadata is None:
        return frozenset()
    written = [False] * len(metadata.tokens) + [info.mutates_data for info in metadata.input_info]
    return frozenset(n for n in metadata.static_input_indices if not written[n])


def _behind_others(outputs: list[Any]) -> list[Any]:
    """Shift outputs to where AOTAutograd expects them: behind effect tokens and mutated inputs."""
    metadata = _metadata()
    if metadata is None or metadata.num_outputs != len(outputs):
        return []
    if any(map(torch_package().utils._python_dispatch.is_traceable_wrapper_subclass, outputs)):
        return []  # such a tensor is several outputs
    return [None] * (len(metadata.tokens) + metadata.num_mutated_inp_runtime_indices) + outputs


class CompiledGraph:
    """A functional graph of ATen's operators, built on its first call."""

    def __init__(
        self, graph: Any, static: frozenset[int], options: Options, eager: Sequence[Any] = ()
    ) -> None:
        # static: indices of inputs that are parameters
        self._graph, self.static, self.options = graph, static, options
        # outputs as of `eager_outputs`, as many as are known
        self._eager = eager
        self._holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._dynamic = any(_is_symbolic(n.meta.get("val")) for n in self._holders)
        self._builds: OrderedDict[Any, _Build] = OrderedDict()
        self.share, self.any_size = FallbackShare(), AnySize(options, _PACKED)
        self._made = 0
        self._lock = threading.Lock()

    def boxed(self) -> Callable[[list[Any]], Any]:
        """A function of a list of inputs, which it empties, as AOTAutograd calls it."""

        def run(args: list[Any]) -> Any:
            inputs = list(args)
            args.clear()
            with self._lock:
                return self._build(inputs).run(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _build(self, args: Sequence[Any]) -> _Build:
        """Find or make the build for these sizes and strides; the latest ones are kept."""
        sizes = ((*a.shape, *a.stride()) if hasattr(a, "shape") else a for a in args)
        key = tuple(sizes) if self._dynamic else None
        build = self._builds.pop(key, None)
        if build is None:
            graph = _specialised(self._graph, args) if self._dynamic else self._graph
            eager = eager_layouts(self._eager, self._holders, args)
            self._made += 1
            build = _Build(self, graph, eager, many=self._made > _KEEP)
        self._builds[key] = build
        if len(self._builds) > _KEEP:
            self._builds.popitem(last=False)
        return build


def _is_symbolic(value: Any) -> bool:
    torch = torch_package()
    if isinstance(value, torch.Tensor):
        return not all(isinstance(n, int) for n in value.shape)
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _specialised(graph: Any, args: Sequence[Any]) -> Any:
    # Made without a tracer, which would patch the modules of all threads while it runs.
    torch = torch_package()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    inputs = iter(args)
    copy = torch.fx.Graph()
    values: dict[Any, Any] = {}
    nodes: dict[Any, Any] = {}
    with torch.no_grad(), mode:
        for node in graph.graph.nodes:
            value = None
            if node.op == "call_function":
                call = torch.fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
                value = node.target(*call[0], **call[1])
            elif node.op != "output":
                outer = node.op == "placeholder"
                value = next(inputs) if outer else attribute(graph, node.target)
                value = mode.from_tensor(value) if is_tensor(value) else value
            values[node] = value
            is_number = isinstance(value, (int, float))
            if not is_number or node.op == "placeholder":
                nodes[node] = copy.node_copy(node, nodes.__getitem__)
                nodes[node].meta = {"val": value}
            if is_number:
                nodes[node] = value
    return torch.fx.GraphModule(graph, copy)


#: A model with its executor, for one size of a graph; indices of weights that are its last inputs.
_Served: TypeAlias = "tuple[Model, GraphExecutor, Weights, list[int]]"


class AnySize:
    """The program that takes every size of a graph, where there can be one."""

    def __init__(self, options: Options, packed: SharedArrays) -> None:
        # packed: shared arrays that kernels compute from weights
        self._options, self._packed = options, packed
        self._known: list[IRModule] = []
        self._pattern: tuple[object, ...] = ()
        self._whole: tuple[SizedModel, Weights, list[int], frozenset[str]] | None = None
        self._possible = device_of_target(options.resolved.kind) == "cpu"

    def serve(
        self, module: IRModule, weights: Weights, args: Sequence[Any], many: bool
    ) -> _Served | None:
        """Serve by the program of any size; None: it needs its own. ``many``: build no more."""
        if self._whole is not None and self._whole[1].changed(args):
            self._known, self._whole = [], None
        pair = self._paired(module) if many and self._possible else None
        if self._whole is None:
            self._known = [*self._known, module] if pair else [module]
        if pair is None:
            return None
        if self._whole is None:
            self._pattern = pair.pattern
            try:
                self._whole = self._built(pair, weights)
            except GraphError:  # an operator or a kernel needs to know the size
                self._possible = False
        if self._whole is None or pair.pattern != self._pattern:
            return None
        sized, weights, moved, live = self._whole
        model = sized.at(pair.numbers[1])
        return model, sized.executor(model.program, live), weights, moved

    def _paired(self, module: IRModule) -> Generalised | None:
        """Merge this module with a known one of another size; None where they differ more."""
        for before in self._known:
            with suppress(GraphError):  # the same size, another graph, or other weights
                return generalised(before, module)
        return None

    def _built(
        self, pair: Generalised, weights: Weights
    ) -> tuple[SizedModel, Weights, list[int], frozenset[str]]:
        """The program, its weights, which of them are inputs, and which are read in place."""
        module, moved = weights.with_inputs(pair.module)
        order, target = sorted(pair.numbers, reverse=True), self._options.resolved
        planned = plan_sized(pipeline(module, target=target), pair.size)
        builder = ModelBuilder(target, records_of(self._options.records))
        kernels = sized_kernels(planned, pair.size, order, builder)
        constants = {n: np.asarray(a) for n, a in planned.constants.items()}
        sized = SizedModel(planned.program, kernels.modules, constants, shared=self._packed)
        weights.leave(moved)
        return sized, weights, moved, weights.in_place(module, sized.at(order[0]))


class _Build:
    """A graph of known sizes as a model, and its state to run. Weights are constants of the model.
    One that moved, or whose derived values are out of date, makes the model anew; kernels stay.
    """

    def __init__(self, whole: CompiledGraph, graph: Any, eager: Sequence[Any], many: bool) -> None:
        # whole: the graph of any size; many: no more programs are to be built, as so many were
        self._graph, self._eager, self._many = graph, eager, many
        self._options, self._maybe_static = whole.options, whole.static
        self._share, self._any_size = whole.share, whole.any_size
        self._holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._weights: Weights | None = None
        self._kernels: dict[str, Future[Module]] = {}
        self._outputs: list[Any] = []
        self._hosts: Mapping[str, HostFunction] = {}

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self._weights is None or self._weights.changed(args):
            self._make(args)
        # Outputs first: an input may be what the last call gave, and lies in what it was bound to.
        # Small ones are copied (None): kernels would have to be bound to their tensors.
        fresh = [
            None if n in self._buffers or not self._writes(n) else self._bound_tensor(n)
            for n in range(len(self._layouts))
        ]
        for place, source in enumerate(self._inputs):
            self._set_input(place, args[source] if type(source) is int else source((), args))
        try:
            if self._share.known:
                self._executor.run()
            else:
                self._share.run(self._executor, self._hosts)
        except RunError as error:  # raised by PyTorch, as it would have been without this backend
            raise (error.__cause__ or error) from None
        storages = [self._storage(place, tensor) for place, tensor in enumerate(fresh)]
        return [o(storages, args) if callable(o) else o for o in self._outputs]

    def _set_input(self, place: int, tensor: Any) -> None:
        """Bind a tensor to an input, unless it is already: the executor keeps its memory alive."""
        plain = tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())
        if plain and self._addresses[place] == tensor.data_ptr():
            return
        self._executor.set_input_zero_copy(place, fallback.elements_of(tensor))
        shared = plain and not tensor.data_ptr() % tensor.itemsize
        self._addresses[place] = tensor.data_ptr() if shared else None

    def _make(self, args: Sequence[Any]) -> None:
        self._weights, options = None, self._options
        tensors = {n: args[n] for n in sorted(self._maybe_static) if is_weight(args[n])}
        with torch_package().no_grad():
            constant = bool(options.records or records_in_force())
            weights = Weights(tensors, options.resolved, constant, options.freezing)
            module = self._module(args, weights)
        served = self._any_size.serve(module, weights, args, self._many)
        if served is None:
            self._build(module, weights)
            self._weights = weights
        else:
            self.model, self._executor, self._weights, moved = served
            self._inputs += moved
        self._addresses: list[int | None] = [None] * len(self._inputs)
        sizes = [v.nbytes for v in self._executor.outputs[: len(self._layouts)]]
        small = [n for n, size in enumerate(sizes) if size < _COPIED and self._writes(n)]
        self._buffers = {n: self._bound_tensor(n) for n in small}

    def _build(self, module: IRModule, weights: Weights) -> None:
        module, moved = weights.with_inputs(module)
        weights.leave(moved)
        self._inputs += moved
        options, target = self._options, self._options.resolved
        if options.tunes and not self._kernels:
            from loopwright.graph.tuning import tune

            tune(module, target, log=options.log, trials=options.trials, timeout=options.timeout)
        history = records_of(options.records)
        # Kernels of the previous model are taken over.
        builder = ModelBuilder(target, history, kernels=self._kernels, packed=_PACKED)
        self.model = model = builder.model(module)
        self._hosts = model.planned.hosts
        _MODELS[:] = [ref for ref in _MODELS if ref() is not None] + [weakref.ref(model)]
        self._executor = model.executor(in_place=weights.in_place(module, model))

    def _module(self, args: Sequence[Any], weights: Weights) -> IRModule:
        bound, sources = self._bound(args, weights)
        importer = TorchImporter(self._options.fallback)
        importer.outputs(self._graph, bound)
        plan = outputs_of(importer, self._graph, self._eager)
        self._outputs, self._layouts = plan.outputs, plan.layouts
        turn = importer.turn.last
        body = Tuple(tuple(plan.results if turn is None else [*plan.results, turn]))
        params = [e for e in post_order(body) if isinstance(e, Var) and e in sources]
        self._inputs = [sources[p] for p in params]
        return IRModule({MAIN: Function(tuple(params), body)})

    def _bound(
        self, args: Sequence[Any], weights: Weights
    ) -> tuple[dict[Any, Any], dict[Expr, Any]]:
        """The values of nodes that are not computed, and the sources of the model's inputs."""
        torch = torch_package()
        bound: dict[Any, Any] = {}
        sources: dict[Expr, Any] = {}

        def add(node: Any, value: Any, source: Any) -> None:
            param = Var(node.name, fallback.held_type(value) or input_type(node.name, value))
            bound[node], sources[param] = held(param, value), source

        for n, (node, value) in enumerate(zip(self._holders, args, strict=True)):
            if n in weights:
                bound[node] = weights.constant(n, node.name)
            elif not is_tensor(value) or is_empty(value):
                bound[node] = value
            elif (order := _turned(value)) is None:
                add(node, value, n)
            else:  # as it lies in memory, so that it is not copied
                add(node, value.permute(order), InputView(n, (partial(torch.permute, dims=order),)))
                back = [order.index(d) for d in range(len(order))]
                bound[node] = get_op("transpose")(bound[node], axes=tuple(back))
        for node, view in input_views(self._graph.graph, self._holders).items():
            value = node.meta.get("val")
            if node in bound or not is_tensor(value) or is_empty(value):
                continue
            if lacks_converter(node.target):  # PyTorch alone reads it of the input's memory
                add(node, value, view)
        return bound, sources

    def _writes(self, place: int) -> bool:
        program = self.model.program
        number = program.outputs[place]
        return program.values[number].kind == "stored" and program.outputs.count(number) == 1

    def _bound_tensor(self, place: int) -> Any:
        tensor = self._empty(place)
        self._executor.set_output_zero_copy(place, as_array(tensor))
        return tensor

    def _empty(self, place: int) -> Any:
        value = self._executor.outputs[place]
        torch = torch_package()
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype))

    def _storage(self, place: int, tensor: Any) -> Any:
        """A tensor over a whole storage: the one it was written into, or a copy."""
        if place in self._buffers:
            tensor = self._buffers[place].clone()
        elif tensor is None:
            tensor = self._empty(place)
            self._executor.get_output(place, as_array(tensor))
        layout = self._layouts[place]
        return tensor if layout is None else layout(tensor)


def _turned(tensor: Any) -> tuple[int, ...] | None:
    """The order in which a tensor is contiguous; None if as it is, or where no kernel reads it."""
    memory = TensorLayout.of(tensor)
    if memory is None or memory.permutation is None or dtype_of(tensor) is None:
        return None
    return None if tensor.is_contiguous() else memory.permutation
