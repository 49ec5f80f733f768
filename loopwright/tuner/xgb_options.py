"""Options of `loopwright.tuner.XGBTuner`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopwright.errors import UsageError, did_you_mean
from loopwright.tuner.evolution import Annealing, Evolution, ansor
from loopwright.tuner.options import (
    TunerOptions,
    at_least,
    option,
    optional,
    share,
    yes_or_no,
)

#: Searches of a space for the points that the model prefers, and their names.
Optimizer = Evolution | Annealing
OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "evolution": Evolution,
    "sa": Annealing,
    "ansor": ansor,
}
_DEFAULT_OPTIMIZER: str | Optimizer = "evolution"


def _optimizer(name: str, value: str | Optimizer) -> str | Optimizer:
    if not isinstance(value, (Evolution, Annealing)) and value not in tuple(OPTIMIZERS):
        raise UsageError(
            f"unknown {name} {value!r}{did_you_mean(str(value), OPTIMIZERS)}; "
            f"use one of {', '.join(OPTIMIZERS)}"
        )
    return value


def _ratio(name: str, value: float | None) -> float | None:
    wrong = isinstance(value, bool) or not isinstance(value, (int, float, type(None)))
    if wrong or (value is not None and not 1 <= value < float("inf")):
        raise UsageError(f"{name} must be None or a number of at least 1, got {value!r}")
    return value


@dataclass(frozen=True)
class XGBOptions(TunerOptions):
    """Options of `XGBTuner`."""

    plan_size: int = option(
        16,
        "trials of a round, after which the model is trained again. 16 learns faster than "
        "AutoTVM's 64.",
        at_least(1),
    )
    feature_type: str = option(
        "itervar",
        "what the model sees of a candidate: 'itervar' (loops, buffers, caches and vectors of its "
        "schedule), 'knob' (the values of its knobs) or 'curve' (reuse curves of its buffers).",
    )
    loss_type: str = option("reg", "'reg', 'rank' or 'rank-binary'; see `XGBCostModel`.")
    num_threads: int | None = option(
        None,
        "threads that train the model; None for 1. Proposals do not depend on it.",
        optional(at_least(1)),
        recorded=False,
    )
    optimizer: str | Optimizer = option(  # noqa: RUF009 -- it makes a field, and no shared value
        _DEFAULT_OPTIMIZER,
        "'evolution', 'sa', 'ansor' (evolution with Ansor's sizes and mutations), or an "
        "`Evolution` or `Annealing` with its settings.",
        _optimizer,
    )
    diversity_filter_ratio: float | None = option(
        None,
        "pick each round out of this many times as many good points so that their knob values "
        "differ, a number of at least 1; None lets four models, three of them trained with random "
        "weights of the results, pick their best in turn.",
        _ratio,
    )
    log_interval: int = option(
        50,
        "accepted for AutoTVM's sake; progress has its own pace.",
        recorded=False,
        shown=False,
    )
    epsilon: float = option(
        0.05, "chance of each trial to be a random point, 0 to 1.", share, keyword_only=True
    )
    analytical: bool = option(
        True,
        "whether an analytical model of the machine orders half of the first round, is the offset "
        "of the learned one, and proposes the points at which its search starts.",
        yes_or_no,
        keyword_only=True,
    )
    post_optimization: int | None = option(
        None,
        "number of the trial from which coordinate descent (that of `DropletTuner`) goes on from "
        "the best, until no neighbour of it is faster; then the model proposes again. None: never.",
        optional(at_least(0)),
        keyword_only=True,
    )

    adaptive_training: bool = option(
        True,
        "whether the model is trained again only once the results have grown by a fifth since the "
        "last time (Ansor's rule), instead of after every round.",
        yes_or_no,
        keyword_only=True,
    )

    @property
    def search(self) -> Optimizer:
        chosen = self.optimizer
        return OPTIMIZERS[chosen]() if isinstance(chosen, str) else chosen
