"""An einsum of several tensors is contracted in the order of least work, to the same values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import strategies as st

import loopwright as lw
from loopwright import graph, te
from loopwright.graph import op, transform
from tests.unit.graph.values import drawn, run

EXTENTS = dict(zip("abcdefghijkl", (2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7), strict=True))
CHAIN = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak"


def _module(equation: str, shapes: Sequence[tuple[int, ...]], dtype: str) -> graph.IRModule:
    inputs = tuple(graph.var(f"x{n}", s, dtype) for n, s in enumerate(shapes))
    return graph.IRModule.from_expr(graph.Function(inputs, op.einsum(*inputs, equation=equation)))


def _equations(module: graph.IRModule) -> list[str]:
    calls = (e for e in graph.post_order(module["main"]) if isinstance(e, graph.Call))
    return [str(e.attrs["equation"]) for e in calls if "equation" in e.attrs]


def _ordered(equation: str, dtype: str = "float32", ones: str = "") -> list[str]:
    """The contractions of an einsum, whose values are those of NumPy; ``ones`` are extents of 1."""
    terms = equation.partition("->")[0].split(",")
    shapes = [tuple(1 if c in ones else EXTENTS[c] for c in term) for term in terms]
    module = _module(equation, shapes, dtype)
    ordered = transform.OrderContractions(module)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, s).astype(dtype) for s in shapes]
    (got,) = run(ordered, *inputs)
    wide = [x.astype("float64") for x in inputs]
    np.testing.assert_allclose(got, np.einsum(equation, *wide, optimize=True), rtol=1e-3)
    assert got.dtype == dtype
    return _equations(ordered)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_product_of_three_matrices_is_two_products(dtype: str) -> None:
    assert _ordered("ab,bc,cd->ad", dtype) == ["ab,bc->ac", "cd,ac->ad"]


def test_ten_matrices() -> None:
    steps = _ordered(CHAIN)
    assert len(steps) == 9
    assert all(len(set(s) - set(",->")) == 3 for s in steps)


@pytest.mark.parametrize(
    "equation", ["abc,cd,bde,ef->af", "ab,bc,cd", "aa,ab,b->a", "ab,ab,bc->ac", "abc,bd,ce->ade"]
)
def test_other_sums_of_products(equation: str) -> None:
    assert len(_ordered(equation)) == equation.count(",")


def test_an_extent_of_one_is_stretched() -> None:
    assert len(_ordered("ab,bc,cd->ad", ones="c")) == 2


@pytest.mark.parametrize("equation", ["ab,ab,ab->ab", "ab,ab,ab->a", "ab,bc->ac"])
def test_what_needs_no_less_work_stays_whole(equation: str) -> None:
    assert _ordered(equation) == [equation]


def test_an_ellipsis_and_sizes_of_the_call() -> None:
    n = te.size_var("n")
    shapes = [(n, 4, 5), (n, 5, 6), (6, 7)]
    inputs = tuple(graph.var(f"x{k}", s) for k, s in enumerate(shapes))
    call = op.einsum(*inputs, equation="...ij,...jk,kl->...il")
    module = graph.IRModule.from_expr(graph.Function(inputs, call))
    ordered = transform.OrderContractions(module)
    assert len(_equations(ordered)) == 2
    assert graph.infer_types(ordered)[ordered["main"].body] == graph.infer_types(module)[call]


@pytest.mark.slow  # compiles two kernels
def test_the_compiled_model() -> None:
    shapes = [(8, 9), (9, 10), (10, 3)]
    module = _module("ij,jk,kl->il", shapes, "float32")
    model = lw.graph.compile(module, "llvm -num-threads=1")
    inputs = [np.random.default_rng(n).random(s, "float32") for n, s in enumerate(shapes)]
    got = np.asarray(model(*inputs)[0])
    np.testing.assert_allclose(got, np.linalg.multi_dot(inputs), rtol=1e-5)
    assert len(model.kernels) == 2


@drawn(st.data(), change=5)
def test_drawn_equations(data: st.DataObject) -> None:
    letter = st.sampled_from("abcdef")
    terms = data.draw(st.lists(st.lists(letter, min_size=1, max_size=3), min_size=3, max_size=5))
    used = sorted({c for term in terms for c in term})
    result = data.draw(st.lists(st.sampled_from(used), unique=True, max_size=3))
    equation = ",".join(map("".join, terms)) + "->" + "".join(result)
    extents = {c: EXTENTS[c] for c in used}
    if prod(extents.values()) <= 5000:
        _ordered(equation)
