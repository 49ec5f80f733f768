"""Description of an operator for those who tune it: parameters, their meaning, and an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopwright import dtypes
from loopwright.errors import LoopwrightError
from loopwright.ops.operator import REQUIRED, WORKLOADS, Operator
from loopwright.records import Json
from loopwright.task import create_task

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
_DTYPE = "type of the elements"
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
    #: Values of its parameter ``dtype``; empty where it has none.
    dtypes: tuple[str, ...]
    #: Words of a command line that give it parameters.
    example: str

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "summary": self.summary,
            "parameters": [
                {
                    "name": p.name,
                    "meaning": p.meaning,
                    "required": p.required,
                    "default": p.default,
                }
                for p in self.parameters
            ],
            "dtypes": list(self.dtypes),
            "example": self.example,
        }


def describe(operator: Operator) -> Description:
    """The description of an operator, of `WORKLOADS` or registered by its user."""
    meanings = {"dtype": _DTYPE, **_MEANINGS.get(operator.name, {})}
    parameters = parameters_of(operator.params, meanings)
    return Description(
        operator.name,
        operator.summary,
        parameters,
        _dtypes(operator),
        _EXAMPLES.get(operator.name, " ".join(f"{p.name}=64" for p in parameters if p.required)),
    )


def describe_all() -> tuple[Description, ...]:
    return tuple(describe(WORKLOADS[name]) for name in sorted(WORKLOADS))


def parameters_of(
    defaults: Mapping[str, object], meanings: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """Parameters in order, from their defaults (`REQUIRED` for none) and meanings by name."""
    return tuple(
        Parameter(name, meanings.get(name, ""), default is REQUIRED, _shown(default))
        for name, default in defaults.items()
    )


def _shown(default: object) -> Json:
    return None if default is REQUIRED else default


def _dtypes(operator: Operator) -> tuple[str, ...]:
    """Types of which the template makes a task; it is asked for each, for it alone knows."""
    if "dtype" not in operator.params:
        return ()
    sizes = {name: 8 for name, default in operator.params.items() if default is REQUIRED}
    return tuple(name for name in dtypes.SUPPORTED if _takes(operator, {**sizes, "dtype": name}))


def _takes(operator: Operator, given: Mapping[str, Json]) -> bool:
    try:
        create_task(operator.template, operator.args(given), "llvm")
    except LoopwrightError:  # the refusal is the answer
        return False
    return True
