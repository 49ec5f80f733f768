"""The values of calls of constants, by their expressions and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import loopwright as lw
from loopwright import graph, te
from loopwright.te.dag import Dag, arg_id
from loopwright.testing.numpy_eval import evaluate

Array = np.ndarray[Any, Any]


def values(call: graph.Call) -> list[Array]:
    """The values of a call of constants."""
    target = graph.get_op(call.op.name)  # type: ignore[attr-defined]
    arrays = [a.data for a in call.args]  # type: ignore[attr-defined]
    given = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    made = target.tensors(given, call.attrs)
    dag, index = Dag.from_ops(list(dict.fromkeys(t.op for t in made)))
    read = [(index[t.op], a) for t, a in zip(given, arrays, strict=True) if t.op in index]
    found = evaluate(dag, dict(read))
    return [found[arg_id(index[t.op], t.value_index)] for t in made]


def run(module: graph.IRModule, *inputs: Array) -> list[Array]:
    """The outputs of a module of calls, one call after the other, without a compiler."""
    main = module["main"]
    known: dict[graph.Expr, Any] = dict(zip(main.params, inputs, strict=True))
    for e in graph.post_order(main.body):
        if e in known:
            continue
        match e:
            case graph.Constant():
                known[e] = e.data
            case graph.Call(op=graph.HostFunction() as host):
                made = list(host.function(*(known[a] for a in e.args)))
                known[e] = made if isinstance(host.result, graph.TupleType) else made[0]
            case graph.Call():
                given = [graph.const(known[a]) for a in e.args]
                made = values(graph.Call(e.op, tuple(given), e.attrs))
                known[e] = made if len(made) > 1 else made[0]
            case graph.Tuple():
                known[e] = [known[f] for f in e.fields]
            case graph.TupleGetItem():
                known[e] = known[e.tuple_value][e.index]
    found = known[main.body]
    return found if isinstance(found, list) else [found]


def same(call: graph.Call, *wanted: Array, rtol: float = 2e-5) -> None:
    """Assert that a call gives some arrays, with the types that inference tells."""
    found = values(call)
    told = graph.infer_types(graph.IRModule.from_expr(call))[call]
    parts = told.fields if isinstance(told, graph.TupleType) else (told,)
    for array, part, want in zip(found, parts, wanted, strict=True):
        assert part == graph.TensorType(array.shape, str(array.dtype))
        assert array.shape == want.shape
        np.testing.assert_allclose(array, want, rtol=rtol, atol=2e-6)


def with_the_same_values(
    change: Callable[[graph.IRModule], graph.IRModule], *results: graph.Expr, atol: float = 1e-5
) -> list[str]:
    """The operators that a pass leaves of some results, after a look that their values stay."""
    before = graph.IRModule.from_expr(graph.Tuple(results))
    with lw.PassContext(config={"verify": True}):
        after = change(before)
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(n) for n in p.type.shape]).astype("float32")  # type: ignore[union-attr]
        for p in before["main"].params
    ]
    for a, b in zip(run(after, *inputs), run(before, *inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol)
    return operators(after)


def drawn(
    *strategies: Any, change: int = 25, night: int = 100, **named: Any
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """As `hypothesis.given`, with as many examples for every change and by night."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [change, pytest.param(night, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*strategies, **named)(check))()

        test.__name__, test.__qualname__, test.__doc__ = (
            check.__name__,
            check.__name__,
            check.__doc__,
        )
        return test

    return decorate


def operators(module: graph.IRModule) -> list[str]:
    """The operators that the main function calls, in order."""
    nodes = graph.post_order(module["main"])
    return [e.op.name for e in nodes if isinstance(e, graph.Call)]  # type: ignore[attr-defined]
