"""Operators: a definition with a NumPy reference, from which the space is derived, and a line of
text; a template by hand where no rule does as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy.typing as npt

from loopwright import dtypes, te
from loopwright.errors import LoopwrightError, UsageError, did_you_mean
from loopwright.ir.expr import Expr, IterVar
from loopwright.ops import gpu
from loopwright.ops.topi import seed_of
from loopwright.records import Json
from loopwright.schedule import Schedule
from loopwright.space import Workload, workload
from loopwright.task import Template, create_task
from loopwright.te import Tensor

#: Arrays of any dtype, and NumPy functions of an operator's inputs that return its output.
Array: TypeAlias = npt.NDArray[Any]
Reference: TypeAlias = Callable[..., Array]
#: A loop of an operator, or an index that is computed from loops.
LoopOrIndex: TypeAlias = IterVar | Expr
#: One number for both dimensions of an image, or one for each: (y, x).
OneOrTwo: TypeAlias = int | tuple[int, int]
#: Stands in place of a default for a parameter that must be given.
REQUIRED = inspect.Parameter.empty


def compute(*args: Any, **options: Any) -> Tensor:
    """`te.compute` of a single tensor, typed as that."""
    tensor: Tensor = te.compute(*args, **options)
    return tensor


@dataclass(frozen=True)
class Operator:
    """An operator as the command line and the tests see it.

    Example:
        >>> operator = lw.ops.WORKLOADS["matmul"]
        >>> print(operator.summary)
        C = A @ B; A (M, K) or (K, M), B (K, N) or (N, K)
    """

    #: a tuned `loopwright.space.Workload`, or a template by hand; the default configuration is the
    #: default schedule
    template: Template
    summary: str

    @property
    def name(self) -> str:
        return self.template.name

    @cached_property
    def params(self) -> dict[str, object]:
        """Parameters in order with their defaults (`REQUIRED` for none)."""
        parameters = inspect.signature(self.template.function).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    def args(self, by_name: Mapping[str, object]) -> tuple[Json, ...]:
        """Arguments in order from parameters by name; UsageError for missing and unknown ones."""
        for key in by_name:
            if key not in self.params:
                raise UsageError(
                    f"{self.name} has no parameter {key!r}{did_you_mean(key, self.params)}; "
                    f"it takes {', '.join(self.params)}"
                )
        values = {k: by_name.get(k, default) for k, default in self.params.items()}
        missing = [k for k, v in values.items() if v is REQUIRED]
        if missing:
            example = " ".join(f"{k}=..." for k in missing)
            raise UsageError(f"{self.name} needs {example}")
        return self.template.bind(values.values())


#: Operators by name.
WORKLOADS: dict[str, Operator] = {}


def definition(
    name: str,
    summary: str,
    make_reference: Callable[..., Reference],
    *,
    former: Callable[..., list[Tensor]] | None = None,
) -> Callable[[Callable[..., list[Tensor]]], Workload]:
    """Decorate a function that returns inputs and the result in calling order: an operator.

    On CPUs its space is derived, on GPUs it is that of `loopwright.ops.gpu.scheduled`. ``former``
    computes what a former template did, where that had other stages: records of it apply.
    """

    def enter(function: Callable[..., list[Tensor]]) -> Workload:
        entry = workload(name, make_reference=make_reference)(function)

        def on_gpus(*args: Any) -> tuple[Schedule, list[Tensor]]:
            *inputs, out = function(*args)
            return gpu.scheduled(out, inputs)

        entry.register("gpu")(on_gpus)
        entry.former = former
        register(entry, summary)
        return entry

    return enter


def register(template: Template, summary: str) -> Operator:
    """Make a template that has a reference known to the command line; ``summary`` is one line."""
    operator = Operator(template, summary)
    template.seed_of = seed_of
    WORKLOADS[operator.name] = operator
    return operator


_PRODUCT = {
    "B": "matrices in the batch",
    "M": "rows of the result",
    "N": "columns of the result",
    "K": "products that are summed for each element",
    "trans_a": "A is stored with its rows and columns exchanged",
    "trans_b": "B is stored with its rows and columns exchanged",
}
_IMAGES = {
    "N": "images",
    "C": "channels of the input",
    "H": "height of an image",
    "W": "width of an image",
    "O": "channels of the result",
    "KH": "height of the window",
    "KW": "width of the window",
    "stride": "steps of the window; 2, or 2,1 for y and x",
    "pad": "zeros around an image; 1, or 1,0 for y and x",
    "dilation": "distance of the window's elements; 2, or 2,1 for y and x",
    "groups": "groups of channels that do not see each other",
    "layout": "NCHW, or NHWC with the channels last",
}
_ROWS = {"M": "rows of X", "N": "columns of X"}
_MEANINGS: dict[str, dict[str, str]] = {
    "conv2d": _IMAGES,
    "dense": {
        **_PRODUCT,
        "M": "rows of X: inputs at once",
        "N": "columns of the result: outputs of the layer",
        "K": "columns of X: inputs of the layer",
        "bias": "add a bias to each column",
        "relu": "replace what is below 0 by 0",
        "weight": "how W is stored: NK or KN",
    },
    "depthwise_conv2d": _IMAGES,
    "elementwise": {
        **_ROWS,
        "chain": "what is done to each element, in turn, such as scale,exp: scale, shift, add, "
        "mul, relu, neg, abs, exp, sqrt, tanh, sigmoid",
    },
    "transpose": _ROWS,
    "matmul": _PRODUCT,
    "batch_matmul": _PRODUCT,
    "matmul_int8": _PRODUCT,
    "pool2d": {
        **_IMAGES,
        "kind": "max or avg",
        "count_include_pad": "the zeros around count for a mean",
    },
    "reduce": {
        **_ROWS,
        "kind": "sum, prod, max or min",
        "axis": "1: over the columns of each row; 0: over the rows of each column",
    },
    "softmax": _ROWS,
    "layer_norm": {**_ROWS, "eps": "is added to the variance"},
}
_EXAMPLES = {
    "conv2d": "N=1 C=64 H=56 W=56 O=64 KH=3 KW=3 pad=1",
    "dense": "M=1 N=1000 K=512",
    "depthwise_conv2d": "N=1 C=64 H=56 W=56 KH=3 KW=3 pad=1",
    "elementwise": "M=1024 N=1024 chain=scale,exp",
    "transpose": "M=1024 N=1024",
    "matmul": "M=512 N=512 K=512",
    "batch_matmul": "B=8 M=128 N=128 K=64",
    "matmul_int8": "M=512 N=512 K=512",
    "pool2d": "N=1 C=64 H=56 W=56 KH=2 KW=2 stride=2",
    "reduce": "M=1024 N=1024 kind=max",
    "softmax": "M=512 N=1000",
    "layer_norm": "M=512 N=768",
}


@dataclass(frozen=True)
class Parameter:
    name: str  #: as written before the ``=``
    meaning: str  #: empty for that of a template of one's own
    required: bool
    default: Json = None  #: None where it is required


@dataclass(frozen=True)
class Description:
    """A workload as ``loopwright workloads`` shows it."""

    name: str
    summary: str  #: result of the workload, in one line
    parameters: tuple[Parameter, ...]
    dtypes: tuple[str, ...]  #: values of its parameter ``dtype``; empty where it has none
    example: str  #: words of a command line that give it parameters

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def describe(operator: Operator) -> Description:
    """The description of an operator, of `WORKLOADS` or registered by its user."""
    name = operator.name
    parameters = parameters_of(
        operator.params, {"dtype": "type of the elements", **_MEANINGS.get(name, {})}
    )
    sizes = " ".join(f"{p.name}=64" for p in parameters if p.required)
    example = _EXAMPLES.get(name, sizes)
    return Description(name, operator.summary, parameters, _dtypes(operator), example)


def describe_all() -> tuple[Description, ...]:
    return tuple(describe(WORKLOADS[name]) for name in sorted(WORKLOADS))


def parameters_of(
    defaults: Mapping[str, object], meanings: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """Parameters in order, from their defaults (`REQUIRED` for none) and meanings by name."""
    return tuple(
        Parameter(name, meanings.get(name, ""), True)
        if default is REQUIRED
        else Parameter(name, meanings.get(name, ""), False, default)
        for name, default in defaults.items()
    )


def _dtypes(operator: Operator) -> tuple[str, ...]:
    """Types of which the template makes a task: it is tried with each."""
    if "dtype" not in operator.params:
        return ()
    sizes = {name: 8 for name, default in operator.params.items() if default is REQUIRED}
    accepted = []
    for dtype in dtypes.SUPPORTED:
        # A refusal is the answer.
        with suppress(LoopwrightError):
            create_task(operator.template, operator.args({**sizes, "dtype": dtype}), "llvm")
            accepted.append(dtype)
    return tuple(accepted)
