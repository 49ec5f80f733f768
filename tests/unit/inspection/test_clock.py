"""Where the time of a log went, from clocks that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright.inspection.log_statistics import throughput, time_spent, time_spent_by
from tests.unit.inspection.report_logs import playoff, trial

ONE_BUILDER = {"measure": {"builder": {"n_parallel": 1}}}
TWO_BUILDERS = {"measure": {"builder": {"n_parallel": 2}}}


def test_the_parts_add_up_to_the_wall_time() -> None:
    trials = [trial(n, ts=100.0 + n, build_s=0.3, run_s=0.2) for n in range(60)]
    again = playoff(trials[0], trials[0], ts=165.0)
    spent = time_spent([*trials, again], [ONE_BUILDER])
    assert spent is not None
    assert spent.wall == pytest.approx(59 + 0.5 + 6)
    assert (spent.run, spent.again) == (pytest.approx(60 * 0.2), pytest.approx(6))
    assert (spent.build, spent.build_total) == (pytest.approx(18), pytest.approx(18.2))
    parts = spent.run + spent.again + spent.build + spent.rest
    assert parts == pytest.approx(spent.wall)
    assert spent.pauses == 0


def test_builders_that_work_at_the_same_time_are_allowed_for() -> None:
    trials = [trial(n, ts=100.0 + n, build_s=0.4, run_s=0.2) for n in range(20)]
    two = time_spent(trials, [ONE_BUILDER, TWO_BUILDERS])
    assert two is not None
    assert two.build == pytest.approx(4)
    by_cores = time_spent(trials)
    assert by_cores is not None
    assert by_cores.build == pytest.approx(4)  # the records say two cores
    many = time_spent([replace(one, build_s=9.0) for one in trials], [ONE_BUILDER])
    assert many is not None
    assert many.rest == 0
    assert many.run + many.build == pytest.approx(many.wall)


def test_a_pause_between_two_runs_takes_no_time() -> None:
    first = [trial(n, ts=100.0 + n) for n in range(20)]
    second = [trial(n, ts=90_000.0 + n, run="r2") for n in range(20)]
    spent = time_spent([*first, *second])
    assert spent is not None
    assert spent.wall == pytest.approx(20 + 19 - 1 + 0.6, abs=0.5)
    assert spent.pauses == pytest.approx(90_000 - 119, abs=1)


def test_trials_a_minute() -> None:
    trials = [trial(n, ts=100.0 + n, build_s=0.5, run_s=0.5) for n in range(140)]
    pace = throughput([*trials, playoff(trials[0], trials[0], ts=400.0)], bins=7)
    assert pace is not None
    assert pace.interval == pytest.approx(20)  # the playoff is left out
    assert len(pace.successful) == len(pace.failed) == 7
    assert sum(pace.successful) + sum(pace.failed) == 140
    assert sum(pace.failed) == 20
    assert pace.per_minute == pytest.approx(60)


def test_tasks_that_take_turns_share_one_clock() -> None:
    """Two tasks have a second of each trial in turns; a playoff of 6 s follows for each."""
    names = ("matmul", "conv2d")
    trials = [trial(n, names[n % 2], ts=100.0 + n, build_s=0.4, run_s=0.2) for n in range(40)]
    again = [playoff(trials[at], trials[at], ts=145.0 + 6 * at) for at in (0, 1)]
    groups = {op: [one for one in [*trials, *again] if one.op == op] for op in names}
    spent = time_spent_by(groups, [ONE_BUILDER])
    for one in spent.values():
        assert (one.run, one.build) == (pytest.approx(20 * 0.2), pytest.approx(20 * 0.4))
        assert one.again == pytest.approx(6)
    whole = time_spent([*trials, *again], [ONE_BUILDER])
    assert whole is not None
    assert sum(one.wall for one in spent.values()) == pytest.approx(whole.wall)
    assert time_spent_by({"none": [], "no clock": [trial(0, ts=0.0)]}) == {}


def test_the_order_of_lines_does_not_matter() -> None:
    trials = [trial(n) for n in range(30)]
    assert time_spent(trials) == time_spent(trials[::-1])
    assert throughput(trials) == throughput(trials[::-1])


def test_without_a_clock_nothing_is_said() -> None:
    trials = [trial(n, ts=0.0) for n in range(5)]
    assert time_spent(trials) is None
    assert throughput(trials) is None
    assert time_spent([]) is None
    assert throughput([]) is None


@pytest.mark.parametrize("header", [{"measure": 3}, {"measure": {"builder": {"n_parallel": "x"}}}])
def test_headers_of_anything(header: dict[str, object]) -> None:
    assert time_spent([trial(n) for n in range(5)], [header]) is not None


def test_what_shares_the_samples_of_another_takes_no_time() -> None:
    trials = [trial(n) for n in range(10)]
    shared = replace(trials[3], same_as=trials[2].id, run_s=50.0, ts=1e9 + 3.1)
    assert time_spent([*trials, shared]) == time_spent(trials)
