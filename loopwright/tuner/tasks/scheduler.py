"""Choice of the task that gets the next round: gradients of the objective, task by task.

The gradient scheduler is that of Ansor (Zheng et al., OSDI 2020, section 6; TVM's
``auto_scheduler.TaskScheduler``). With ``g_i(t)`` the best latency of task ``i`` after ``t``
rounds, ``C_i`` its operations, ``V_j = C_j / g_j`` the speed of task ``j``, and ``f`` the
objective, the task with the lowest

    df/dg_i * ( alpha * (g_i(t) - g_i(t - w)) / w
                + (1 - alpha) * (min(g_i - g_i / t, beta * C_i / max V_j) - g_i) )

comes next. The first term is the gain of the last ``w`` rounds; the second is what one more round
may gain if the latency goes on to fall as 1/t, or if the task comes near the speed of those like it
(``j`` in its group). The choice depends on the history of the tasks alone, so the same records lead
to the same choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from loopwright.errors import UsageError, did_you_mean

#: Weight of past gains, 0 to 1; factor within which a task is expected to come to the fastest of
#: its group; number of past rounds that are looked at.
ALPHA, BETA, BACKWARD_WINDOW = 0.2, 2.0, 3
#: Number of rounds more than the others after which a slower task leaves its group.
_PATIENCE = 5

STRATEGIES = ("gradient", "round-robin")


@dataclass
class TaskProgress:
    #: Operations of one call; 0 when there are none to count.
    flop: int = 0
    #: Tasks of an equal group are alike; None for a task like no other.
    group: object = None
    #: Best latency in seconds after each complete round; None while nothing ran.
    history: list[float | None] = field(default_factory=list)
    #: True when the task gets no further round.
    done: bool = False

    @property
    def rounds(self) -> int:
        return len(self.history)

    @property
    def latency(self) -> float | None:
        return self.history[-1] if self.history else None

    @property
    def speed(self) -> float:
        """Operations per second of the best; 0 when that is not known."""
        return self.flop / self.latency if self.latency else 0.0


class GradientScheduler:
    """Chooses the task of the next round.

    The objective gives the cost of latencies in seconds, one per task in order, 0 for a task of
    which nothing ran yet. The seed decides between equal gradients.
    """

    def __init__(
        self,
        objective: Callable[[Sequence[float]], float],
        *,
        strategy: str = "gradient",
        alpha: float = ALPHA,
        beta: float = BETA,
        backward_window: int = BACKWARD_WINDOW,
        seed: int = 0,
    ) -> None:
        if strategy not in STRATEGIES:
            hint = did_you_mean(strategy, STRATEGIES)
            raise UsageError(
                f"unknown strategy {strategy!r}{hint}; there are {', '.join(STRATEGIES)}"
            )
        if not 0 <= alpha <= 1:
            raise UsageError(f"alpha is a weight from 0 to 1, got {alpha!r}")
        if not beta >= 1:
            raise UsageError(f"beta is a factor of at least 1, got {beta!r}")
        if not isinstance(backward_window, int) or backward_window < 1:
            raise UsageError(f"backward_window must be an integer above zero: {backward_window!r}")
        self.objective, self.strategy = objective, strategy
        self.alpha, self.beta, self.window = alpha, beta, backward_window
        self.seed = seed

    def next(self, tasks: Sequence[TaskProgress]) -> int | None:
        """Position of the next task; None when all are done.

        Each task gets a first round before any gets more; one of which nothing ran yet comes before
        those that can be compared.
        """
        alive = [i for i, task in enumerate(tasks) if not task.done]
        if not alive:
            return None
        fewest = min(alive, key=lambda i: tasks[i].rounds)
        if not tasks[fewest].rounds or self.strategy == "round-robin":
            return fewest
        failed = [i for i in alive if tasks[i].latency is None]
        if failed:
            return min(failed, key=lambda i: tasks[i].rounds)
        gradients = self.gradients(tasks)
        lowest = min(gradients[i] for i in alive)
        ties = [i for i in alive if gradients[i] == lowest]
        if len(ties) == 1:
            return ties[0]
        total = sum(task.rounds for task in tasks)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(total,)))
        return int(rng.choice(ties))

    def gradients(self, tasks: Sequence[TaskProgress]) -> list[float]:
        """The gradient of each task, at most 0; 0 for one that is done or that never ran."""
        return [
            0.0 if task.done or not task.latency else self._slope(tasks, i) * self._change(tasks, i)
            for i, task in enumerate(tasks)
        ]

    def _slope(self, tasks: Sequence[TaskProgress], i: int) -> float:
        latencies = [task.latency or 0.0 for task in tasks]
        step = 1e-4 * latencies[i]
        lower = [*latencies]
        lower[i] -= step
        return max(0.0, (self.value(latencies) - self.value(lower)) / step)

    def value(self, latencies: Sequence[float]) -> float:
        value = self.objective(latencies)
        if not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise UsageError(
                f"the objective gave {value!r} for the latencies {list(latencies)}; "
                "it must give a finite number"
            )
        return float(value)

    def _change(self, tasks: Sequence[TaskProgress], i: int) -> float:
        """Seconds by which one more round is expected to change the latency; at most 0."""
        task = tasks[i]
        latency = task.latency
        assert latency is not None
        past = 0.0
        before = task.history[-1 - self.window] if task.rounds > self.window else None
        if before is not None:
            past = min(0.0, (latency - before) / self.window)
        hoped = latency - latency / task.rounds
        alike = self._alike(tasks, i)
        if alike:
            hoped = min(hoped, self.beta * task.flop / max(tasks[j].speed for j in [*alike, i]))
        return self.alpha * past + (1.0 - self.alpha) * (hoped - latency)

    def _alike(self, tasks: Sequence[TaskProgress], i: int) -> list[int]:
        """The other tasks of its group; none where it has proved to be unlike them."""
        task = tasks[i]
        if task.group is None or not task.speed:
            return []
        others = [j for j, t in enumerate(tasks) if j != i and t.group == task.group and t.speed]
        if not others:
            return []
        fastest = max(tasks[j].speed for j in others)
        longest = max(tasks[j].rounds for j in others)
        if task.speed < fastest / self.beta and task.rounds > longest + _PATIENCE:
            return []
        return others


def equal_together(alternatives: Sequence[object]) -> list[list[int]]:
    """Positions of equal alternatives; None is equal to no other."""
    groups: dict[object, list[int]] = {}
    for i, entry in enumerate(alternatives):
        groups.setdefault((i if entry is None else None, entry), []).append(i)
    return [*groups.values()]


def weighted_sum(
    weights: Sequence[float], alternatives: Sequence[object] = ()
) -> Callable[[Sequence[float]], float]:
    """The objective ``sum of weight * latency``.

    Tasks with equal entries in ``alternatives`` compute the same, and only the fastest of those
    that ran counts; None is a task that has no alternative.
    """
    groups = equal_together(alternatives or [None] * len(weights))

    def cost(latencies: Sequence[float]) -> float:
        ran = ([weights[i] * latencies[i] for i in g if latencies[i]] for g in groups)
        return sum(min(costs, default=0.0) for costs in ran)

    return cost
