"""Numbers of PyTorch's operators at their edges: a compiled kernel beside eager PyTorch.

``python -m benchmarks.torch_numbers`` takes every operator of PyTorch's own list (``op_db`` of
``torch.testing``) in every dtype that kernels have, on samples of that list and on such of their
values as are edges: NaN, infinities, zeros of both signs, the limits of the dtype, halves,
denormals. The first tensor is also transposed, expanded, a slice of a larger one, and one without
dimensions or elements; kernels take no tensor without elements, which counts as refused.
``--only add,sort``, ``--dtypes float16`` and ``--shard 1/2`` take a part, ``--list FILE`` writes
all differences.

A float may differ by `TOLERANCE`; NaN and infinities stand at the same places; integers and bools
are equal. Zeros of the other sign are counted apart. What falls back to PyTorch is counted, and is
no difference; what eager PyTorch refuses, or is not stable at, is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from loopwright import dtypes, graph
from loopwright.errors import LoopwrightError
from loopwright.graph.frontend.torch.importer import TorchImporter
from loopwright.graph.frontend.torch.memory import as_array
from loopwright.graph.frontend.torch.model import input_type
from loopwright.graph.ir.expr import Expr, Function, Tuple, Var
from loopwright.graph.ir.module import MAIN, IRModule

TARGET = "llvm -num-threads=1"
DTYPES = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "uint8", "int16", "int32", "int64", "bool"),
)
#: Relative and absolute: some units in the last place of a function, and a sum of few numbers.
TOLERANCE = {
    "float64": (2e-12, 1e-300),
    "float32": (4e-6, 1e-38),
    "float16": (2.0**-9, 2.0**-23),
    "bfloat16": (2.0**-6, 1e-38),
}
Numbers: TypeAlias = "np.ndarray[Any, Any]"
#: Of inputs, our output, PyTorch's and the dtype: the elements that may differ. Floats are float64.
Excuse: TypeAlias = "Callable[[Sequence[Numbers], Numbers, Numbers, str], Any]"


def _beyond(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    """Not finite in one of the two, where an input squared is beyond the limit; or what is left
    where such inputs cancel."""
    info = ml_dtypes.finfo(dtype)
    most = max(np.abs(x[np.isfinite(x)]).max(initial=0) for x in inputs)
    left = np.abs(got - want) <= float(info.eps) * most
    return (most > float(info.max) ** 0.5 / 2) & (left | ~(np.isfinite(got) & np.isfinite(want)))


def _beside_infinity(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    infinite = any(np.isinf(x).any() for x in inputs)
    return infinite & (np.isnan(got) != np.isnan(want)) & (np.isinf(got) | np.isinf(want))


def _one_element(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    """The bias, where nothing else is left of a row of one element."""
    return (inputs[0].size == 1) & (got == inputs[-1].ravel()[:1])


def _huge_quotient(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    excused = np.zeros(got.shape, bool)
    for a, b in itertools.permutations(inputs, 2):  # `__rmod__` divides the second
        huge = np.isfinite(a) & (b != 0) & (np.abs(a / b) > float(ml_dtypes.finfo(dtype).max))
        excused |= huge & np.isnan(want) & (np.abs(got) <= np.abs(b))
    return excused


def _equal_ones(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    """Other places of equal elements, along an axis in which alone shapes differ, or any."""
    x, excused = inputs[0], np.zeros(got.shape, bool)
    for axis in range(x.ndim if got.ndim == x.ndim else 0):
        others = [n for n in range(x.ndim) if n != axis and x.shape[n] != got.shape[n]]
        if not others and (got < x.shape[axis]).all() and not np.isnan(got).any():
            a, b = (np.take_along_axis(x, i.astype("int64"), axis) for i in (got, want))
            excused |= (a == b) | (np.isnan(a) & np.isnan(b))
    return excused


def _at_infinity(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return np.isinf(inputs[0]) & np.isnan(want) & ((got == inputs[0]) | (got == 0))


def _last_place(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return np.abs(got - want) <= 2 * float(ml_dtypes.finfo(dtype).eps)


def _beyond_integers(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    """The nearest limit of a float that is beyond it, and 0 of NaN."""
    x = inputs[0]
    low, high = got.dtype.type(np.iinfo(got.dtype).min), got.dtype.type(np.iinfo(got.dtype).max)
    above, below = x >= float(high), x <= float(low) - (x > -(2.0**31))
    return ((got == high) & above) | ((got == low) & below) | ((got == 0) & np.isnan(x))


def _beside_nan(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return (~np.isfinite(inputs[0])).any() & np.isnan(got) & ~np.isnan(want)


def _spread(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return (~np.isfinite(inputs[0])).any() & np.isnan(want) & ~np.isnan(got)


def _small(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return np.abs(got - want) <= 2.0**-20


def _between(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    """Within a rounding of the right value, which PyTorch's roundings between steps are not."""
    x, eps = inputs[0], float(ml_dtypes.finfo(dtype).eps)
    exact = np.log(x / (1 - x))
    return np.abs(got - exact) <= eps * np.abs(exact)


def _cancelled(inputs: Sequence[Numbers], got: Numbers, want: Numbers, dtype: str) -> Any:
    return np.abs(got - want) <= 2.0**-23 * max(np.abs(x.astype("float64")).max() for x in inputs)


#: What differs and is meant: by names of the list, dtypes and elements. docs/numbers.md has it.
_FLOATS, _WIDE = DTYPES[:4], ("float32", "float64", "bfloat16")
_ATTENTION = "nn.functional.scaled_dot_product_attention"
_POOLS = " ".join(f"nn.functional.avg_pool{n}d" for n in (1, 2, 3))
_PRODUCTS = "bmm matmul __rmatmul__ mm addmm baddbmm addbmm einsum"
_CONVOLUTIONS = " ".join(
    f"nn.functional.conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3)
)
_TRIPLET = "nn.functional.triplet_margin"
_MARGIN = "nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss"
_NORMS = "nn.functional.layer_norm native_layer_norm nn.functional.group_norm"
MEANT: tuple[tuple[str, Sequence[str], Excuse], ...] = (
    (
        f"{_PRODUCTS} {_ATTENTION} {_CONVOLUTIONS} {_POOLS}",
        _FLOATS,
        _beyond,
    ),  # added up in another order
    (f"bmm {_CONVOLUTIONS}", ("bfloat16",), _spread),  # PyTorch's pairs have a neighbour times 0
    ("prod", _FLOATS, _beyond),
    ("cumsum cumprod", _WIDE, _beyond),  # PyTorch adds up in float64
    (
        "var std var_mean std_mean masked.var masked.std",
        _FLOATS,
        _beyond,
    ),  # and here: Welford's steps
    ("var_mean std_mean", _FLOATS, _beside_infinity),  # whose mean is NaN there
    (_NORMS, _WIDE, _beyond),
    ("masked.norm", _FLOATS, _beyond),  # PyTorch squares no single element
    (_NORMS, ("float16", "bfloat16"), _one_element),  # PyTorch's x * s - mean * s leaves some
    ("nn.functional.interpolate", _FLOATS, _beside_infinity),  # PyTorch's a + (b - a) * part
    ("fmod remainder __rmod__", _WIDE, _huge_quotient),  # NaN in PyTorch's vectors
    ("topk", DTYPES, _equal_ones),  # the first is first; PyTorch has no order of them
    ("nn.functional.gelu", ("float32", "bfloat16"), _at_infinity),  # NaN in PyTorch's vectors
    ("erf nn.functional.silu", dtypes.HALVES, _small),  # PyTorch's vectors are exact near 1
    ("logit", dtypes.HALVES, _between),
    ("special.ndtr", ("float32",), _last_place),  # 1 + erf(x) leaves the rounding of erf
    ("nn.functional.tanhshrink", _FLOATS, _last_place),  # x - tanh(x) shows that of tanh
    ("_softmax_backward_data", _FLOATS, _last_place),  # of equal ones only rounding is left
    # Norms of large whole numbers, of which one is taken from the other.
    (f"{_TRIPLET}_with_distance_loss {_TRIPLET}_loss", DTYPES[4:], _cancelled),
    ("byte char short int long", _FLOATS, _beyond_integers),
    ("masked.logsumexp", DTYPES[4:], _beyond_integers),
    (_MARGIN, _FLOATS, _beside_nan),  # PyTorch's decomposition keeps it
)
#: Parts of names: elements that are any, what LAPACK, given NaN, does not come back from, and what
#: eager PyTorch does not survive at the limits of whole numbers, or in other shapes.
_LEFT_OUT = (
    *("empty", "linalg.", "svd", "eig", "lu_", "cholesky", "lstsq", "pinverse", "geqrf"),
    *("lcm", "bincount", "_segment_reduce"),
)
#: Samples of an operator and a dtype, and elements of one, at most.
_SAMPLES, _ELEMENTS = 4, 4096
#: Values that are no numbers, or infinite, stand in samples of their own: one hides all others.
_SPECIAL = (np.nan, np.inf, -np.inf)
_ORDINARY = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 0.1, 89.0, -104.0, 1e4)


@dataclass
class Result:
    """What became of an operator in a dtype.

    Attributes:
        samples: that were compared.
        values: elements that were compared.
        wrong: what differs, for people.
        meant: elements that differ as is meant.
        zeros: elements that are zeros of the other sign.
        refused: samples that no kernel takes, by reason.
        left: why nothing was compared, or ``""``.
    """

    samples: int = 0
    values: int = 0
    wrong: list[str] = field(default_factory=list)
    meant: int = 0
    zeros: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    left: str = ""


def edges(dtype: str) -> np.ndarray[Any, Any]:
    """The values at which a dtype is tried, beside those of samples; finite ones come first."""
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_int(dtype):
        low, high = map(int, dtypes.limits(dtype))
        values = (0, 1, 2, 3, 7, 8, 100, high, high - 1, low, low + 1, -1, -2, -3, -7, -8, -100)
        return np.array([v for v in dict.fromkeys(values) if low <= v <= high], dtype)
    bits = 8 * np.dtype(dtypes.check(dtype)).itemsize
    whole, fraction = f"uint{bits}", {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
    normal, infinity = 1 << fraction[dtype], int(np.array(np.inf, dtype).view(whole))
    near = np.array([1, normal, infinity - 1], whole).view(dtype)
    root = np.sqrt(near[-1:].astype("float64")).astype(dtype)
    return np.concatenate([np.array(_ORDINARY, dtype), near, -near, root, -root, _specials(dtype)])


def _specials(dtype: str) -> np.ndarray[Any, Any]:
    return np.array(_SPECIAL, dtype)


def operators() -> list[Any]:
    """PyTorch's list of its operators, with their samples."""
    # Only tests of PyTorch need what the package holds.
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not any(part in op.name for part in _LEFT_OUT)]


def supported(op: Any) -> list[str]:
    """The dtypes of kernels in which PyTorch has an operator."""
    names = {str(d).removeprefix("torch.") for d in op.supported_dtypes("cpu")}
    return [d for d in DTYPES if d in names]


@dataclass(frozen=True)
class _Call:
    """A call of an operator: a function of some tensors, and the tensors."""

    function: Callable[..., Any]
    tensors: tuple[Any, ...]


def _calls(op: Any, dtype: str, seed: int) -> Iterator[_Call]:
    """Calls of an operator: samples as they are, and at edges."""
    import torch
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    kind = getattr(torch, dtype)
    rng = np.random.default_rng(seed)
    elementwise = isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo))
    if elementwise:
        yield from _every_pair(op, dtype, rng)
    torch.manual_seed(seed)
    layouts = list(_LAYOUTS)
    for sample in itertools.islice(op.sample_inputs("cpu", kind), _SAMPLES):
        call = _call_of(op, sample)
        if call is None:
            continue
        yield call
        movable = [
            n for n, t in enumerate(call.tensors) if t.dtype is kind and (n == 0 or elementwise)
        ]
        if not movable or not isinstance(sample.input, torch.Tensor):
            continue
        for values in _fillings(op, dtype, rng):
            yield _filled(call, movable, values, rng)
        for layout in layouts[:]:
            if call.tensors[0].ndim > (layout is _transposed):
                layouts.remove(layout)
                first, *others = call.tensors
                yield _Call(call.function, (layout(first), *others))


def _every_pair(op: Any, dtype: str, rng: np.random.Generator) -> Iterator[_Call]:
    """All pairs of edges; of one operand all of them, and all values that there are of 16 bits."""
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo

    values = edges(dtype)
    if isinstance(op, BinaryUfuncInfo):
        a, b = (m.ravel() for m in np.meshgrid(values, values))
        if _divides(op, dtype):
            fine = (b != 0) & ((a != values.min()) | (b.astype("float64") != -1))
            a, b = a[fine], b[fine]
        yield _Call(op.op, (_tensor(a), _tensor(b)))
        yield _Call(
            op.op, (_tensor(np.ascontiguousarray(a[::-1])), _tensor(values[1:2].reshape(())))
        )
        return
    if dtype in dtypes.HALVES:
        values = np.arange(1 << 16, dtype="uint16").view(dtype)
    elif dtypes.is_float(dtype):
        whole = f"uint{8 * values.dtype.itemsize}"
        bits = rng.integers(0, np.iinfo(whole).max, 4096, whole, endpoint=True).view(dtype)
        ordinary = rng.uniform(-20, 20, 4096).astype(dtype)
        values = np.concatenate([values, bits, ordinary])
    yield _Call(op.op, (_tensor(values),))


def _divides(op: Any, dtype: str) -> bool:
    """Whether eager PyTorch refuses zeros, and processors trap at the least number by -1."""
    divisions = ("div", "mod", "remainder")
    return dtype != "bool" and dtypes.is_int(dtype) and any(d in op.name for d in divisions)


def _fillings(op: Any, dtype: str, rng: np.random.Generator) -> Iterator[Numbers]:
    values = edges(dtype)
    if _divides(op, dtype):
        values = values[(values != 0) & (values != values.min())]
    if not dtypes.is_float(dtype):
        yield values
        return
    ordinary = values[: -len(_SPECIAL)]
    small = np.array(_ORDINARY, dtype)
    yield ordinary
    yield np.concatenate([small, _specials(dtype)[:1]])
    yield np.concatenate([small, _specials(dtype)[1:]])


def _tensor(a: np.ndarray[Any, Any]) -> Any:
    import torch

    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(a)


def _call_of(op: Any, sample: Any) -> _Call | None:
    """A sample as a function of its tensors; None where it is too large, or has no tensor."""
    import torch
    from torch.utils import _pytree as tree

    leaves, spec = tree.tree_flatten((sample.input, list(sample.args), dict(sample.kwargs)))
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = tuple(leaves[n].detach() for n in places)
    if not tensors or sum(t.numel() for t in tensors) > _ELEMENTS:
        return None

    def function(*given: Any) -> Any:
        again = list(leaves)
        for n, t in zip(places, given, strict=True):
            again[n] = t
        first, args, kwargs = tree.tree_unflatten(again, spec)
        return op.op(first, *args, **kwargs)

    return _Call(function, tensors)


def _filled(
    call: _Call, places: Sequence[int], values: np.ndarray[Any, Any], rng: np.random.Generator
) -> _Call:
    """A call whose tensors have other elements, each value as often as any other."""
    tensors = list(call.tensors)
    for n in places:
        shape = tuple(tensors[n].shape)
        count = int(np.prod(shape))
        chosen = rng.permutation(np.resize(rng.permutation(values), count))
        tensors[n] = _tensor(np.ascontiguousarray(chosen.reshape(shape)))
    return _Call(call.function, tuple(tensors))


def _transposed(x: Any) -> Any:
    return x.mT.contiguous().mT


def _expanded(x: Any) -> Any:
    return x[:1].expand(x.shape)


def _sliced(x: Any) -> Any:
    whole = x.new_zeros([n + 2 for n in x.shape])
    part = whole[tuple(slice(1, n + 1) for n in x.shape)]
    part.copy_(x)
    return part


def _without_dimensions(x: Any) -> Any:
    return x.ravel()[0] if x.numel() else x


def _without_elements(x: Any) -> Any:
    return x[:0]


#: How the first tensor of a sample lies in memory, or what is left of it.
_LAYOUTS = (_transposed, _expanded, _sliced, _without_dimensions, _without_elements)


def compare(op: Any, dtype: str, seed: int = 0) -> Result:
    """An operator in a dtype: what kernels and eager PyTorch make of its samples.

    Args:
        op: of `operators`.
        dtype: of `supported`.
        seed: of samples and edges.
    """
    import torch
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    elementwise = isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo))
    result = Result()
    taken: list[tuple[_Call, list[Any]]] = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for call in _calls(op, dtype, seed):
                wanted = _eager(call)
                if wanted is not None:
                    taken.append((call, wanted))
        except Exception as exc:  # samples of some operators need what is not installed
            result.left = f"samples: {type(exc).__name__}: {exc}"
        if not taken:
            result.left = result.left or "eager PyTorch refuses every sample"
            return result
        graphs = []
        for n, (call, wanted) in enumerate(taken):
            try:
                graphs.append((call, wanted, *_imported(call, f"c{n}_")))
            except LoopwrightError as exc:
                result.refused[f"falls back: {' '.join(str(exc).split())}"] += 1
            except Exception as exc:  # operators that cannot be traced have no graph
                result.refused[f"no graph: {type(exc).__name__}: {str(exc).strip():.100}"] += 1
        if not graphs:
            result.left = next(iter(result.refused))
            return result
        try:
            made = iter(_compiled([(call, *graph) for call, _, *graph in graphs]))
        except LoopwrightError as exc:
            result.left = f"falls back: {' '.join(str(exc).split())}"
            return result
    excuses = [f for names, kinds, f in MEANT if op.name in names.split() and dtype in kinds]
    for call, wanted, *_ in graphs:
        for want in wanted:
            _compared(result, call, next(made), want, elementwise, excuses, dtype)
        result.samples += 1
    return result


def _eager(call: _Call) -> list[Any] | None:
    """The tensors that eager PyTorch gives; None where it gives none, or others each time."""
    import torch
    from torch.utils import _pytree as tree

    try:
        made, again = (
            tree.tree_leaves(call.function(*(t.clone() for t in call.tensors))) for _ in range(2)
        )
    except Exception:  # what an operator refuses it refuses by errors of every kind
        return None
    known = (str(t.dtype).removeprefix("torch.") in DTYPES for t in made if hasattr(t, "dtype"))
    if not made or not all(hasattr(t, "dtype") for t in made) or not all(known):
        return None
    stable = (torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(made, again, strict=True))
    return made if all(stable) else None


@cache
def _decompositions() -> dict[Any, Any]:
    import torch

    return dict(torch._decomp.core_aten_decompositions())


def _imported(call: _Call, prefix: str) -> tuple[list[Var], list[Expr]]:
    """The parameters and outputs of a call."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as tree

    def outputs(*given: Any) -> list[Any]:
        return list(tree.tree_leaves(call.function(*given)))

    traced = make_fx(
        torch.func.functionalize(outputs),
        decomposition_table=_decompositions(),
        tracing_mode="fake",
    )(*call.tensors)
    holders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    bound = {n: Var(prefix + n.name, input_type(n.name, n.meta["val"])) for n in holders}
    found = TorchImporter(False).outputs(traced, bound)
    exprs = [e for e in found if isinstance(e, Expr)]
    if len(exprs) < len(found):
        raise LoopwrightError("an output is no tensor")
    return list(bound.values()), exprs


def _compiled(
    graphs: Sequence[tuple[_Call, Sequence[Var], Sequence[Expr]]],
) -> list[np.ndarray[Any, Any]]:
    """The outputs of calls, by one model of all of them."""
    params = tuple(p for _, some, _ in graphs for p in some)
    exprs = tuple(e for _, _, some in graphs for e in some)
    module = IRModule({MAIN: Function(params, Tuple(exprs))})
    tensors = (as_array(t) for call, _, _ in graphs for t in call.tensors)
    return [np.asarray(a) for a in graph.compile(module, TARGET)(*tensors)]


def _compared(
    result: Result,
    call: _Call,
    got: Numbers,
    tensor: Any,
    elementwise: bool,
    excuses: Sequence[Excuse] = (),
    dtype: str = "",
) -> None:
    """Compare an output; what sums is as exact as its largest elements are."""
    want = as_array(tensor)
    result.values += want.size
    if got.dtype != want.dtype or got.shape != want.shape:
        result.wrong.append(f"{got.dtype}{got.shape} for {want.dtype}{want.shape}")
        return
    if not dtypes.is_float(want.dtype.name):
        bad = got != want
    else:
        relative, absolute = TOLERANCE[want.dtype.name]
        with np.errstate(all="ignore"):
            a, b = got.astype("float64"), want.astype("float64")
            finite = np.abs(b[np.isfinite(b)])
            size = np.abs(b) if elementwise else np.maximum(np.abs(b), finite.max(initial=0))
            near = np.abs(a - b) <= absolute + relative * size
        bad = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
        result.zeros += int(((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))).sum())
    if bad.any() and excuses:
        some = [_plain(as_array(t)) for t in call.tensors]
        with np.errstate(all="ignore"):
            masks = [f(some, _plain(got), _plain(want), dtype) for f in excuses]
        excused = bad & np.logical_or.reduce([np.broadcast_to(m, bad.shape) for m in masks])
        result.meant += int(excused.sum())
        bad &= ~excused
    if bad.any():
        result.wrong.append(f"{int(bad.sum())} of {bad.size}: {_example(call, got, want, bad)}")


def _plain(a: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        return a.astype("float64") if dtypes.is_float(a.dtype.name) else a


def _example(call: _Call, got: Any, want: Any, bad: Any) -> str:
    """The first elements that differ, with what they are made of where that is plain."""
    at = tuple(np.argwhere(bad)[0])
    inputs = [as_array(t) for t in call.tensors]
    read = [
        str(a[at] if a.shape == want.shape else a.item())
        for a in inputs
        if a.shape == want.shape or not a.shape
    ]
    shapes = " ".join(f"{a.dtype}{list(a.shape)}" for a in inputs)
    made_of = f"of {', '.join(read)}, " if read else ""
    return f"{made_of}got {got[at]}, PyTorch {want[at]} ({shapes})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was tried, and what differs; 1 where something does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names of operators, separated by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="1/1", help="k/n: each n-th operator from the k-th on")
    parser.add_argument("--list", type=Path, help="where all differences are written")
    args = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    only, chosen = set(filter(None, args.only.split(","))), args.dtypes.split(",")
    totals, reasons, lines = Counter[str](), Counter[str](), list[str]()
    tried, begun = set[str](), time.perf_counter()
    part, parts = map(int, args.shard.split("/"))
    for op in operators()[part - 1 :: parts]:
        if only and op.name not in only:
            continue
        if args.list:
            args.list.write_text("\n".join(lines) + "\n")
        for dtype in filter(chosen.__contains__, supported(op)):
            found = compare(op, dtype, args.seed)
            name = f"{op.name}{f'.{op.variant_test_name}' if op.variant_test_name else ''} {dtype}"
            totals["pairs"] += 1
            if found.left:
                reasons[found.left.partition(":")[0]] += 1
                lines.append(f"{name}: {found.left}")
                continue
            tried.add(name.partition(" ")[0])
            totals.update(compared=1, samples=found.samples, values=found.values)
            totals.update(meant=bool(found.meant), zeros=bool(found.zeros))
            totals.update(wrong=bool(found.wrong), refused=sum(found.refused.values()))
            for text in found.wrong:
                lines.append(f"{name}: WRONG {text}")
                print(f"{name}: {text}"[:300], flush=True)
            lines += [f"{name}: {n} samples: {text}" for text, n in found.refused.items()]
            if found.meant:
                lines.append(f"{name}: {found.meant} elements differ as is meant")
            if found.zeros:
                lines.append(f"{name}: {found.zeros} zeros of the other sign")
    if args.list:
        args.list.write_text("\n".join(lines) + "\n")
    print(
        f"{len(tried)} operators, {totals['compared']} pairs of operator and dtype, "
        f"{totals['samples']} samples ({totals['refused']} more "
        f"refused), {totals['values']} values compared in "
        f"{time.perf_counter() - begun:.0f} s; {totals['wrong']} pairs differ, "
        f"{totals['meant']} differ as is meant, {totals['zeros']} "
        f"have zeros of the other sign; left: {dict(reasons)}"
    )
    return int(totals["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
