"""Candidates whose arguments are several outputs of one operation go to builders and runners."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.measure import Measurer
from loopwright.measure.candidate import instantiate
from tests.unit.measure.programs import OPTION, MatmulTask


class ArgMaxTask(MatmulTask):
    """Row-wise argmax; a configuration says how many lanes. Values come before places."""

    name = "test/argmax"

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        n = self.n
        a, k = te.placeholder((n, n), name="A"), te.reduce_axis((0, n), name="k")
        at, top = te.compute((n,), lambda i: te.argmax((k, a[i, k]), axis=k), name="T")
        s = te.create_schedule(top)
        s[at].vectorize(s[at].split(k, factor=config)[1])
        return s, [a, top, at]


@pytest.mark.parametrize("given", ["the naive schedule", "NumPy"])
def test_all_outputs_are_checked(given: str, measurer: Measurer) -> None:
    def numpy(a: Any) -> Any:
        return a.max(1), a.argmax(1).astype("int32")

    task = ArgMaxTask(reference=numpy if given == "NumPy" else None)
    made: Any = instantiate(task, 8)
    assert made.arg_ids == (0, (1, 1), 1)
    with Measurer(task, OPTION, beside=measurer) as m:
        results = list(m.measure(task.inputs(4, 8)))
        assert [r.error for r in results] == [None, None]
        assert any(r.max_error == 0.0 for r in results)


def test_a_wrong_second_output_is_noticed(measurer: Measurer) -> None:
    task = ArgMaxTask(reference=lambda a: (a.max(1), a.argmin(1).astype("int32")))
    with Measurer(task, OPTION, beside=measurer) as m:
        (result,) = m.measure(task.inputs(8))
    assert result.error is not None
    assert result.error.kind == "WRONG_ANSWER"
