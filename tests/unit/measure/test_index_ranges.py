"""Values of operands that are used as an index: all of them inside, as brute force sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import UsageError
from loopwright.measure import Measurer
from loopwright.measure.inputs import make_input
from loopwright.te.index_ranges import index_spans, is_data_dependent
from tests.unit.measure.programs import OPTION, MatmulTask

ROWS, N = 100, 5


def dag_of(index: Any, dtype: str = "int32") -> Any:
    x = te.placeholder((ROWS, 3), name="x")
    p = te.placeholder((N,), dtype, name="p")
    c = te.compute((N, 3), lambda i, j: x[index(p[i], i), j], name="c")
    return te.create_schedule(c.op).dag


def clip(v: Any) -> Any:
    v = te.select(v > 99, v * 0 + 99, v)
    return te.select(v < 0, v * 0, v)


#: The index as an expression, and as a function of integers.
INDICES: dict[str, tuple[Any, Any]] = {
    "itself": (lambda v, i: v, lambda v, i: v),
    "scaled": (lambda v, i: v * 4 + 1, lambda v, i: v * 4 + 1),
    "moved": (lambda v, i: v - 30, lambda v, i: v - 30),
    "mirrored": (lambda v, i: 50 - v, lambda v, i: 50 - v),
    "with an axis": (lambda v, i: v + i, lambda v, i: v + i),
    "divided": (lambda v, i: v // 3, lambda v, i: v // 3),
    "remainder": (lambda v, i: v % 7, lambda v, i: v % 7),
    "cast": (lambda v, i: v.astype("int64") + 2, lambda v, i: v + 2),
}


@pytest.mark.parametrize("name", INDICES)
def test_all_values_lie_inside_and_the_next_ones_do_not(name: str) -> None:
    index, plain = INDICES[name]
    dag = dag_of(index)
    assert is_data_dependent(dag)
    ((_, (low, high)),) = index_spans(dag).items()

    def inside(v: int) -> bool:
        return all(0 <= plain(v, i) < ROWS for i in range(N))

    assert all(inside(v) for v in range(low, high + 1))
    assert high - low >= 20
    if high < 2 * ROWS:
        assert not inside(high + 1)
    if low > -2 * ROWS:
        assert not inside(low - 1)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
def test_types_limit_the_values(dtype: str) -> None:
    dag = dag_of(lambda v, i: v.astype("int32"), dtype)
    ((_, (low, high)),) = index_spans(dag).items()
    assert (low, high) == (0, 99)
    data = make_input((1000,), dtype, 0, 1, span=(low, high))
    assert data.dtype == np.dtype(dtype)
    assert (data.min(), data.max()) == (0, 99)


def test_an_index_that_is_computed_before() -> None:
    x, p = te.placeholder((ROWS,), name="x"), te.placeholder((N,), "int32", name="p")
    q = te.compute((N,), lambda i: p[i] * 2 + 10, name="q")
    dag = te.create_schedule(te.compute((N,), lambda i: x[q[i]], name="c").op).dag
    assert list(index_spans(dag).values()) == [(-5, 44)]


def test_a_program_without_such_an_index() -> None:
    x = te.placeholder((ROWS,), name="x")
    dag = te.create_schedule(te.compute((ROWS,), lambda i: x[ROWS - 1 - i]).op).dag
    assert index_spans(dag) == {}
    assert not is_data_dependent(dag)


def test_what_cannot_be_solved_is_refused_with_advice() -> None:
    with pytest.raises(UsageError) as caught:
        index_spans(dag_of(lambda v, i: v ^ 3))
    assert str(caught.value).startswith(
        "operand `p` is used as an index into dimension 0 of `x`, and no values are known"
    )
    assert "give the template make_inputs" in str(caught.value)


class TakeTask(MatmulTask):
    """Rows of a matrix, chosen by an operand."""

    name = "test/take"

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        x = te.placeholder((ROWS, 64), name="x")
        p = te.placeholder((N,), "int32", name="p")
        index = (lambda v: v ^ 1) if config == 3 else (lambda v: v)
        c = te.compute((N, 64), lambda i, j: x[index(p[i]), j] * 2.0, name="c")
        s = te.create_schedule(c.op)
        s[c].split(c.op.axis[1], factor=config)
        return s, [x, p, c]


def test_such_a_task_is_measured_and_checked(measurer: Measurer) -> None:
    seen: list[Any] = []

    def reference(x: Any, p: Any) -> Any:
        seen.append(p)
        return x[p] * 2

    task = TakeTask(reference=reference)
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(4))
        assert (result.error, result.checked, result.max_error) == (None, "yes", 0.0)
        assert all(p.min() >= 0 and p.max() < ROWS for p in seen)
        assert len(set(np.concatenate(seen))) > N
        assert m.session.builds.built == 2  # once more, with checks of all bounds
        with pytest.raises(UsageError, match="operand `p` is used as an index"):
            list(m.measure(task.inputs(3)))


def test_an_access_outside_is_named(measurer: Measurer) -> None:
    """Data of the template's own, just behind the end: a plain build reads what lies there."""
    inside = np.arange(N, dtype="int32")
    task = TakeTask(
        reference=lambda x, p: np.resize(x, (ROWS + 2, 64))[p] * 2,
        make_inputs=lambda: [np.ones((ROWS, 64), "float32"), np.where(inside == 3, ROWS, inside)],
    )
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(4))
    assert result.error is not None
    assert result.error.kind == "WRONG_ANSWER"
    assert f"access outside x: index [{ROWS}, 0], shape [{ROWS}, 64]" in result.error.text
