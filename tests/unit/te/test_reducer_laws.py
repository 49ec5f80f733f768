"""Reducers that depend on the order of their terms, and what refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.te.reducer_laws import why_in_order


def reduced(combine: Any, start: Any, dtype: str = "int32", name: str = "own") -> te.Tensor:
    a, k = te.placeholder((8, 16), dtype, name="a"), te.reduce_axis((0, 16), name="k")
    reducer = te.comm_reducer(combine, start, name=name)
    return te.compute((8,), lambda i: reducer(a[i, k], axis=k), name="b")


def number(x: float) -> Callable[[str], te.Expr]:
    return lambda t: te.const(x, t)


def _saturating(x: Any, y: Any) -> Any:
    total = x.astype("int64") + y.astype("int64")
    return te.max(te.min(total, 2**31 - 1), -(2**31)).astype("int32")


ORDERED = {
    "minus": (lambda: reduced(lambda x, y: x - y, number(0)), "0 is not its identity"),
    "mean": (lambda: reduced(lambda x, y: (x + y) * 0.5, number(0), "float32"), "is not its"),
    "one more": (lambda: reduced(lambda x, y: x * y + 1, number(0)), "1 combined with 1 gives 2"),
    "squares": (lambda: reduced(lambda x, y: x + y * y, number(0), "float32"), "is not its"),
    "first positive": (
        lambda: reduced(lambda x, y: te.select(x > 0, x, y), number(0)),
        "not commutative",
    ),
    "saturating": (lambda: reduced(_saturating, number(0)), "it is not associative: 2147483647"),
}


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("verb", ["rfactor", "vectorize", "bind"])
def test_another_order_is_refused(name: str, verb: str) -> None:
    make, _ = ORDERED[name]
    b = make()
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=4)
    verbs: dict[str, Callable[[], object]] = {
        "rfactor": lambda: s.rfactor(b, inner),
        "vectorize": lambda: s[b].vectorize(inner),
        "bind": lambda: s[b].bind(inner, te.thread_axis("threadIdx.x")),
    }
    with pytest.raises(ScheduleError, match="depends on the order of its terms") as error:
        verbs[verb]()
    text = str(error.value)
    assert "'own' of 'b'" in text
    assert "\n" not in text
    s[b].unroll(inner)  # which keeps the order


@pytest.mark.parametrize("name", [n for n in ORDERED if n != "first positive"])
def test_why_is_said_with_figures(name: str) -> None:
    make, words = ORDERED[name]
    assert words in why_in_order(make().op.body.combiner)


def _log_sum(x: Any, y: Any) -> Any:
    return te.log(te.exp(x) + te.exp(y))


FREE = {
    "log of a sum": lambda: reduced(_log_sum, te.min_value, "float32"),
    "sizes": lambda: reduced(lambda x, y: te.max(te.abs(x), te.abs(y)), number(0), "float32"),
    "exclusive or": lambda: reduced(lambda x, y: x ^ y, number(0)),
    "shifted": lambda: reduced(lambda x, y: x + y + 1, number(-1)),
    "product": lambda: reduced(lambda x, y: x * y, number(1), "float16"),
}


@pytest.mark.parametrize("name", FREE)
def test_what_may_be_reordered_is_factored(name: str) -> None:
    b = FREE[name]()
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=4)
    s.rfactor(b, inner)


@pytest.mark.parametrize("reducer", [te.argmax, te.argmin])
def test_the_reducers_of_tuples_are_free(reducer: Any) -> None:
    a, k = te.placeholder((8, 16), name="a"), te.reduce_axis((0, 16), name="k")
    at, _ = te.compute((8,), lambda i: reducer((k, a[i, k]), axis=k), name="b")
    assert why_in_order(at.op.body.combiner) == ""
