from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import UsageError
from loopwright.tuner.tasks.scheduler import GradientScheduler, TaskProgress, weighted_sum


def brute_force(weights, tasks, alpha, beta, window):
    """The formula, written out a second time for weighted sums; TVM's own code does it so."""
    gradients = []
    for w, t in zip(weights, tasks, strict=True):
        g = t.history[-1]
        backward = 0.0
        if len(t.history) - 1 - window >= 0:
            backward = (g - t.history[len(t.history) - 1 - window]) / window
        next_1 = g - g / len(t.history)
        next_2 = np.inf
        group = [o for o in tasks if o.group == t.group and t.group is not None]
        if len(group) > 1:
            next_2 = beta * t.flop / max(o.flop / o.history[-1] for o in group)
        forward = min(next_1, next_2) - g
        gradients.append(w * (alpha * backward + (1 - alpha) * forward))
    return gradients


def test_by_hand():
    # Four rounds, window 3: past (2 - 5) / 3 = -1; hoped 2 - 2 / 4 = 1.5, change -0.5.
    a = TaskProgress(history=[5.0, 4.0, 3.0, 2.0])
    # Two rounds: no past; hoped 8 - 8 / 2 = 4, change -4.
    b = TaskProgress(history=[9.0, 8.0])
    scheduler = GradientScheduler(weighted_sum([3.0, 0.25]))
    gradients = scheduler.gradients([a, b])
    assert gradients == pytest.approx([3 * (0.2 * -1 + 0.8 * -0.5), 0.25 * 0.8 * -4])
    assert scheduler.next([a, b]) == 0
    assert GradientScheduler(weighted_sum([1.0, 1.0])).next([a, b]) == 1


def test_similar_tasks_by_hand():
    # The fast one does 100 FLOP/s; the other, at 10, is expected at 100 / 2 = 50: 20 s, not 50.
    fast = TaskProgress(flop=1000, group="a", history=[12.0, 10.0])
    slow = TaskProgress(flop=1000, group="a", history=[100.0, 100.0])
    scheduler = GradientScheduler(weighted_sum([1.0, 1.0]))
    assert scheduler.gradients([fast, slow]) == pytest.approx([0.8 * -5, 0.8 * (20 - 100)])
    slow.group = "b"
    assert scheduler.gradients([fast, slow]) == pytest.approx([0.8 * -5, 0.8 * -50])


def test_against_the_formula_written_out():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 6))
        weights = rng.uniform(0.1, 5.0, n).tolist()
        tasks = [
            TaskProgress(
                flop=int(rng.integers(1, 10**9)),
                group=[None, "a", "b"][rng.integers(3)],
                history=np.sort(rng.uniform(0.1, 9.0, rng.integers(1, 7)))[::-1].tolist(),
            )
            for _ in range(n)
        ]
        alpha, beta, window = rng.uniform(0, 1), rng.uniform(1, 3), int(rng.integers(1, 4))
        scheduler = GradientScheduler(
            weighted_sum(weights), alpha=alpha, beta=beta, backward_window=window
        )
        # A group is left only after more rounds than these have.
        expected = brute_force(weights, tasks, alpha, beta, window)
        assert scheduler.gradients(tasks) == pytest.approx(expected)
        assert scheduler.next(tasks) == int(np.argmin(expected))


def test_of_alternatives_the_fastest_counts():
    cost = weighted_sum([2.0, 2.0, 1.0, 1.0], ["a", "a", None, None])
    assert cost([3.0, 1.0, 5.0, 7.0]) == 2.0 + 5.0 + 7.0
    assert cost([3.0, 0.0, 5.0, 0.0]) == 6.0 + 5.0  # nothing ran of the second and the last
    slow, fast = TaskProgress(history=[3.0, 2.9]), TaskProgress(history=[1.0])
    scheduler = GradientScheduler(weighted_sum([2.0, 2.0], ["a", "a"]))
    gradients = scheduler.gradients([slow, fast])
    assert gradients[0] == 0 > gradients[1]
    assert scheduler.next([slow, fast]) == 1


def test_a_slow_task_leaves_its_group():
    fast = TaskProgress(flop=1000, group="a", history=[10.0])
    slow = TaskProgress(flop=1000, group="a", history=[100.0] * 6)
    scheduler = GradientScheduler(weighted_sum([1.0, 1.0]), alpha=0.0)
    assert scheduler.gradients([fast, slow])[1] == pytest.approx(20 - 100)
    slow.history.append(100.0)
    assert scheduler.gradients([fast, slow])[1] == pytest.approx(-100 / 7)


def test_any_objective():
    tasks = [TaskProgress(history=[4.0, 2.0]), TaskProgress(history=[9.0, 3.0])]
    product = GradientScheduler(lambda g: g[0] ** 2 * g[1])
    slopes = [2 * 2.0 * 3.0, 2.0**2]
    expected = [s * 0.8 * -g / 2 for s, g in zip(slopes, (2.0, 3.0), strict=True)]
    assert product.gradients(tasks) == pytest.approx(expected, rel=1e-3)
    slowest = GradientScheduler(max)
    assert slowest.gradients(tasks)[0] == 0.0
    assert slowest.next(tasks) == 1
    assert slowest.value([2.0, 3.0]) == 3.0


@pytest.mark.parametrize("objective", [lambda g: float("nan"), lambda g: "fast", lambda g: None])
def test_an_objective_without_a_number_is_refused(objective):
    with pytest.raises(UsageError, match="it must give a finite number"):
        GradientScheduler(objective).gradients([TaskProgress(history=[1.0])])


def test_each_task_has_a_first_round_before_any_has_more():
    tasks = [TaskProgress() for _ in range(3)]
    scheduler = GradientScheduler(weighted_sum([1.0, 100.0, 1.0]))
    order = []
    for _ in range(3):
        order.append(scheduler.next(tasks))
        tasks[order[-1]].history.append(1.0)
    assert order == [0, 1, 2]
    assert scheduler.next(tasks) == 1


def test_a_task_of_which_nothing_ran_comes_first_and_done_ones_never():
    tasks = [TaskProgress(history=[1.0]), TaskProgress(history=[None]), TaskProgress(history=[9.0])]
    scheduler = GradientScheduler(weighted_sum([1.0, 1.0, 1.0]))
    assert scheduler.next(tasks) == 1
    tasks[1].done = True
    assert scheduler.next(tasks) == 2
    tasks[2].done = True
    assert scheduler.next(tasks) == 0
    tasks[0].done = True
    assert scheduler.next(tasks) is None


def test_equal_gradients_are_drawn_by_seed():
    tasks = [TaskProgress(history=[1.0]) for _ in range(4)]
    chosen = {
        seed: GradientScheduler(weighted_sum([1.0] * 4), seed=seed).next(tasks)
        for seed in range(40)
    }
    assert set(chosen.values()) == {0, 1, 2, 3}
    assert chosen == {
        seed: GradientScheduler(weighted_sum([1.0] * 4), seed=seed).next(tasks)
        for seed in range(40)
    }


def test_round_robin():
    tasks = [TaskProgress(history=[1.0] * n) for n in (2, 1, 2)]
    assert GradientScheduler(weighted_sum([9.0, 1.0, 9.0]), strategy="round-robin").next(tasks) == 1


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"strategy": "gradeint"}, r"did you mean 'gradient'\?"),
        ({"alpha": 1.5}, "from 0 to 1"),
        ({"beta": 0.5}, "at least 1"),
        ({"backward_window": 0}, "above zero"),
    ],
)
def test_options_are_checked(option, text):
    with pytest.raises(UsageError, match=text):
        GradientScheduler(sum, **option)


def falling(rng, rounds):
    """A convergence curve: latency after each round of a search that is soon or late at its end."""
    start, floor = rng.uniform(2.0, 30.0), rng.uniform(0.5, 1.0)
    steps = rng.exponential(1.0, rounds) * rng.uniform(0.02, 0.6)
    return [floor + start * float(np.exp(-s)) for s in np.cumsum(steps)]


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_it_beats_round_robin_on_replayed_curves(share):
    """Of weighted latency above what all rounds together would reach, over many sets of tasks."""
    rng = np.random.default_rng(7)
    ratios = []
    for _ in range(40):
        curves = [falling(rng, 200) for _ in range(8)]
        weights = rng.choice([1.0, 1.0, 2.0, 10.0], 8).tolist()
        budget = int(share * 8 * 20)
        left = {}
        for strategy in ("gradient", "round-robin"):
            scheduler = GradientScheduler(weighted_sum(weights), strategy=strategy)
            tasks = [TaskProgress() for _ in curves]
            for _ in range(budget):
                i = scheduler.next(tasks)
                tasks[i].history.append(curves[i][tasks[i].rounds])
            left[strategy] = scheduler.value([task.latency for task in tasks])
        ratios.append(left["gradient"] / left["round-robin"])
    assert np.median(ratios) < 0.9
    assert np.mean(np.array(ratios) <= 1.0) > 0.9
