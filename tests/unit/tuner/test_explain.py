"""Named features of one candidate, and what a model makes of each."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from loopwright import ops, te
from loopwright.cost.features import FEATURE_TYPES, Extractor
from loopwright.errors import InstantiationError, TuneError, UsageError
from loopwright.records import Record
from loopwright.space import create_task as create_automatic
from loopwright.task import Task, create_task
from loopwright.task.sampling import digits_of
from loopwright.tuner import learn
from loopwright.tuner.model.candidates import rows_of
from loopwright.tuner.model.cost_model import Batch, Samples
from loopwright.tuner.model.explain import explain
from loopwright.tuner.model.xgb_model import XGBCostModel
from tests.unit.cost import workloads


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task(ops.matmul, args=(128, 128, 128), target="llvm -mcpu=skylake-avx512")


def test_values_are_in_their_own_units(task: Task) -> None:
    tile = {"tile_i": [-1, 4, 8], "tile_j": [-1, 1, 32], "unroll_k": 1, "order": "ji"}
    found = explain(task, tile | {"pack": "panel"})
    values = {x.name: x.value for x in found.lines}
    assert values["main.iterations"] == pytest.approx(128**3, rel=1e-3)
    assert values["stages"] == 3
    assert found.predicted is None
    assert 0 < found.estimate < 2
    assert str(found).splitlines()[0].startswith(str(found.config))


@pytest.mark.parametrize("kind", FEATURE_TYPES)
def test_contributions_add_up_to_the_prediction(task: Task, kind: str) -> None:
    made = Extractor(task, kind)
    digits = workloads.digits_of(task, 80)
    rows = made.rows(digits)
    scores = rows.values[:, 0] + digits[:, 1] / 4 - digits[:, 2]
    model = XGBCostModel(made.names)
    zeros = np.zeros(80, np.int64)
    model.fit(Samples(Batch.plain(rows.values), scores.astype(np.float64), zeros, zeros))
    space = task.config_space
    found = [explain(task, space.knob2point([int(x) for x in d]), model, kind) for d in digits[:5]]
    # What is left is one constant, the same for every candidate.
    rest = [f.predicted - sum(x.contribution for x in f.lines) for f in found]
    assert rest == pytest.approx([rest[0]] * 5, abs=1e-4)
    parts = [abs(x.contribution) for x in found[0].lines]
    assert parts == sorted(parts, reverse=True)
    assert max(parts) > 0


def test_as_a_table_and_shortened(task: Task) -> None:
    found = explain(task, task.config_space.default_index)
    assert len(found.text(5).splitlines()) == 6
    console = Console(width=160)
    with console.capture() as capture:
        console.print(found.table(5))
    assert "main.iterations" not in capture.get()
    assert "arithmetic operations" in capture.get()


@pytest.mark.parametrize("kind", FEATURE_TYPES[::2])
def test_every_feature_says_what_it_is(task: Task, kind: str) -> None:
    columns = Extractor(task, kind).columns
    assert all(c.meaning for c in columns)
    assert len({c.meaning for c in columns}) == len(columns)


def test_knobs_speak_for_themselves(task: Task) -> None:
    assert {c.meaning for c in Extractor(task, "knob").columns} == {""}


def test_a_refused_candidate_says_why() -> None:
    made = create_task(workloads.branching, args=(32, 48), target="llvm")
    bad = {"x": [-1, 8, 4], "y": [-1, 1], "block": 1, "free": 1}
    with pytest.raises(InstantiationError, match="too large"):
        explain(made, bad)


def test_values_that_are_no_point_are_refused(task: Task) -> None:
    values = task.config_space.get(0).values | {"unroll_k": 3}
    with pytest.raises(TuneError, match="not a point of the space"):
        explain(task, values)


@pytest.fixture(scope="module")
def gated() -> Task:
    """A task of structures with two kernels, none of whose knobs is a knob of the whole space."""

    def tensors() -> list[te.Tensor]:
        X, G, U = (te.placeholder((64, 64), name=name) for name in "XGU")
        k, m = te.reduce_axis((0, 64), name="k"), te.reduce_axis((0, 64), name="m")
        gate = te.compute((64, 64), lambda i, j: te.sum(X[i, k] * G[k, j], axis=k), name="gate")
        up = te.compute((64, 64), lambda i, j: te.sum(X[i, m] * U[m, j], axis=m), name="up")
        return [X, G, U, te.compute((64, 64), lambda i, j: te.exp(gate[i, j]) * up[i, j])]

    return create_automatic(tensors, (), "llvm -mcpu=skylake-avx512")


def test_a_point_of_a_structure_is_described_as_that_structure_is(gated: Task) -> None:
    space = gated.config_space
    number = len(space.parts) - 1
    index = space.offsets[number] + 17
    part = space.parts[number]
    values = Extractor(part, "itervar").rows(digits_of(part.config_space, [17])).values[0]
    found = {x.name: x.value for x in explain(gated, index).lines}
    columns = Extractor(part, "itervar").columns
    expected = {
        c.name: float(np.exp2(v) - 1 if c.logged else v)
        for c, v in zip(columns, values, strict=True)
        if v
    }
    assert found == expected
    assert len(found) > 20


@pytest.mark.slow
def test_a_model_learns_from_records_of_all_structures(gated: Task) -> None:
    space = gated.config_space
    points = [space.offsets[n % len(space.parts)] + 31 * n for n in range(24)]
    made = rows_of(gated, points, "itervar").values
    records = [
        Record(
            task=gated.alias, op=gated.name, args=[], target={"kind": "llvm"},
            config=space.get(i).values, times=(1e-3 + 1e-6 * float(row[0]),),
        )
        for i, row in zip(points, made, strict=True)
    ]  # fmt: skip
    model = learn(gated, records)
    assert model.ready
    assert explain(gated, points[3], model).predicted is not None
    with pytest.raises(UsageError, match=r"are of \d+ structures, each with knobs of its own"):
        learn(gated, records, "knob")
