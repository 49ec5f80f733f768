"""Right kernels of many kinds pass the check: none is refused for its rounding, its order of sums,
or what it does with infinities and NaN."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fuzzing.fuzz import examples
from loopwright import ops, te
from loopwright.errors import LoopwrightError
from loopwright.graph.op.winograd import F2, F4, winograd
from loopwright.measure import LocalBuilder, LocalRunner, Measurer, measure_option
from loopwright.schedule import replay
from loopwright.task import create_task
from loopwright.te.dag import Dag
from tests.unit.measure.planted import Program, artifact_of, checked, scheduled

pytestmark = pytest.mark.slow
TARGET = "llvm -num-threads=1"
OPTION = measure_option(LocalBuilder(n_parallel=1, timeout=60), LocalRunner(timeout=30))
_IMAGE = {"N": 1, "C": 8, "H": 9, "W": 9, "O": 8, "KH": 3, "KW": 3, "pad": 1}
OPERATORS: list[tuple[str, dict[str, Any]]] = [
    *(("matmul", {"M": 16, "N": 40, "K": k}) for k in (1, 33, 4096)),
    *(("matmul", {"M": 24, "N": 40, "K": 512, "dtype": t}) for t in ("float16", "bfloat16")),
    ("matmul_int8", {"M": 24, "N": 48, "K": 64}),
    ("dense", {"M": 24, "N": 40, "K": 1000}),
    ("batch_matmul", {"B": 2, "M": 24, "N": 40, "K": 32}),
    ("conv2d", _IMAGE),
    ("depthwise_conv2d", {k: v for k, v in _IMAGE.items() if k != "O"}),
    *(("softmax", {"M": 24, "N": 200, "dtype": t}) for t in ("float32", "bfloat16", "float16")),
    *(("layer_norm", {"M": 24, "N": 300, "dtype": t}) for t in ("float32", "bfloat16")),
    ("reduce", {"M": 24, "N": 3000}),
    ("elementwise", {"M": 24, "N": 40, "dtype": "float16"}),
]


def _rows(n: int, k: int, dtype: str = "float32") -> tuple[te.Tensor, te.IterVar]:
    return te.placeholder((n, k), dtype, name="a"), te.reduce_axis((0, k), name="k")


def variance(k: int, parts: int) -> Program:
    """The mean of squares less the square of the mean, which cancel where numbers are alike."""
    a, r = _rows(64, k)
    q = te.reduce_axis((0, k), name="q")
    total = te.compute((64,), lambda i: te.sum(a[i, r], axis=r), name="total")
    squares = te.compute((64,), lambda i: te.sum(a[i, q] * a[i, q], axis=q), name="squares")
    out = te.compute((64,), lambda i: squares[i] / k - (total[i] / k) * (total[i] / k), name="out")
    s, args = scheduled(out, a)
    for t, axis in ((total, r), (squares, q)):
        _, inner = s[t].split(axis, factor=parts)
        s.rfactor(t, inner)
    return s, args


def alternating(k: int) -> Program:
    a, r = _rows(64, k)
    out = te.compute((64,), lambda i: te.sum(a[i, r] - a[63 - i, r] * 1.5, axis=r), name="out")
    s, args = scheduled(out, a)
    _, inner = s[out].split(r, factor=16)
    s[out].vectorize(inner)
    return s, args


def mirrored(dtype: str) -> Program:
    """Each term comes once with either sign: all that is left is rounding."""
    a, r = _rows(64, 700, dtype)
    out = te.compute((64,), lambda i: te.sum(a[i, r] - a[i, 699 - r], axis=r), name="out")
    s, args = scheduled(out, a)
    _, inner = s[out].split(r, factor=4)
    s.rfactor(out, inner)
    return s, args


def largest(dtype: str, parts: int) -> Program:
    a, r = _rows(64, 96, dtype)
    at, top = te.compute((64,), lambda i: te.argmax((r, a[i, r]), axis=r), name="out")
    s = te.create_schedule(at.op)
    _, inner = s[at].split(r, factor=parts)
    s.rfactor(at, inner)
    return s, [a, at, top]


def extreme(which: Any, dtype: str) -> Program:
    a, r = _rows(64, 96, dtype)
    out = te.compute((64,), lambda i: which(a[i, r], axis=r), name="out")
    s, args = scheduled(out, a)
    _, inner = s[out].split(r, factor=16)
    s[out].vectorize(inner)
    return s, args


def log_sum_exp(k: int) -> Program:
    a, r = _rows(64, k)
    q = te.reduce_axis((0, k), name="q")
    top = te.compute((64,), lambda i: te.max(a[i, r], axis=r), name="top")
    total = te.compute((64,), lambda i: te.sum(te.exp(a[i, q] - top[i]), axis=q), name="total")
    out = te.compute((64,), lambda i: te.log(total[i]) + top[i], name="out")
    s, args = scheduled(out, a)
    _, inner = s[total].split(q, factor=8)
    s[total].vectorize(inner)
    return s, args


def elementwise(dtype: str, f: Callable[..., Any]) -> Program:
    a, b = te.placeholder((512,), dtype, name="a"), te.placeholder((512,), dtype, name="b")
    out = te.compute((512,), lambda i: f(a[i], b[i]), name="out")
    s, args = scheduled(out, *out.op.input_tensors)
    _, inner = s[out].split(out.op.axis[0], factor=32)
    s[out].vectorize(inner)
    return s, args


def of_winograd(transforms: Any) -> Program:
    wide = -(-10 // transforms.step) * transforms.step + 2
    x, w = te.placeholder((1, wide, wide, 6), name="x"), te.placeholder((3, 3, 6, 5), name="w")
    value = winograd(transforms, (1, 10, 10, 5), 6, lambda *at: x[at], lambda *at: w[at])
    return scheduled(te.compute((1, 10, 10, 5), value, name="out"), x, w)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: (lambda a, b, f=name: getattr(te, f)(a))
        for name in (
            "exp",
            "exp2",
            "log",
            "log2",
            "log1p",
            "expm1",
            "tanh",
            "sigmoid",
            "erf",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "atan",
            "floor",
            "ceil",
            "round",
            "trunc",
            "abs",
            "sinh",
            "cosh",
        )
    },
    "power": lambda a, b: te.power(a, b),
    "quotient": lambda a, b: a / b,
    "gelu": lambda a, b: a * 0.5 * (te.erf(a * 0.70710678) + 1.0),
    "to an integer": lambda a, b: a.astype("int32") + b.astype("int32"),
    "to a byte": lambda a, b: te.round(a * 12.0).astype("int8"),
    "chosen": lambda a, b: te.select(a - b > 0.0, a, b * 2.0),
    "cancelling": lambda a, b: (a + b) * (a - b) - a * a,
}
OTHERS: dict[str, Callable[[], Program]] = {
    **{f"variance {k}": lambda k=k: variance(k, 8) for k in (32, 1000)},
    **{f"alternating {k}": lambda k=k: alternating(k) for k in (32, 1024)},
    **{f"mirrored {t}": lambda t=t: mirrored(t) for t in ("float32", "float64", "bfloat16")},
    **{f"argmax {t}": lambda t=t: largest(t, 8) for t in ("float32", "int8", "float16")},
    **{f"max {t}": lambda t=t: extreme(te.max, t) for t in ("float32", "uint8", "bfloat16")},
    **{f"min {t}": lambda t=t: extreme(te.min, t) for t in ("float32", "int64")},
    **{
        f"sum {t}": lambda t=t: extreme(te.sum, t) for t in ("float32", "float16", "int8", "uint32")
    },
    **{f"prod {t}": lambda t=t: extreme(te.prod, t) for t in ("float32", "int32")},
    **{f"log of a sum {k}": lambda k=k: log_sum_exp(k) for k in (16, 512)},
    **{f"F{n}": lambda t=t: of_winograd(t) for n, t in ((2, F2), (4, F4))},
    **{
        f"{n} {t}": lambda n=n, t=t: elementwise(t, FUNCTIONS[n])
        for n in FUNCTIONS
        for t in ("float32", "float16", "float64")
    },
}


@pytest.fixture(scope="module")
def processes() -> Iterator[Measurer]:
    with Measurer(create_task("transpose", (8, 8), TARGET), OPTION) as m:
        yield m


@pytest.mark.parametrize("name", OTHERS)
def test_a_kernel_of_its_own(name: str, processes: Measurer) -> None:
    program = OTHERS[name]()
    assert checked(name, program, artifact_of(program), processes) is None


@pytest.mark.parametrize("seed", range(120))
def test_a_random_schedule(seed: int, processes: Measurer) -> None:
    """Of three seeds one is scheduled for threads, which the interpreter runs."""
    kind = "threads" if seed % 3 == 2 else "cpu"
    target = "interp" if kind == "threads" else TARGET
    (case,), _, _ = examples(seed, kind)
    try:
        s = replay(Dag.from_json(case.dag), case.trace)
        program = s, [s.tensor(i) for i in case.arg_ids]
        artifact = artifact_of(program, target)
    except LoopwrightError as refusal:
        pytest.skip(f"the schedule is none: {refusal}")
    assert checked(f"seed {seed}", program, artifact, processes, target) is None


@pytest.mark.parametrize(("name", "sizes"), OPERATORS)
def test_an_operator(name: str, sizes: dict[str, Any], processes: Measurer) -> None:
    operator = ops.WORKLOADS[name]
    task = create_task(operator.template, operator.args(sizes), TARGET)
    rng = random.Random(0)
    places = [task.config_space.default_index]
    places += [rng.randrange(len(task.config_space)) for _ in range(2)]
    for place in places:
        try:
            program = task.instantiate(task.config_space.get(place))
            artifact = artifact_of(program)
        except LoopwrightError:
            continue  # a point that cannot be built
        assert checked(f"{name} {place}", program, artifact, processes) is None
