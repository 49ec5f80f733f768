"""SimplifyExpr: each rule against the values of the module without it, and random graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

import loopwright as lw
from loopwright import graph
from loopwright.graph import op, transform
from loopwright.graph.transform.pipeline import pipeline
from tests.unit.graph.values import drawn, run

X = graph.var("x", (2, 3, 4))
IMAGE = graph.var("x", (1, 2, 5, 6))
INT = graph.var("x", (2, 3, 4), "int8")
WIDE = graph.var("x", (2, 3, 4), "int32")


def _operators(module: graph.IRModule) -> list[str]:
    nodes = graph.post_order(module["main"])
    return [e.op.name for e in nodes if isinstance(e, graph.Call)]  # type: ignore[attr-defined]


def _given(e: graph.Expr) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([int(n) for n in v.type.shape]) * 3  # type: ignore[union-attr]
        for v in graph.free_vars(e)
    ]
    return [
        a.astype(v.type.dtype)  # type: ignore[union-attr]
        for a, v in zip(arrays, graph.free_vars(e), strict=True)
    ]


def _simplified(
    e: graph.Expr, exact: bool = True, simplify: transform.Pass = transform.SimplifyExpr
) -> list[str]:
    """The operators that are left, where the values are the same."""
    before = graph.IRModule.from_expr(e)
    with lw.PassContext(config={"verify": True}):
        after = simplify(before)
    inputs = _given(e)
    wanted = run(before, *inputs)
    # The parameters stay, whether or not they are read.
    for a, b in zip(run(after, *inputs), wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        tolerance = 0 if exact else 1e-6
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return _operators(after)


def _f32(*values: float) -> np.ndarray:
    return np.array(values, "float32")


def _conv(x: graph.Expr, **attrs: object) -> graph.Expr:
    weight = np.linspace(-1, 1, 3 * 2 * 3 * 3, dtype="float32").reshape(3, 2, 3, 3)
    return op.nn.conv(x, weight, **attrs)


CASES: dict[str, tuple[Callable[[], graph.Expr], list[str]]] = {
    "sum with 0 stays: -0 becomes 0": (lambda: op.add(0.0, X), ["add"]),
    "sum with -0": (lambda: op.add(-0.0, X), []),
    "sum of integers with 0": (lambda: op.add(INT, np.int8(0)), []),
    "difference from -0 is a sum": (lambda: op.subtract(X, -0.0), ["add"]),
    "two summands stay": (lambda: op.subtract(op.add(X, 0.1), 2.0), ["add", "add"]),
    "two factors stay": (lambda: op.multiply(op.multiply(X, 3.0), 0.3), ["multiply", "multiply"]),
    "two factors of integers": (
        lambda: op.multiply(op.multiply(INT, np.int8(100)), np.int8(3)),
        ["multiply"],
    ),
    "integers that a float cuts stay": (
        lambda: op.cast(op.cast(WIDE, dtype="float64"), dtype="int8"),
        ["cast", "cast"],
    ),
    "difference from 0": (lambda: op.subtract(X, np.zeros((3, 1), "float32")), []),
    "product with 1": (lambda: op.multiply(X, np.ones((1, 4), "float32")), []),
    "quotient by 1": (lambda: op.divide(X, 1.0), []),
    "power of 1": (lambda: op.power(X, 1.0), []),
    "a 0 that broadcasts stays": (
        lambda: op.add(X, np.zeros((5, 1, 1, 1), "float32")),
        ["add"],
    ),
    "0 less something stays": (lambda: op.subtract(0.0, X), ["subtract"]),
    "quotient by 8": (lambda: op.divide(X, 8.0), ["multiply"]),
    "quotient by 3 stays": (lambda: op.divide(X, 3.0), ["divide"]),
    "cast to the own dtype": (lambda: op.cast(X, dtype="float32"), []),
    "cast there and back": (lambda: op.cast(op.cast(INT, dtype="float32"), dtype="int8"), []),
    "cast over a wider one": (
        lambda: op.cast(op.cast(INT, dtype="int32"), dtype="float32"),
        ["cast"],
    ),
    "cast over a narrower one stays": (
        lambda: op.cast(op.cast(X, dtype="int8"), dtype="float32"),
        ["cast", "cast"],
    ),
    "large whole numbers are no floats": (
        lambda: op.cast(op.cast(op.cast(X, dtype="int64"), dtype="float64"), dtype="int32"),
        ["cast", "cast", "cast"],
    ),
    "bounds in bounds": (
        lambda: op.clip(op.clip(X, a_min=-2.0, a_max=1.0), a_min=-1.0, a_max=3.0),
        ["clip"],
    ),
    "bounds that do not meet stay": (
        lambda: op.clip(op.clip(X, a_min=-2.0, a_max=-1.0), a_min=1.0, a_max=2.0),
        ["clip", "clip"],
    ),
    "relu of relu6": (lambda: op.nn.relu(op.clip(X, a_min=0.0, a_max=6.0)), ["clip"]),
    "relu of relu": (lambda: op.nn.relu(op.nn.relu(X)), ["nn.relu"]),
    "negative twice": (lambda: op.negative(op.negative(X)), []),
    "abs of negative": (lambda: op.abs(op.negative(X)), ["abs"]),
    "reshape of reshape": (
        lambda: op.reshape(op.nn.batch_flatten(X), newshape=(3, 8)),
        ["reshape"],
    ),
    "reshape there and back": (lambda: op.squeeze(op.expand_dims(X, axis=1), axis=1), []),
    "transpose there and back": (
        lambda: op.transpose(op.transpose(X, axes=(2, 0, 1)), axes=(1, 2, 0)),
        [],
    ),
    "transpose twice": (
        lambda: op.transpose(op.transpose(X, axes=(2, 0, 1)), axes=(2, 0, 1)),
        ["transpose"],
    ),
    "transpose of one": (
        lambda: op.transpose(graph.var("x", (3, 1, 4)), axes=(1, 0, 2)),
        ["reshape"],
    ),
    "channels last, flattened": (
        lambda: op.transpose(
            op.reshape(op.transpose(IMAGE, axes=(0, 3, 1, 2)), newshape=(1, 6, 10)), axes=(0, 2, 1)
        ),
        ["reshape"],
    ),
    "transposes around a reshape": (
        lambda: op.transpose(
            op.reshape(op.transpose(IMAGE, axes=(0, 3, 1, 2)), newshape=(12, 5)), axes=(1, 0)
        ),
        ["transpose", "reshape"],
    ),
    "a reshape that takes apart stays": (
        lambda: op.transpose(
            op.reshape(op.transpose(X, axes=(2, 1, 0)), newshape=(2, 2, 3, 2)), axes=(1, 0, 3, 2)
        ),
        ["transpose", "reshape", "transpose"],
    ),
    "pad of pad": (
        lambda: op.nn.pad(
            op.nn.pad(X, pad_width=((0, 1), (0, 0), (2, 0))), pad_width=((1, 1), (1, 0), (0, 0))
        ),
        ["nn.pad"],
    ),
    "pad of pad by another value stays": (
        lambda: op.nn.pad(
            op.nn.pad(X, pad_width=((0, 1), (0, 0), (2, 0)), pad_value=1.0),
            pad_width=((1, 1), (1, 0), (0, 0)),
        ),
        ["nn.pad", "nn.pad"],
    ),
    "pad of nothing": (lambda: op.nn.pad(X, pad_width=((0, 0),) * 3), []),
    "pad of a convolution": (
        lambda: _conv(
            op.nn.pad(IMAGE, pad_width=((0, 0), (0, 0), (1, 2), (0, 1))), padding=(1, 0, 0, 2)
        ),
        ["nn.conv"],
    ),
    "pad by another value stays": (
        lambda: _conv(op.nn.pad(IMAGE, pad_width=((0, 0), (0, 0), (1, 2), (0, 1)), pad_value=1.0)),
        ["nn.pad", "nn.conv"],
    ),
    "the whole as a slice": (
        lambda: op.strided_slice(X, begin=(0, 0), end=(2, 9), axes=(0, 2)),
        [],
    ),
    "backwards stays": (
        lambda: op.strided_slice(X, begin=(9,), end=(-9,), strides=(-1,), axes=(2,)),
        ["strided_slice"],
    ),
    "one part": (lambda: op.concatenate(X, axis=1), []),
    "broadcast before a sum": (
        lambda: op.add(X, op.broadcast_to(graph.var("y", (3, 1)), shape=(2, 3, 4))),
        ["add"],
    ),
    "broadcast that the sum needs stays": (
        lambda: op.add(op.broadcast_to(X, shape=(5, 2, 3, 4)), 1.0),
        ["broadcast_to", "add"],
    ),
}
#: What rounds in other places.
ROUNDED: dict[str, tuple[Callable[[], graph.Expr], list[str]]] = {
    "square": (lambda: op.power(X, 2.0), ["multiply"]),
    "a product with a transposed matrix": (
        lambda: op.matmul(X, op.transpose(graph.var("w", (5, 4)))),
        ["nn.dense"],
    ),
}


JOINED: dict[str, tuple[Callable[[], graph.Expr], list[str]]] = {
    "two summands": (lambda: op.add(op.add(X, 0.1), _f32(1, 2, 3, 4)), ["add"]),
    "two factors": (lambda: op.multiply(3.0, op.multiply(X, 0.3)), ["multiply"]),
    "factors that are too large together stay": (
        lambda: op.multiply(op.multiply(X, 1e-30), 1e-30),
        ["multiply", "multiply"],
    ),
    "constants that are larger together stay": (
        lambda: op.add(op.add(X, _f32(1, 2, 3, 4)), _f32(1, 2, 3).reshape(3, 1)),
        ["add", "add"],
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_fastmath_joins_constants_of_floats(name: str) -> None:
    make, left = JOINED[name]
    assert _simplified(make(), False, transform.ReassociateConstants) == left


def test_constants_of_floats_are_joined_under_fastmath_alone() -> None:
    x = np.array([0.4, 0.6, 1.5, 2.5, -7.3], "float32")
    v = graph.var("x", (5,))
    magic = 12582912.0
    rounds = graph.IRModule.from_expr(op.subtract(op.add(v, magic), magic))
    np.testing.assert_array_equal(graph.compile(rounds, "llvm")(x)[0], np.rint(x))
    fast = lw.Target("llvm -fastmath=1")
    assert "subtract" not in str(pipeline(rounds, target=fast))
    scaled = op.multiply(op.nn.dense(graph.var("x", (2, 4)), np.ones((3, 4), "float32")), 0.3)
    module = graph.IRModule.from_expr(scaled)
    assert "multiply" in str(pipeline(module))
    assert "multiply" not in str(pipeline(module, target=fast))


@pytest.mark.parametrize("name", CASES)
def test_a_rule_changes_nothing(name: str) -> None:
    make, left = CASES[name]
    assert _simplified(make()) == left


@pytest.mark.parametrize("name", ROUNDED)
def test_a_rule_changes_roundings_alone(name: str) -> None:
    make, left = ROUNDED[name]
    assert _simplified(make(), exact=False) == left


def test_whole_numbers_wrap_as_before() -> None:
    far = np.full((4,), 100, "int8")
    assert _simplified(op.add(op.add(INT, far), far)) == ["add"]
    assert _simplified(op.subtract(INT, np.full((1,), -128, "int8"))) == ["add"]


def _moved(draw: st.DrawFn, e: graph.Expr, shape: tuple[int, ...]) -> tuple[graph.Expr, tuple]:
    kind = draw(st.sampled_from(["transpose", "reshape", "expand", "squeeze", "pad", "scale"]))
    if kind == "transpose":
        axes = draw(st.permutations(range(len(shape))))
        return op.transpose(e, axes=axes), tuple(shape[a] for a in axes)
    if kind == "reshape":
        size = int(np.prod(shape))
        first = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        second = draw(st.sampled_from([n for n in range(1, size + 1) if size // first % n == 0]))
        new = (first, second, size // first // second)
        return op.reshape(e, newshape=new), new
    if kind == "expand" and len(shape) < 5:
        at = draw(st.integers(0, len(shape)))
        return op.expand_dims(e, axis=at), (*shape[:at], 1, *shape[at:])
    if kind == "squeeze":
        return op.squeeze(e), tuple(n for n in shape if n != 1)
    if kind == "pad" and np.prod(shape) < 200:
        width = [(draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in shape]
        new = tuple(n + a + b for n, (a, b) in zip(shape, width, strict=True))
        return op.nn.pad(e, pad_width=width), new
    return op.multiply(op.add(e, draw(st.sampled_from([0.0, 1.0]))), 2.0), shape


@drawn(st.data())
def test_random_chains_keep_their_values(data: st.DataObject) -> None:
    e: graph.Expr = graph.var("x", (2, 3, 4))
    shape: tuple[int, ...] = (2, 3, 4)

    def chain(draw: st.DrawFn) -> graph.Expr:
        nonlocal e, shape
        for _ in range(draw(st.integers(1, 6))):
            e, shape = _moved(draw, e, shape)
        return e

    made = data.draw(st.composite(chain)())
    before = sum(isinstance(n, graph.Call) for n in graph.post_order(made))
    assert len(_simplified(made, exact=False)) <= before
