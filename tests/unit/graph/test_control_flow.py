"""Models with functions and branches are compiled, as programs without either."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright import graph as G
from loopwright.errors import GraphError
from loopwright.graph import op, transform
from loopwright.graph.transform import control_flow

X = np.array([-1.0, 0.5, 2.0, np.nan], "float32")


def computed(module: G.IRModule, *args: np.ndarray) -> list[np.ndarray]:
    return G.compile(module, "llvm -num-threads=1")(*args)


def test_both_branches_are_right_whatever_the_condition() -> None:
    c, x = G.var("c", (), "bool"), G.var("x", (4,))
    inner = G.If(op.logical_not(c), x, op.exp(x))
    branch = G.If(c, G.Tuple((op.add(x, x), inner)), G.Tuple((x, op.negative(x))))
    pair = G.Tuple((G.TupleGetItem(branch, 0), G.TupleGetItem(branch, 1)))
    module = G.IRModule({"main": G.Function((c, x), pair)})
    model = G.compile(module, "llvm -num-threads=1")
    for condition, wanted in ((True, (X + X, np.exp(X))), (False, (X, -X))):
        for got, want in zip(model(np.array(condition), X), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
    # Also where kernels were made before.
    again = G.compile(transform.FuseOps(module), "llvm -num-threads=1")
    np.testing.assert_allclose(again(np.array(True), X)[0], X + X)


def test_a_known_condition_leaves_one_branch() -> None:
    x = G.var("x", (4,))
    module = G.IRModule.from_expr(G.If(G.const(np.array(False)), op.exp(x), x))
    assert transform.SelectBranches(module)["main"].body is module["main"].params[0]


def test_functions_become_part_of_their_callers() -> None:
    x, y, z = G.var("x", (4,)), G.var("y", (4,)), G.var("z", (4,))
    v, w = G.Var("v", None), G.Var("w", None)
    inner = G.Let(w, op.add(y, y), w)
    once = G.Function((y,), G.Let(v, inner, op.add(v, y)))  # 3 y
    twice = G.Function((z,), G.Call(G.GlobalVar("once"), (G.Call(G.GlobalVar("once"), (z,)),)))
    there = G.Call(G.Function((y,), op.negative(y)), (x,))
    body = op.add(G.Call(G.GlobalVar("twice"), (x,)), there)
    module = G.IRModule({"main": G.Function((x,), body), "twice": twice, "once": once})
    np.testing.assert_allclose(computed(module, X)[0], 8 * X)
    straight = G.IRModule.from_expr(op.exp(x))
    assert transform.Inline(straight) is straight


def test_recursion_and_growth_by_powers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "_MOST_NODES", 1000)
    x = G.var("x", (4,))
    f = G.Function((x,), G.Call(G.GlobalVar("f"), (x,)), G.TensorType((4,)))
    y = G.var("y", (4,))
    main = G.Function((y,), G.Call(G.GlobalVar("f"), (y,)))
    with pytest.raises(GraphError, match="'f' calls itself"):
        computed(G.IRModule({"main": main, "f": f}), X)
    unused = G.IRModule({"main": G.Function((y,), op.negative(y)), "f": f})
    np.testing.assert_array_equal(computed(unused, X)[0], -X)
    h = G.Var("h", None)
    module = G.IRModule.from_expr(G.Let(h, G.Function((x,), x), G.Call(h, (y,))))
    with pytest.raises(GraphError, match="call the function itself"):
        computed(module, X)
    aside = G.Function((x,), op.negative(x))
    there = G.GlobalVar("aside")
    for body in (aside, there, G.Tuple((y, aside)), G.Tuple((y, there)), G.Let(h, aside, h)):
        module = G.IRModule({"main": G.Function((y,), body), "aside": aside})
        with pytest.raises(GraphError, match="its values are tensors; call the function"):
            computed(module, X)
    functions = {"f0": G.Function((x,), op.exp(x))}
    for n in range(1, 30):
        z = G.var("z", (4,))
        inner = G.GlobalVar(f"f{n - 1}")
        body = op.add(G.Call(inner, (z,)), G.Call(inner, (op.exp(z),)))
        functions[f"f{n}"] = G.Function((z,), body)
    main = G.Function((y,), G.Call(G.GlobalVar("f29"), (y,)))
    with pytest.raises(GraphError, match="more than 1000 nodes"):
        computed(G.IRModule({"main": main, **functions}), X)
