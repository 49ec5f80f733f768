"""Elements and the bounds on their errors, against NumPy in the types of the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.te.error_bounds import Elements, Estimate, TooMuchWorkError
from loopwright.te.reducer_laws import why_in_order


def found(out: te.Tensor, *inputs: tuple[te.Tensor, Any], output: int = 0) -> Estimate:
    dag, index = te.Dag.from_ops([out.op])
    arrays = {index[t.op]: np.asarray(x, t.dtype) for t, x in inputs}
    with np.errstate(all="ignore"):
        places = np.arange(np.prod(dag.ops[index[out.op]].static_shape))
        elements = Elements(dag, arrays, 1 << 20, why_in_order=why_in_order)
        return elements.at(index[out.op], output, places)


def test_any_order_of_a_sum_is_inside_and_a_missing_term_is_not() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((200, 64)) * np.exp2(rng.integers(-9, 9, (200, 64)))).astype("float32")
    a, k = te.placeholder((200, 64), name="a"), te.reduce_axis((0, 64), name="k")
    got = found(te.compute((200,), lambda i: te.sum(a[i, k], axis=k), name="s"), (a, x))
    assert got.error is not None
    for _ in range(20):
        order = rng.permutation(64)
        total = np.zeros(200, "float32")
        for at in order:
            total += x[:, at]
        assert (np.abs(total - got.value) <= got.error).all()
    largest = np.abs(x).max(1)
    assert (largest > 100 * got.error).all()


@pytest.mark.parametrize(("reducer", "wanted"), [(te.sum, [-1, 18, 2]), (te.max, [1, 7, 2])])
def test_terms_that_a_condition_leaves_out_do_not_count(reducer: Any, wanted: list[float]) -> None:
    a, k = te.placeholder((3, 4), name="a"), te.reduce_axis((0, 4), name="k")
    x = [[1, -2, np.nan, 4], [5, 6, 7, np.inf], [-1, -1, 2, 2]]
    some = te.compute((3,), lambda i: reducer(a[i, k], axis=k, where=k < 2 + i), name="b")
    np.testing.assert_array_equal(found(some, (a, x)).value, wanted)


def test_overflow_and_what_may_go_either_way_is_not_known() -> None:
    a = te.placeholder((4,), name="a")
    x = np.array([3e38, 1.0, 0.1, -0.0], "float32")
    doubled = found(te.compute((4,), lambda i: a[i] * 2.0, name="b"), (a, x))
    assert np.isinf(doubled.error[0])  # type: ignore[index]
    assert (doubled.error[1:] == 0).all()  # type: ignore[index]
    thirds = te.compute((4,), lambda i: te.floor(a[i] / 0.1), name="b")
    error = found(thirds, (a, x)).error
    assert error is not None
    assert error[2] >= 1


def test_infinities_and_nan_of_operands_are_no_error() -> None:
    a, k = te.placeholder((5, 3), name="a"), te.reduce_axis((0, 3), name="k")
    x = [[np.nan, 1, 2], [np.inf, 1, 2], [np.inf, -np.inf, 1], [3e38, 3e38, np.inf], [1, 2, 3]]
    got = found(te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="s"), (a, x))
    np.testing.assert_array_equal(got.value, [np.nan, np.inf, np.nan, np.inf, 6])
    np.testing.assert_array_equal(np.isinf(got.error), [False, False, False, True, False])  # type: ignore[arg-type]
    top = found(te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="m"), (a, x))
    np.testing.assert_array_equal(top.value, np.array(x, "float32").max(1))
    assert top.error is None


def test_signs_of_zeros_survive() -> None:
    a = te.placeholder((2,), name="a")
    got = found(te.compute((2,), lambda i: 1.0 / a[i], name="b"), (a, [0.0, -0.0]))
    np.testing.assert_array_equal(got.value, [np.inf, -np.inf])
    assert got.error is None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_wrap_and_are_exact(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 0, 1], dtype)
    a = te.placeholder((4,), dtype, name="a")
    got = found(te.compute((4,), lambda i: a[i] * a[i] - a[3 - i], name="b"), (a, x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.value, x * x - x[::-1])
    assert got.error is None


def test_a_reducer_whose_order_tells_is_not_known_where_it_does() -> None:
    a, k = te.placeholder((2, 3), "int32", name="a"), te.reduce_axis((0, 3), name="k")
    first = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t, u: (te.const(-1, t), te.min_value(u)),
        name="first",
    )
    at, _ = te.compute((2,), lambda i: first((k, a[i, k]), axis=k), name="b")
    got = found(at, (a, [[1, 3, 2], [3, 1, 3]]))
    assert got.error is not None
    assert (got.value[0], got.error[0]) == (1, 0)
    assert np.isinf(got.error[1])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_products_in_any_order_are_within_the_bound(dtype: str) -> None:
    """Parts of some overflow, or vanish."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    x = np.ldexp(rng.standard_normal((400, 24)), rng.integers(-5, 6, (400, 24))).astype(kind)
    x[:20, 3], x[20:40, 5], x[40:60, 7] = 0.0, np.inf, np.nan
    x[60:80] = rng.choice([2.0**-9, -(2.0**9)], (20, 24)) ** (1 if dtype == "float16" else 5)
    a, k = te.placeholder((400, 24), dtype, name="a"), te.reduce_axis((0, 24), name="k")
    product = te.comm_reducer(lambda p, q: p * q, lambda t: te.const(1, t), name="product")
    got = found(te.compute((400,), lambda i: product(a[i, k], axis=k), name="b"), (a, x))
    assert got.error is not None
    assert np.isfinite(got.error).sum() > 40
    for _ in range(50):
        parts = x[:, rng.permutation(24)].reshape(400, 4, 6)
        with np.errstate(all="ignore"):
            lanes = [np.multiply.reduce(parts[:, n], 1, dtype=kind) for n in range(4)]
            one = ((lanes[0] * lanes[1]) * (lanes[2] * lanes[3])).astype(np.float64)
            apart = np.abs(one - got.value)
        same = (one == got.value) | (np.isnan(one) & np.isnan(got.value))
        assert (same | (apart <= got.error) | np.isinf(got.error)).all()


def test_long_reductions_are_combined_as_trees() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (4, 1001)).astype("float32")
    x[3, 7] = np.nan
    a, k = te.placeholder(x.shape, name="a"), te.reduce_axis((0, x.shape[1]), name="k")
    at, _ = te.compute((4,), lambda i: te.argmax((k, a[i, k]), axis=k), name="b")
    got = found(at, (a, x))
    np.testing.assert_array_equal(got.value[:3], x[:3].argmax(1))
    assert got.error is not None
    assert got.error.tolist() == [0.0, 0.0, 0.0, np.inf]


def test_guarded_reads_and_gathers() -> None:
    a, at = te.placeholder((4,), name="a"), te.placeholder((3,), "int32", name="at")
    shifted = te.compute(
        (6,), lambda i: te.if_then_else(te.all(i >= 1, i < 5), a[i - 1], 7.0), name="p"
    )
    np.testing.assert_array_equal(found(shifted, (a, [1, 2, 3, 4])).value, [7, 1, 2, 3, 4, 7])
    taken = te.compute((3,), lambda i: a[at[i]], name="g")
    np.testing.assert_array_equal(found(taken, (a, [1, 2, 3, 4]), (at, [3, 0, 3])).value, [4, 1, 4])


def test_work_is_limited() -> None:
    a, k = te.placeholder((100, 100), name="a"), te.reduce_axis((0, 100), name="k")
    s = te.compute((100,), lambda i: te.sum(a[i, k], axis=k), name="s")
    dag, index = te.Dag.from_ops([s.op])
    elements = Elements(dag, {index[a.op]: np.ones((100, 100), "float32")}, 1000)
    assert elements.at(index[s.op], 0, np.arange(9)).value.tolist() == [100.0] * 9
    with pytest.raises(TooMuchWorkError):
        elements.at(index[s.op], 0, np.arange(100))
