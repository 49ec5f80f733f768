"""``torch.compile(model, backend="loopwright")``: graphs of PyTorch as compiled models.

PyTorch finds the backend by the entry point ``torch_dynamo_backends`` of this package. TorchDynamo
takes a model apart into graphs, AOTAutograd makes them functional and decomposes them to the core
operators of ATen; each becomes a model. Parameters arrive as inputs that are marked static: they
become constants, from which kernels pack their weights once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.building import CompiledModel, built
from loopwright.graph.frontend.torch.arrays import as_array, torch_package
from loopwright.graph.frontend.torch.importer import Importer
from loopwright.graph.frontend.torch.model import input_type
from loopwright.graph.frontend.torch.options import Options, options_of
from loopwright.graph.ir.expr import Expr, Function, Tuple, Var, const
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.kernel_tasks import kernel_tasks
from loopwright.graph.pipeline import prepared
from loopwright.graph.tuning import tune
from loopwright.runtime import Module


def loopwright(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend: what TorchDynamo calls for each graph of a model.

    Args:
        gm: the graph, a ``torch.fx.GraphModule``.
        example_inputs: its inputs; parameters are among them.
        options: see `Options`: target, history, trials, timeout, fallback.
        mode: there are none.

    Returns:
        A function from inputs to outputs.

    Raises:
        GraphError: gradients are asked for, an option is unknown, a mode is given.
    """
    torch = torch_package()
    if mode is not None:
        raise GraphError(f"the backend loopwright has no mode {mode!r}; give options={{...}}")
    found = options_of(options)
    needs = [t for t in example_inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if torch.is_grad_enabled() and needs:
        raise GraphError(_NO_GRADIENTS)
    from torch._dynamo.backends.common import aot_autograd

    def inference(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return CompiledGraph(graph, _static_inputs(), found).boxed()

    backend = aot_autograd(
        fw_compiler=_refuse_gradients,
        inference_compiler=inference,
        decompositions=torch._decomp.core_aten_decompositions,
    )
    made: Callable[..., Any] = backend(gm, example_inputs)
    return made


#: What was built and is still there, in order.
_MODELS: list[weakref.ref[CompiledModel]] = []
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


def _refuse_gradients(graph: Any, inputs: Sequence[Any]) -> Any:
    raise GraphError(_NO_GRADIENTS)


def _static_inputs() -> frozenset[int]:
    """The numbers of inputs that are parameters or buffers, as AOTAutograd found them.

    A buffer that the model itself writes into is none: it is another one in every call.
    """
    context = torch_package()._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return frozenset()
    found = context.fw_metadata
    return frozenset(n for n in found.static_input_indices if not found.input_info[n].mutates_data)


class CompiledGraph:
    """A functional graph of ATen's operators, built when it is first called.

    Args:
        graph: a ``torch.fx.GraphModule``.
        static: numbers of its inputs that are parameters.
        options: of the backend.
    """

    def __init__(self, graph: Any, static: frozenset[int], options: Options) -> None:
        self._graph, self._static, self._options = graph, static, options
        holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._dynamic = any(_is_symbolic(n.meta.get("val")) for n in holders)
        self._builds: dict[Any, _Build] = {}
        self._lock = threading.Lock()

    def boxed(self) -> Callable[[list[Any]], Any]:
        """A function of a list of inputs, which it empties, as AOTAutograd calls it."""

        def run(args: list[Any]) -> Any:
            given = list(args)
            args.clear()
            with self._lock:
                return self._build(given).run(given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _build(self, args: Sequence[Any]) -> _Build:
        """What runs inputs of these sizes: one is built for each that comes."""
        key = tuple(map(_sizes, args)) if self._dynamic else None
        found = self._builds.get(key)
        if found is None:
            graph = _specialised(self._graph, args) if self._dynamic else self._graph
            found = self._builds[key] = _Build(graph, self._static, self._options)
        return found


def _is_symbolic(value: Any) -> bool:
    torch = torch_package()
    if isinstance(value, torch.Tensor):
        return not all(isinstance(n, int) for n in value.shape)
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _sizes(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else value


def _specialised(graph: Any, args: Sequence[Any]) -> Any:
    """A graph whose sizes are numbers, for inputs of these sizes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch_package().no_grad():
        return make_fx(graph, tracing_mode="fake")(*args)


class _Build:
    """A graph of known sizes as a model, and what it needs to run.

    Weights are constants of the model. A weight whose memory or version is another one than when
    it was read makes the model anew; kernels stay.
    """

    def __init__(self, graph: Any, static: frozenset[int], options: Options) -> None:
        self._graph, self._options = graph, options
        self._holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._maybe_static = static
        self._weights: list[int] = []
        self._versions: list[tuple[int, int]] | None = None
        self._kernels: dict[str, Module] = {}
        self._outputs: list[Any] = []

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The outputs for some inputs."""
        weights = [args[n] for n in self._weights]
        if self._versions is None or self._versions != [*map(_version, weights)]:
            self._make(args)
        for place, n in enumerate(self._inputs):
            self._set_input(place, args[n])
        made = [self._fresh(place) for place in range(self._executor.get_num_outputs())]
        self._executor.run()
        return [self._output(value, made) for value in self._outputs]

    def _set_input(self, place: int, tensor: Any) -> None:
        """Let an input be a tensor, if it is not: the executor keeps its memory alive."""
        plain = tensor.is_contiguous() and not tensor.is_neg()
        if plain and self._addresses[place] == tensor.data_ptr():
            return
        self._executor.set_input_zero_copy(place, as_array(tensor))
        self._addresses[place] = tensor.data_ptr() if plain else None

    def _make(self, args: Sequence[Any]) -> None:
        torch = torch_package()
        # Tensors of inference mode count no versions: those are read in every call.
        self._versions = None
        self._weights = [n for n in sorted(self._maybe_static) if _is_weight(args[n])]
        # Memory that is held is not given to another tensor, which would look like the same one.
        self._held = [as_array(args[n]) for n in self._weights]
        with torch.no_grad():
            module = self._module(args)
        self.model = self._compiled(module)
        _MODELS.append(weakref.ref(self.model))
        self._executor = self.model.executor()
        self._addresses: list[int | None] = [None] * len(self._inputs)
        self._versions = [_version(args[n]) for n in self._weights]

    def _module(self, args: Sequence[Any]) -> IRModule:
        bound: dict[Any, Any] = {}
        weights, params = set(self._weights), []
        self._inputs: list[int] = []
        for n, (node, value) in enumerate(zip(self._holders, args, strict=True)):
            if n in weights:
                bound[node] = const(as_array(value), name=node.name)
            elif hasattr(value, "shape"):
                bound[node] = Var(node.name, input_type(node.name, value))
                params.append(bound[node])
                self._inputs.append(n)
            else:
                bound[node] = value
        found = Importer(self._options.fallback).outputs(self._graph, bound)
        results = [e for e in found if isinstance(e, Expr)]
        places = iter(range(len(results)))
        self._outputs = [_Place(next(places)) if isinstance(e, Expr) else e for e in found]
        return IRModule({MAIN: Function(tuple(params), Tuple(tuple(results)))})

    def _compiled(self, module: IRModule) -> CompiledModel:
        """The model; kernels of the model before are taken over."""
        options, target = self._options, self._options.resolved
        if options.tunes and not self._kernels:
            tune(module, target, log=options.log, trials=options.trials, timeout=options.timeout)
        history = options.log if options.tunes else options.history
        planned = prepared(module, target=target)
        tasks = kernel_tasks(planned, target)
        return built(planned, tasks, target, history, self._kernels)

    def _fresh(self, place: int) -> Any:
        """A tensor into which the model writes an output; None where it is copied, as small ones
        are: kernels would have to be bound to it."""
        torch = torch_package()
        program = self.model.program
        number = program.outputs[place]
        value = program.values[number]
        if value.nbytes < _COPIED or value.kind != "stored" or program.outputs.count(number) > 1:
            return None
        made = torch.empty(value.shape, dtype=getattr(torch, value.dtype))
        self._executor.set_output_zero_copy(place, as_array(made))
        return made

    def _output(self, value: Any, made: Sequence[Any]) -> Any:
        if not isinstance(value, _Place):
            return value
        found = made[value.number]
        if found is not None:
            return found
        torch = torch_package()
        copied = np.asarray(self._executor.get_output(value.number))
        if copied.dtype.name == "bfloat16":
            return torch.from_numpy(copied.view("int16")).view(torch.bfloat16)
        return torch.from_numpy(copied)


class _Place:
    """An output of a graph that the model makes."""

    def __init__(self, number: int) -> None:
        self.number = number


def _is_weight(tensor: Any) -> bool:
    return isinstance(tensor, torch_package().Tensor) and not tensor.is_inference()


def _version(tensor: Any) -> tuple[int, int]:
    """Where the elements of a tensor lie, and how often they were written."""
    return tensor.data_ptr(), tensor._version
