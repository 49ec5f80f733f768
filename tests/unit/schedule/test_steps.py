"""Steps as JSON, and traces that are damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright.errors import ScheduleError
from loopwright.schedule import replay
from loopwright.schedule.steps import Step
from tests.unit.schedule.programs import matmul
from tests.unit.schedule.test_apply import REDUCTION_STEPS, STEPS


@pytest.mark.parametrize("step", [*STEPS, *REDUCTION_STEPS], ids=lambda s: s.primitive)
def test_json_round_trip(step: Step) -> None:
    data = json.loads(json.dumps(step.to_json()))
    assert data[0] == step.primitive
    assert Step.from_json(data) == step
    assert hash(Step.from_json(data)) == hash(step)
    assert Step.from_json(data).to_json() == data


def test_json_is_compact_and_flat() -> None:
    assert [s.to_json() for s in STEPS[:5]] == [
        ["cache_write", 3, "local"],
        ["cache_read", 1, "local", [2, "s0"]],
        ["split", 3, "a0", 4, None],
        ["split", 3, "a1", None, 3],
        ["reorder", 3, ["2.0", "3.0", "2.1", "3.1"]],
    ]


def test_steps_are_frozen() -> None:
    with pytest.raises(AttributeError):
        STEPS[0].scope = "global"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "trace: a step is a list that begins with its name, got None"),
        ([], r"trace: a step is a list that begins with its name, got \[\]"),
        ("split", "trace: a step is a list that begins with its name, got 'split'"),
        ([3, 4], r"trace: a step is a list that begins with its name, got \[3, 4\]"),
        ({"split": 1}, "trace: a step is a list"),
        (["splt", 2, "a0", 4, None], r"trace: unknown primitive 'splt' \(did you mean 'split'\?\)"),
        (
            ["split", 2, "a0", 4],
            r"trace: split takes 4 fields \(stage, loop, factor, nparts\), got",
        ),
        (["compute_root", 2, 3], r"trace: compute_root takes 1 fields \(stage\), got \[2, 3\]"),
        (["split", 2, 0, 4, None], "trace: field 'loop' of split is 0, which is no str"),
        (["split", 2.5, "a0", 4, None], r"field 'stage' of split is 2\.5, which is no StageId"),
        (["split", [2], "a0", 4, None], "field 'stage' of split"),
        (["split", True, "a0", 4, None], "field 'stage' of split is True"),
        (["split", 2, "a0", "4", None], r"field 'factor' of split is '4', which is no int \| None"),
        (["split", 2, "a0", 4.0, None], r"field 'factor' of split is 4\.0"),
        (["reorder", 2, "a0"], "field 'order' of reorder is 'a0', which is no tuple"),
        (["reorder", 2, ["a0", 1]], r"field 'order' of reorder is \('a0', 1\)"),
        (["cache_read", 2, "local", 3], "field 'readers' of cache_read is 3"),
        (["cache_read", 2, "local", [None]], "field 'readers' of cache_read"),
        (["pragma", 2, "a0", "auto_unroll_max_step", {"x": 1}], "field 'value' of pragma"),
        (["transform_layout", 2, [[0, 1]]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, [[-1, 1, None]]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, [["-", "i0", 3]]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, [["%", "i0", 0]]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, ["j0"]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, [[0, 1, 0]]], "field 'dims' of transform_layout"),
        (["transform_layout", 2, [["0", 1, None]]], "field 'dims' of transform_layout"),
    ],
)
def test_damaged_steps(data: Any, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        Step.from_json(data)
    with pytest.raises(ScheduleError, match=text):
        replay(matmul().s.dag, [data])


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ([["split", 7, "a0", 4, None]], r"split \(step 0\): there is no stage 7; stages: 0, 1, 2"),
        ([["split", 2, "a0", -4, None]], r"split \(step 0\): factor must be a positive integer"),
        (
            [["split", 2, "a0", 4, None], ["vectorize", 2, "a0"]],
            r"trace: unknown primitive 'vectorize'",
        ),
        (
            [["split", 2, "a0", 4, None], ["annotate", 2, "a0", "vectorized"]],
            r"vectorize \(step 1\): loop 'C\.i' no longer exists \(step 0 split it into",
        ),
        ([["transform_layout", 2, []]], r"transform_layout \(step 0\): 'C' is an output"),
        (
            [["cache_write", 2, "local"], ["transform_layout", "s0", [[5, 1, None]]]],
            r"the map \(i5,\) uses index 5, 'C\.local' has 2 dimensions",
        ),
        (
            [
                ["cache_write", 2, "local"],
                ["transform_layout", "s0", [[0, 1, None], [1, 1, None], [7, 1, None]]],
            ],
            r"the map \(i0, i1, i7\) uses index 7, 'C\.local' has 2 dimensions",
        ),
        (
            [["bind", 2, "a0", "threadIdx.q"]],
            r"bind \(step 0\): unknown thread axis 'threadIdx\.q'",
        ),
    ],
)
def test_traces_that_fit_another_program(trace: Any, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        replay(matmul().s.dag, trace)
