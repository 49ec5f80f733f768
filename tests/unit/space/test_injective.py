"""Stages without reductions on CPUs: rows that share what they read, stencils, transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loopwright as lw
from loopwright import te
from loopwright.space import Structure, structures

TARGET = "llvm -num-threads=1"
Array = npt.NDArray[Any]
Case = tuple[list[te.Tensor], list[Array], Array]


def given(*shape: int, dtype: str = "float32", name: str = "X") -> tuple[te.Tensor, Array]:
    x = np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)
    return te.placeholder(shape, dtype, name=name), x


def scaled(rows: int, columns: int, dtype: str) -> Case:
    X, x = given(rows, columns, dtype=dtype)
    B, b = given(columns, dtype=dtype, name="B")
    Y = te.compute((rows, columns), lambda i, j: X[i, j] * B[j] + B[j], name="Y")
    return [X, B, Y], [x, b], x * b + b


def chain_in_a_plane(dtype: str) -> Case:
    """A cross of five points, twice, without the border."""
    X, x = given(13, 39, dtype=dtype)

    def cross(t: te.Tensor, name: str) -> te.Tensor:
        m, n = t.static_shape
        tensor: te.Tensor = te.compute(
            (m - 2, n - 2),
            lambda i, j: (
                t[i + 1, j + 1] + t[i, j + 1] + t[i + 2, j + 1] + t[i + 1, j] + t[i + 1, j + 2]
            ),
            name=name,
        )
        return tensor

    def right(y: Array) -> Array:
        middle = y[1:-1, 1:-1]
        found: Array = middle + y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:]
        return found

    return [X, cross(cross(X, "S"), "Y")], [x], right(right(x))


def star_in_space() -> Case:
    X, x = given(7, 9, 37)
    Y = te.compute(
        (5, 7, 35),
        lambda i, j, k: (
            X[i, j + 1, k + 1]
            + X[i + 2, j + 1, k + 1]
            + X[i + 1, j, k + 1]
            + X[i + 1, j + 2, k + 1]
            + X[i + 1, j + 1, k]
            + X[i + 1, j + 1, k + 2]
        ),
        name="Y",
    )
    inner = slice(1, -1)
    right = x[:-2, inner, inner] + x[2:, inner, inner] + x[inner, :-2, inner]
    right = right + x[inner, 2:, inner] + x[inner, inner, :-2] + x[inner, inner, 2:]
    return [X, Y], [x], right


def permuted(order: tuple[int, ...], dtype: str) -> Case:
    X, x = given(3, 5, 18, 7, dtype=dtype)
    right = np.ascontiguousarray(x.transpose(order))

    def element(*at: te.IterVar) -> te.Expr:
        return X[tuple(at[order.index(d)] for d in range(4))]

    names = [f"a{d}" for d in order]
    return [X, te.compute(right.shape, element, name="Y", varargs_names=names)], [x], right


CASES: dict[str, Callable[[], Case]] = {
    "scaled": lambda: scaled(9, 50, "float32"),
    "scaled doubles, one row": lambda: scaled(1, 50, "float64"),
    "scaled bytes": lambda: scaled(7, 70, "int8"),
    "chain in a plane": lambda: chain_in_a_plane("float32"),
    "chain of bytes": lambda: chain_in_a_plane("int8"),
    "star in space": star_in_space,
    "the middle turned": lambda: permuted((0, 2, 1, 3), "float32"),
    "the last first": lambda: permuted((3, 0, 1, 2), "float64"),
    "reversed": lambda: permuted((3, 2, 1, 0), "int8"),
}


def derived(args: list[te.Tensor]) -> list[Structure]:
    with lw.Target(TARGET):
        return structures(args[-1], args)


@pytest.mark.parametrize("name", CASES)
def test_structures_compute_what_numpy_does(name: str) -> None:
    args, inputs, right = CASES[name]()
    for structure in derived(args):
        space = structure.config_space
        for index in dict.fromkeys([space.default_index, *space.sample_ints(2, len(name))]):
            out = np.frombuffer(b"\x7f" * (8 * right.size), args[-1].dtype)
            out = out[: right.size].reshape(right.shape).copy()
            config = space.get(index)
            lw.build(*structure.instantiate(config), TARGET)(*inputs, out)
            np.testing.assert_array_equal(out, right, err_msg=f"{structure}: {config}")


def test_rows_go_side_by_side_where_they_read_the_same_places() -> None:
    def together(args: list[te.Tensor]) -> list[bool]:
        return ["together" in s.config_space.knobs for s in derived(args)]

    assert together(scaled(9, 50, "float32")[0]) == [True]
    assert all(together(chain_in_a_plane("float32")[0]))
    assert together(star_in_space()[0]) == [True]
    # One row has no neighbour; rows of a copy, and of sums along rows, share nothing.
    assert together(scaled(1, 50, "float32")[0]) == [False]
    X = te.placeholder((8, 64), name="X")
    Y = te.compute((8, 63), lambda i, j: X[i, j] + X[i, j + 1], name="Y")
    assert together([X, Y]) == [False]


def test_a_place_that_two_rows_read_is_loaded_once() -> None:
    args, _, _ = scaled(8, 32, "float32")
    (structure,) = derived(args)
    config = structure.config_space.get(structure.config_space.default_index)
    assert config["together"].val == 2
    lines = str(lw.lower(*structure.instantiate(config))).splitlines()
    at = next(n for n, line in enumerate(lines) if "unrolled(2)" in line)
    assert "vectorized" in lines[at + 1]
    assert "B[" in lines[at + 2]


def past_the_caches(args: list[te.Tensor], structure: str, last_cache: int = 1 << 25) -> int | None:
    """What the model chooses for stores past the caches; None where there is no choice."""
    caches = f"-l1_cache_bytes=49152 -l2_cache_bytes=1048576 -l3_cache_bytes={last_cache}"
    task = lw.create_task(args, target=f"llvm -mcpu=x86-64-v4 -num-threads=2 {caches}")
    for index, _ in task.ranking:
        config = task.config(index)
        if config["structure"].val.startswith(structure):
            return dict(config.values).get("nontemporal")
    raise AssertionError(f"no structure {structure}")


def copied(rows: int, columns: int) -> list[te.Tensor]:
    X = te.placeholder((rows, columns), name="X")
    return [X, te.compute((rows, columns), lambda i, j: X[i, j] + 1.0, name="Y")]


def turned(rows: int, columns: int) -> list[te.Tensor]:
    X = te.placeholder((columns, rows), name="X")
    return [X, te.compute((rows, columns), lambda i, j: X[j, i], name="Y")]


def test_results_larger_than_all_caches_are_stored_past_them() -> None:
    assert past_the_caches(copied(4096, 4096), "vectors") == 1
    assert past_the_caches(turned(4096, 4096), "squares") == 1
    # What the caches hold, the next kernel finds there.
    assert past_the_caches(copied(1024, 2048), "vectors") == 0
    # Small results, and rows that begin within a line, leave no choice.
    assert past_the_caches(copied(512, 512), "vectors") is None
    assert past_the_caches(copied(4096, 4090), "vectors") is None


def test_the_cache_of_a_whole_host_holds_no_large_results() -> None:
    host = 260 << 20
    assert past_the_caches(copied(4096, 4096), "vectors", host) == 1
    assert past_the_caches(copied(1024, 2048), "vectors", host) == 0


@pytest.mark.slow(reason="ranks structures of three kernels: 2 s")
def test_rows_of_a_large_result_are_stored_past_the_caches() -> None:
    def softmax(rows: int, columns: int) -> list[te.Tensor]:
        X = te.placeholder((rows, columns), name="X")
        return [X, lw.ops.softmax_compute(X)[0]]

    def sums(rows: int, columns: int) -> list[te.Tensor]:
        X = te.placeholder((rows, columns), name="X")
        return [X, lw.ops.reduce_compute(X)]

    assert past_the_caches(softmax(4096, 4096), "rows in cache") == 1
    assert past_the_caches(softmax(64, 256), "rows in cache") is None
    assert past_the_caches(sums(1 << 22, 16), "rows in cache") is None
    (structure, *_) = derived(softmax(1 << 11, 1 << 10))
    knobs = structure.config_space.knobs
    values = {name: knob.value(knob.default) for name, knob in knobs.items()}
    index = structure.config_space.find({**values, "nontemporal": 1})
    assert index is not None
    x = np.random.default_rng(0).random((1 << 11, 1 << 10), "float32")
    out = lw.nd.array(np.zeros_like(x))
    scheduled = structure.instantiate(structure.config_space.get(index))
    lw.build(*scheduled, TARGET)(lw.nd.array(x), out)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_large_result_past_the_caches_is_right() -> None:
    args = turned(1024, 2048)
    x = np.random.default_rng(0).random((2048, 1024), "float32")
    every = derived(args)
    structures = [s for s in every if "nontemporal" in s.config_space.knobs]
    # With vectors of half a cache line not every structure writes whole lines.
    assert structures
    assert len(structures) == len(every) or lw.Target(TARGET).vector_bytes < 64
    for structure in structures:
        space = structure.config_space
        configs = (space.get(n) for n in range(space.range_length))
        config = next(c for c in configs if dict(c.values).get("nontemporal"))
        out = lw.nd.array(np.zeros((1024, 2048), "float32"))
        lw.build(*structure.instantiate(config), TARGET)(lw.nd.array(x), out)
        np.testing.assert_array_equal(out.numpy(), x.T)
