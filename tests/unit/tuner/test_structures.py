"""Search over structures: every kind of tuner keeps its promises, and trials go where they pay."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import loopwright as lw
from loopwright.measure import MeasureError, MeasureInput, MeasureResult
from loopwright.task.union import STRUCTURE, SpaceUnion
from loopwright.testing.tuner_contract import FakeSpace, FakeTask
from loopwright.tuner import TUNERS, GATuner, GridSearchTuner, RandomTuner
from loopwright.tuner.structures import StructuresTuner


class Space(FakeSpace):
    """A space with the name of its structure."""

    def __init__(self, name: str, extents: tuple[int, ...], default: int = 0) -> None:
        super().__init__(extents, default=default)
        self._frozen, self._dims = False, ()
        self.define_knob(STRUCTURE, [name])
        self.freeze()


class Task(FakeTask):
    """A task of some structures, given by their extents, the most promising first."""

    def __init__(
        self, *extents: tuple[int, ...], predicted: tuple[float, ...] = (), default: int = 0
    ) -> None:
        super().__init__()
        parts = [
            SimpleNamespace(config_space=Space(f"s{n}", e, default), instantiate=self.instantiate)
            for n, e in enumerate(extents)
        ]
        self.config_space = SpaceUnion(parts)
        speeds = predicted or (0.5,) * len(parts)
        self.ranking = tuple(zip(self.config_space.offsets, speeds, strict=False))


def told(tuner: StructuresTuner, times: dict[str, float], n: int = 16) -> dict[str, int]:
    """Tell one round in which every point of a structure takes as long; how many each got."""
    configs = tuner.ask(n)
    counts: dict[str, int] = {}
    results = []
    for config in configs:
        name = config[STRUCTURE].val
        counts[name] = counts.get(name, 0) + 1
        seconds = times[name]
        error = None if seconds else MeasureError("run_error", "it fails")
        results.append((config, MeasureResult(times=(seconds,) if seconds else (), error=error)))
    tuner.tell(results)
    return counts


@pytest.mark.parametrize("kind", [RandomTuner, GridSearchTuner, GATuner])
def test_a_tuner_of_such_a_task_searches_structures(kind):
    tuner = kind(Task((4, 4), (8,)), seed=3)
    assert isinstance(tuner, StructuresTuner)
    assert (tuner.name, tuner.seed) == (kind.name, 3)
    assert not isinstance(kind(FakeTask()), StructuresTuner)


@pytest.mark.parametrize("kind", [RandomTuner, GridSearchTuner, GATuner])
def test_every_point_is_proposed_once(kind):
    tuner = kind(Task((4, 4), (8,), (1,)), seed=0)
    seen: list[int] = []
    while configs := tuner.ask(5):
        seen += [c.index for c in configs]
        tuner.tell([(c, MeasureResult(times=(1e-3 * (1 + c.index),))) for c in configs])
    assert sorted(seen) == list(range(25))
    assert not tuner.has_next()


@pytest.mark.parametrize("kind", [RandomTuner, GridSearchTuner, GATuner])
def test_telling_again_gives_the_same_proposals(kind):
    first = kind(Task((4, 4), (8,), (5, 5)), seed=1)
    rounds = []
    for _ in range(3):
        configs = first.ask(6)
        results = [(c, MeasureResult(times=(1e-3 * (1 + c.index * 7 % 11),))) for c in configs]
        rounds.append(results)
        first.tell(results)
    again = kind(Task((4, 4), (8,), (5, 5)), seed=1)
    for number, results in enumerate(rounds):
        again.begin_round(number)
        again.tell(results)
    assert [c.index for c in again.ask(6)] == [c.index for c in first.ask(6)]


def test_the_first_round_has_the_most_promising_point_of_each():
    tuner = RandomTuner(Task((8, 8), (8, 8), (8, 8), predicted=(0.9, 0.8, 0.1)), seed=0)
    configs = tuner.ask(6)
    offsets = tuner.task.config_space.offsets
    assert set(offsets[:3]) <= {c.index for c in configs}
    names = [c[STRUCTURE].val for c in configs]
    assert names.count("s2") == 1  # the other trials go where more is promised


def test_what_its_rule_chose_for_the_leader_is_tried_in_the_first_round():
    tuner = RandomTuner(Task((99, 99), (99, 99), predicted=(0.9, 0.8), default=7), seed=0)
    proposed = [c.index for c in tuner.ask(8)]
    begin = tuner.task.config_space.offsets[1]
    assert proposed[:3] == [0, begin, 7]  # the most promising points, then this
    assert begin + 7 not in proposed  # others get the choices of the best


def test_a_round_that_is_cut_short_has_tried_every_leading_structure():
    tuner = RandomTuner(Task((8, 8), (8, 8), (8, 8), predicted=(0.9, 0.8, 0.7)), seed=0)
    names = [c[STRUCTURE].val for c in tuner.ask(15)]
    assert set(names[:3]) == {"s0", "s1", "s2"}
    assert set(names[:2]) == {"s0", "s1"}  # the most promising ones first


def test_trials_go_to_what_is_fastest():
    tuner = RandomTuner(Task((50, 50), (50, 50), (50, 50)), seed=0)
    times = {"s0": 4e-3, "s1": 1e-3, "s2": 2e-3}
    total: dict[str, int] = {}
    told(tuner, times)
    for _ in range(8):
        for name, count in told(tuner, times).items():
            total[name] = total.get(name, 0) + count
    assert total["s1"] > 3 * (total.get("s2", 0) + total.get("s0", 0))
    (line, *_) = tuner.notes
    assert line.startswith("structures: 3 of 3 tried; best structure 2 with ")
    assert "reached 0.50, 0.25 of it" in line


def test_a_structure_that_only_fails_is_left_alone():
    tuner = RandomTuner(Task((50, 50), (50, 50)), seed=0)
    for _ in range(4):
        told(tuner, {"s0": 0.0, "s1": 1e-3})
    assert told(tuner, {"s0": 0.0, "s1": 1e-3}) == {"s1": 16}


def test_choices_of_the_best_are_carried_over():
    tuner = RandomTuner(Task((9, 9), (9, 9)), seed=0)
    space = tuner.task.config_space
    best = space.get(9 * 4 + 5)
    tuner.tell([(best, MeasureResult(times=(1e-6,)))])
    proposed = {c.index for c in tuner.ask(16)}
    carried = space.index_of({**best.values, STRUCTURE: "s1"})
    assert carried in proposed


def test_what_is_excluded_is_not_proposed():
    tuner = RandomTuner(Task((4,), (4,)), seed=0)
    tuner.exclude([0, 4, 5])
    assert sorted(c.index for c in tuner.ask(8)) == [1, 2, 3, 6, 7]


def test_results_of_elsewhere_reach_the_structure_that_they_are_of():
    tuner = RandomTuner(Task((4,), (4,)), seed=0)
    space = tuner.task.config_space
    result = MeasureResult(times=(1e-3,))
    tuner.elsewhere = [(space.get(1), result), (space.get(6), result)]
    tuner.pretrained = [(MeasureInput(tuner.task, space.get(2)), result)]
    tuner.ask(8)
    first, second = (tuner._arms[n].tuner for n in (0, 1))
    assert [c.index for c, _ in first.elsewhere] == [1]
    assert [c.index for c, _ in second.elsewhere] == [2]
    ((measured, _),) = first.pretrained
    assert (measured.config.index, measured.task.structure) == (2, "s0")
    assert second.pretrained == []


@pytest.mark.slow  # that all kinds search structures is said above, on made-up ones
@pytest.mark.parametrize("name", TUNERS)
def test_real_structures_are_tuned_by_every_tuner(name, tmp_path):
    A, B = lw.te.placeholder((16, 16), name="A"), lw.te.placeholder((16, 16), name="B")
    k = lw.te.reduce_axis((0, 16), name="k")
    C = lw.te.compute((16, 16), lambda i, j: lw.te.sum(A[i, k] * B[k, j], axis=k), name="C")
    task = lw.create_task([A, B, C], target="llvm -num-threads=1")
    log = str(tmp_path / "log.jsonl")
    option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
    tuner = lw.tuner.find_tuner(name)(task, seed=0)
    summary = tuner.tune(n_trial=6, measure_option=option, callbacks=[lw.tuner.log_to_file(log)])
    assert summary.measured == 6
    records = lw.records.load(log).records
    names = task.config_space.names
    for record in records:
        assert record.config[STRUCTURE] in names
        number = names.index(record.config[STRUCTURE])
        assert record.space == task.config_space.space_hashes[number]
    # The same command again measures nothing twice.
    again = lw.tuner.find_tuner(name)(lw.create_task([A, B, C], target=task.target), seed=0)
    summary = again.tune(n_trial=6, measure_option=option, callbacks=[lw.tuner.log_to_file(log)])
    assert (summary.from_log, summary.measured) == (6, 0)
