"""Object code whose times are known is not run, whatever compiler made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright import ops, records
from loopwright.measure import LocalBuilder, MeasureInput, Measurer, measure_option
from loopwright.task import create_task
from loopwright.tuner import RandomTuner, log_to_file
from tests.unit.measure.programs import OPTION


@pytest.fixture(autouse=True)
def _own_device_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("loopwright.measure.playoff.JUDGING", (1, 6))


def task():
    return create_task(
        ops.WORKLOADS["matmul"].template,
        (16, 16, 16, False, False, "float32"),
        "llvm -num-threads=1",
    )


def test_a_result_is_given_to_equal_code_only(measurer):
    one = task()
    inputs = [MeasureInput(one, one.config_space.get(i), i) for i in (0, 40)]
    with Measurer(one, OPTION, beside=measurer) as m:
        first, other = m.measure(inputs)
        assert first.code != other.code
        assert len(first.code) == 16
        m.know({first.code: replace(first, times=(9.0,), ts=5.0, times_of="r")})
        known, again = m.measure(inputs)
    assert (known.times, known.ts, known.times_of) == ((9.0,), 5.0, "r")
    assert (known.dag, known.trace, known.checked) == (first.dag, first.trace, first.checked)
    assert again.times_of == ""
    assert again.times != (9.0,)


def test_a_log_of_another_compiler_is_taken_up_without_a_run(tmp_path):
    path = tmp_path / "log.jsonl"

    def tuned():
        option = measure_option(LocalBuilder(n_parallel=1))
        callbacks = [log_to_file(path)]
        RandomTuner(task(), seed=1).tune(n_trial=4, measure_option=option, callbacks=callbacks)
        return records.load(path)

    before = [r for r in tuned() if not r.phase]
    path.unlink()
    with records.Store(path) as store:
        for record in before:
            store.append(replace(record, build="0123456789abcdef"))
    after = [r for r in tuned() if not r.phase and r.build == before[0].build]
    old = {r.id: r for r in records.load(path) if r.build == "0123456789abcdef"}
    assert len(after) == 4
    assert [old[r.times_of].times for r in after] == [r.times for r in after]
    assert [(r.checked, r.code) for r in after] == [
        (old[r.times_of].checked, old[r.times_of].code) for r in after
    ]
