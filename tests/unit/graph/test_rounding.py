"""Floats of 16 bits: an operator gives what it gives of float32, rounded; and other edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import dtypes, graph, te
from loopwright.graph import op
from loopwright.graph.rounding import computed
from tests.unit.graph.values import run

Array = np.ndarray[Any, Any]


def _run(outputs: dict[str, graph.Expr], *inputs: Array) -> dict[str, Array]:
    module = graph.IRModule.from_expr(graph.Tuple(tuple(outputs.values())))
    return dict(zip(outputs, graph.compile(module, "llvm -num-threads=1")(*inputs), strict=True))


def _operators(dtype: str, narrow: str) -> dict[str, graph.Expr]:
    """Calls that round often, of a dtype; constants are numbers of the narrow one."""
    x = graph.var("x", (3, 40), dtype)

    def constant(*values: float) -> graph.Expr:
        return graph.const(np.array(values, "float32").astype(narrow).astype(dtype))

    row, column = constant(*np.linspace(0.3, 1.7, 40)), constant(0.7, 1.1, 1.9)
    return {
        "gelu": op.nn.gelu(x),
        "gelu by tanh": op.nn.gelu(x, approximate=True),
        "elu": op.nn.elu(x, alpha=0.3),
        "leaky relu": op.nn.leaky_relu(x, alpha=0.01),
        "softplus": op.nn.softplus(x),
        "asinh": op.asinh(x),
        "remainder": op.mod(x, constant(0.7)),
        "floor division": op.floor_divide(x, constant(0.7)),
        "sum": op.sum(x, axis=1),
        "product": op.prod(x, axis=0),
        "mean": op.mean(x),
        "cumsum": op.cumsum(x, axis=1),
        "cumprod": op.cumprod(x, axis=0),
        "softmax": op.nn.softmax(x),
        "log softmax": op.nn.log_softmax(x),
        "layer norm": op.nn.layer_norm(x, row, row),
        "batch norm": op.nn.batch_norm(x, column, column, column, column, axis=0),
        "average pool": op.nn.avg_pool(op.reshape(x, newshape=(1, 3, 40)), pool_size=3),
    }


def _by_numpy(outputs: dict[str, graph.Expr], *inputs: Array) -> dict[str, Array]:
    """The same by the expressions of the operators, without a compiler."""
    module = graph.IRModule.from_expr(graph.Tuple(tuple(outputs.values())))
    return dict(zip(outputs, run(module, *inputs), strict=True))


@pytest.mark.parametrize("computed_by", [_by_numpy, pytest.param(_run, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", dtypes.HALVES)
def test_an_operator_rounds_once(dtype: str, computed_by: Callable[..., dict[str, Array]]) -> None:
    dtypes.check(dtype)  # which lets NumPy know bfloat16
    x = np.random.default_rng(0).normal(0, 2, (3, 40)).astype(dtype)
    narrow = {n: op.cast(e, dtype="float32") for n, e in _operators(dtype, dtype).items()}
    found = computed_by(narrow, x)
    exact = computed_by(_operators("float32", dtype), x.astype("float32"))
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for name, got in found.items():
        want = exact[name].astype(dtype).astype("float32")
        # Sums of other kernels may be added up in another order, and round to the neighbour.
        near = np.abs(got - want) <= unit * np.abs(want)
        assert near.all(), name
        assert (got == want).mean() > 0.98, name


def test_arithmetic_and_single_operations_have_no_casts() -> None:
    x = te.placeholder((4,), "float16", name="x")
    for name in ("add", "exp", "nn.relu", "negative"):
        compute = graph.get_op(name).compute
        inputs = [x, x] if name == "add" else [x]
        (found,) = computed(compute, inputs, {})
        assert [t.name for t in found.op.input_tensors] == ["x"], name


NUMBERS = np.array([1, np.nan, -0.0, 3, 0, np.inf, -np.inf, 3, np.nan], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_is_the_largest_and_ties_keep_their_order(dtype: str) -> None:
    x = graph.var("x", (9,), dtype)
    outputs: dict[str, graph.Expr] = {}
    for name, largest in (("up", False), ("down", True)):
        pair = op.topk(x, k=9, largest=largest)
        outputs |= {f"{name} {n}": graph.TupleGetItem(pair, n) for n in (0, 1)}
    outputs |= {"most": op.argmax(x), "least": op.argmin(x)}
    found = _run(outputs, NUMBERS.astype(dtype))
    up = np.argsort(NUMBERS, kind="stable")
    keys = np.where(np.isnan(NUMBERS), -np.inf, -NUMBERS)
    down = sorted(range(9), key=lambda n: (not np.isnan(NUMBERS[n]), keys[n], n))
    np.testing.assert_array_equal(found["up 1"], up)
    np.testing.assert_array_equal(found["down 1"], down)
    for name, order in (("up", up), ("down", down)):
        np.testing.assert_array_equal(found[f"{name} 0"].astype("float32"), NUMBERS[order])
    assert (found["most"], found["least"]) == (NUMBERS.argmax(), NUMBERS.argmin())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverse_functions_over_the_whole_range(dtype: str) -> None:
    limits = np.finfo(dtype)
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(np.log10(limits.tiny), np.log10(limits.max), 2000)
    near = 1 + rng.uniform(-1, 1, 500) * 10.0 ** rng.uniform(-7, 0, 500)
    edges = [0, -0.0, 1, -1, np.nan, np.inf, -np.inf, limits.max, -limits.max, limits.tiny]
    values = np.concatenate([size, -size, near, -near, edges]).astype(dtype)
    x = graph.var("x", values.shape, dtype)
    names = ("asinh", "acosh", "atanh")
    found = _run({name: graph.get_op(name)(x) for name in names}, values)
    for name in names:
        with np.errstate(all="ignore"):
            want = getattr(np, f"arc{name[1:]}")(values.astype(np.longdouble)).astype(dtype)
        np.testing.assert_allclose(found[name], want, rtol=8 * limits.eps, err_msg=name)
        np.testing.assert_array_equal(
            np.signbit(found[name])[want == 0], np.signbit(want[want == 0])
        )


def test_quotients_of_floats_are_rounded_down_as_numpy_does() -> None:
    values = np.array([0, -0.0, 1, -1, 0.1, -7.5, 3, 1e30, np.inf, -np.inf, np.nan], "float32")
    a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(values, values))
    x, y = graph.var("x", a.shape), graph.var("y", a.shape)
    (found,) = _run({"quotient": op.floor_divide(x, y)}, a, b).values()
    with np.errstate(all="ignore"):
        want = np.where(b == 0, a / b, a // b)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found)[found == 0], np.signbit(want)[found == 0])


def test_integers_keep_their_dtype() -> None:
    x = graph.var("x", (2,), "int8")
    u = graph.var("u", (3,), "uint8")
    outputs = {
        "mean": op.mean(x),
        "sign": op.sign(x),
        "power": op.power(x, x),
        "bounds": op.clip(u, a_min=-5, a_max=300),
        "unsigned sign": op.sign(u),
        "long mean": op.mean(op.broadcast_to(x, shape=(300, 2))),
    }
    found = _run(outputs, np.array([7, -8], "int8"), np.array([0, 5, 255], "uint8"))
    assert [a.dtype.name for a in found.values()] == [*["int8"] * 3, "uint8", "uint8", "int8"]
    assert (found["mean"], found["long mean"]) == (0, 0)
    assert found["sign"].tolist() == [1, -1]
    assert found["power"].tolist() == [(7**7 + 128) % 256 - 128, 0]
    assert found["bounds"].tolist() == [0, 5, 255]
    assert found["unsigned sign"].tolist() == [0, 1, 1]
