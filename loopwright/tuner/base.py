"""The base class of tuners: strategies that are asked for configurations and told their results.

A tuner only proposes; ``run/loop.py`` measures, records and counts budgets. So that its log alone
brings a run back, it keeps two promises (`loopwright.testing.tuner_contract` checks them): what
outlives a round is rebuilt by ``tell``, and chance comes only from ``self.rng``, of seed and round.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.errors import UsageError
from loopwright.measure import MeasureInput, ignore
from loopwright.records import Expression, Log, Record
from loopwright.task import SpaceUnion
from loopwright.tuner.candidate_checks import CandidateChecks, Pruning
from loopwright.tuner.options import TunerOptions
from loopwright.tuner.run.interfaces import Callback
from loopwright.tuner.run.loop import PLAN_SIZE, tune
from loopwright.tuner.run.seeds import Seeds
from loopwright.tuner.run.state import flop_of, point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureOption, MeasureResult, MeasurerLike
    from loopwright.task import ConfigEntity, Task
    from loopwright.tuner.run.journal import Journal
    from loopwright.tuner.run.summary import Summary


class Tuner(ABC):
    """Base class of all tuners.

    Args:
        task: the task to tune; its ``config_space`` is searched.
        seed: of every random choice. One seed and equal results give one sequence of proposals.

    Further arguments are those of ``Options``, by position or by name.

    Attributes:
        best_config: the configuration with the lowest median so far, or None.
        best: ``(config, result)`` of the best, or None.
        best_iter: the number of the trial that found it, counted from 0.
        ttl: number of trials that may still come before a budget of trials (``n_trial``,
            ``early_stopping``) ends the run, as callbacks see it; None: no such budget, or no run.
        why_empty: reason why the last ``ask`` found nothing, where it did.
        pretrained: results that ``load_history`` was given, and a model may learn from.
        seeds: records of another system that it was given, whose points a run measures first.
        elsewhere: pairs of this space that the log holds from another compiler or machine.
        relatives: records of other tasks that the log held when this one was first tuned, as far
            as they may teach it.
        expressions: tensor expressions of those, by their hash, as far as logs hold them.
        on_phase: function that is called with the name of a step that takes long, such as
            ``"fitting the cost model"``; set by the run.

    Example:
        >>> class LastFirst(lw.tuner.Tuner):
        ...     def propose(self, n):
        ...         yield from reversed(range(len(self.space)))
        ...
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> first, second = LastFirst(task).ask(2)
        >>> print(first.index == second.index + 1 == len(task.config_space) - 1)
        True
    """

    #: The name by which the command line and the log know this tuner.
    name: ClassVar[str]
    #: The options of this kind of tuner.
    Options: ClassVar[type[TunerOptions]] = TunerOptions
    settings: TunerOptions
    #: Whether it takes the structures of a space into account itself.
    searches_unions: ClassVar[bool] = False
    #: Consecutive failures after which a run gives up.
    error_threshold: int = 150
    #: Number of trials of one round, which the loop asks for, and tells, at once.
    plan_size: int = PLAN_SIZE

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__doc__ and (text := cls.Options.text()):
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\nOptions:\n{text}\n"

    #: Makes the tuner of a task whose space is a list of structures, with a tuner of this kind for
    #: each; set by ``loopwright.tuner.structures``.
    _over_structures: ClassVar[Callable[..., Tuner]]

    def __new__(cls, task: Task | None = None, *positional: object, **named: object) -> Tuner:
        """A tuner of this kind, or for a space of several structures a tuner that has one of it for
        each."""
        space = None if task is None else task.config_space
        if task is not None and isinstance(space, SpaceUnion) and not cls.searches_unions:
            return Tuner._over_structures(task, cls, positional, named)
        return super().__new__(cls)

    def __init__(self, task: Task, *positional: object, seed: int = 0, **named: object) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise UsageError(f"seed must be an integer >= 0, got {seed!r}")
        self.task = task
        self.space = task.config_space
        self.pruning = Pruning(None if self.searches_unions else task)
        self.checks = CandidateChecks(task)
        self.seed = seed
        self.settings = self.Options.read(positional, named)
        self.pretrained: list[tuple[MeasureInput, MeasureResult] | Record] = []
        self.seeds = Seeds(task)
        self.elsewhere: list[tuple[ConfigEntity, MeasureResult]] = []
        self.relatives: list[tuple[Record, MeasureResult]] = []
        self.expressions: dict[str, list[Expression]] = {}
        self.journal: Journal | None = None
        self.on_phase: Callable[[str], object] = ignore
        self._rng: np.random.Generator | None = None
        self.reset()

    def reset(self) -> None:
        """Forget every proposal and result; what ``load_history`` gave is kept."""
        self.visited: set[int] = set()
        self.trials = 0
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best: tuple[ConfigEntity, MeasureResult] | None = None
        self.best_iter = 0
        self.ttl: int | None = None
        self.why_empty = ""
        self._best_speed = 0.0
        self._dry = False
        self.begin_round(0)

    @abstractmethod
    def propose(self, n: int) -> Iterable[int]:
        """Yield up to ``n`` indices of the space that are valid and not in ``self.visited``."""

    def learn(  # noqa: B027 -- a tuner without a model has nothing to do here
        self, results: Sequence[tuple[ConfigEntity, MeasureResult]]
    ) -> None:
        """Take in one round of results, in trial order; a tuner with a model overrides this."""

    def has_next(self) -> bool:
        """False when the space is exhausted as far as this tuner can tell."""
        return not self._dry

    def ask(self, n: int) -> list[ConfigEntity]:
        """Return up to ``n`` configurations not proposed before; fewer, or none, near the end."""
        if n < 1:
            return []
        chosen: list[int] = []
        for index in self.propose(n):
            if index in self.visited:
                continue
            self.visited.add(index)
            if not self.checks(index):
                continue
            chosen.append(index)
            if len(chosen) == n:
                break
        self._dry = not chosen
        return [self.space.get(index) for index in chosen]

    def tell(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in one whole round of ``(config, result)`` in trial order, and start the next."""
        for config, result in results:
            self.visited.add(point(config))
            speed = speed_of(result)
            if not result.dropped and speed > self._best_speed:
                self._best_speed = speed
                self.set_best(config, result, flop_of(self.task) * speed, self.trials)
            self.trials += 1
        self.learn(results)
        self.begin_round(self.round + 1)

    def begin_round(self, number: int, seed: int | None = None) -> None:
        """Set the round of the next ``ask``, whose generator starts afresh; ``seed`` is that of a
        round which another seed began."""
        self.round = number
        self._round_seed = self.seed if seed is None else seed
        self._rng = None

    def exclude(self, indices: Iterable[int]) -> None:
        """Never propose these indices (the loop measures the default configuration itself)."""
        self.visited.update(indices)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this round, from ``SeedSequence(seed, spawn_key=(round,))``."""
        if self._rng is None:  # made when it is asked for: thousands of rounds are told again
            seeds = np.random.SeedSequence(self._round_seed, spawn_key=(self.round,))
            self._rng = np.random.default_rng(seeds)
        return self._rng

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about this tuner for the summary of a run."""
        own = (self.pruning.note, self.checks.note)
        return (*self.seeds.notes, *(note for note in own if note))

    @property
    def options(self) -> dict[str, Any]:
        """The options that the header of a log holds beside name and seed."""
        return self.settings.recorded()

    def admits(self, index: int) -> bool:
        """Whether a point may be proposed: filters accept it, and the device has room for it."""
        return self.space.is_valid(index) and bool(self.pruning([index])[0])

    def set_best(
        self, config: ConfigEntity, result: MeasureResult, flops: float, trial: int
    ) -> None:
        """Note the best configuration so far, its speed in FLOP/s, and the trial that found it."""
        self.best_config, self.best = config, (config, result)
        self.best_flops, self.best_iter = flops, trial

    @property
    def best_measure_pair(self) -> tuple[MeasureInput, MeasureResult] | None:
        """``(input, result)`` with the lowest median so far, as AutoTVM has it, or None."""
        if self.best is None:
            return None
        config, result = self.best
        return MeasureInput(self.task, config, self.best_iter), result

    @property
    def range_length(self) -> int:
        """Number of indices that are searched, those that a filter refuses included."""
        return self.space.range_length

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """AutoTVM's name of ``ask``."""
        return self.ask(batch_size)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """AutoTVM's name of ``tell``, with inputs and results in two lists of one length."""
        self.tell([(i.config, r) for i, r in zip(inputs, results, strict=True)])

    def load_history(
        self,
        data_set: Iterable[tuple[MeasureInput, MeasureResult] | Record],
        min_seed_records: int = 500,
    ) -> int:
        """Offer results measured elsewhere: records, or pairs as AutoTVM has them; returns how many
        it holds.

        They never count as measured; a tuner with a cost model pretrains on them, others ignore
        them. Records of another shape of its template are described as points of their space, all
        others by what their trace makes of their expression, which a log holds and a list of
        records does not. Features of knobs, with ``feature_type="knob"``, say nothing of another
        space.

        Records of TVM's operators, such as ``conv2d_NCHWc.x86``, teach nothing: as far as their
        knobs mean the same they name points, the best of which a run measures first. Its notes say
        what they leave out.

        Args:
            data_set: such as ``loopwright.records.load(path)`` or
                ``autotvm.record.load_from_file(path)``.
            min_seed_records: accepted for AutoTVM's sake; every result is kept.

        Raises:
            UsageError: something in it is neither.
        """
        items = list(data_set)
        for item in items:
            pair = isinstance(item, tuple) and len(item) == 2 and hasattr(item[0], "config")
            if not pair and not isinstance(item, Record):
                raise UsageError(
                    "load_history takes records or pairs of MeasureInput and MeasureResult, such "
                    f"as loopwright.records.load(path); it got a {type(item).__name__}"
                )
        recorded = [x if isinstance(x, Record) else getattr(x, "record", None) for x in items]
        taken = self.seeds.take(recorded)
        self.pretrained.extend(item for n, item in enumerate(items) if n not in taken)
        if isinstance(data_set, Log):
            self.expressions.update(data_set.dags)
        return len(self.pretrained) + len(self.seeds)

    def set_error_threshold(self, threshold: int) -> None:
        """Give up after this many failures in a row (default 150)."""
        self.error_threshold = threshold

    def tune(
        self,
        n_trial: int | None = None,
        measure_option: MeasureOption | MeasurerLike | None = None,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
        timeout: float | str | None = None,
        target: float | None = None,
        min_gain: float | str | None = None,
    ) -> Summary:
        """Measure configurations until a budget is spent; see ``loopwright.tuner.run.loop.tune``.

        All budgets can be given together; the first that is spent ends the run, and
        ``Summary.stopped`` names it.

        Args:
            n_trial: valid records of this task that the log shall hold (without a log: that this
                tuner has measured); None for no limit.
            measure_option: the result of ``loopwright.measure_option``; None for its defaults. A
                ready measurer (anything with ``measure``) is taken as it is.
            early_stopping: stop after this many trials without a better one.
            callbacks: each is called ``f(tuner, inputs, results)`` after every round.
                ``log_to_file(path)`` among them names the log that is written and resumed from.
            si_prefix: accepted for AutoTVM's sake; ``progress_bar`` has its own.
            timeout: wall-clock budget of this call: seconds, or ``"90s"``, ``"30m"``, ``"8h"``.
            target: stop once the best reaches this speed in GFLOP/s (before the final re-measuring,
                which may find it a little slower).
            min_gain: stop when the best is expected to become faster by less than this share within
                a minute: 0.01 or ``"1%"``. Estimated from the latest 64 trials, see
                `loopwright.tuner.run.budget`; before them it never stops a run.

        Raises:
            UsageError: a budget is malformed, or ``target`` is given for a task without operations.
            TargetError: this machine lacks instructions that the task's code may use.
            TuneError: nothing could be measured, the log cannot be written, or another process
                tunes this task into the same log.
            TuningInterrupted: Ctrl-C; the log is synced and the summary is in ``.summary``.
        """
        return tune(
            self,
            n_trial=n_trial,
            measure_option=measure_option,
            early_stopping=early_stopping,
            callbacks=callbacks,
            timeout=timeout,
            target=target,
            min_gain=min_gain,
            plan_size=self.plan_size,
        )
