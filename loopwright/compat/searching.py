"""Ansor's cost models, search policies, and the callbacks at their beginning."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loopwright import records
from loopwright.compat.measuring import RecordReader
from loopwright.compat.states import State
from loopwright.cost import AnalyticalModel
from loopwright.errors import InternalError, RecordError, SpaceError, UsageError, did_you_mean
from loopwright.files import Output, write
from loopwright.records import LOG, Record, new_run
from loopwright.space import RULES, AutomaticTask, Sketch, SpaceRule, Structure, enter
from loopwright.task import Digits, digits_of, indices_of
from loopwright.tuner import (
    Budget,
    CandidateBatches,
    Evolution,
    Journal,
    KnownPoints,
    Measurements,
    Pool,
    RandomTuner,
    RunState,
    SampleOutcome,
    StructureTask,
    Tuner,
    XGBCostModel,
    XGBTuner,
    open_journal,
    point,
    results_of,
    speed_of,
    union_of,
)

if TYPE_CHECKING:
    from loopwright.compat.measuring import MeasureInput, MeasureResult, TuningOptions
    from loopwright.measure import MeasureResult as TrialResult
    from loopwright.task import ConfigEntity
    from loopwright.te import Tensor
    from loopwright.tuner import Summary


Floats = npt.NDArray[np.float64]
Scorer = Callable[[Digits], Floats]
_FIRST = 8  # trials of a structure that a model learns from at least


class CostModel(ABC):
    """The base of the cost models `XGBModel` and `RandomModel`."""

    @abstractmethod
    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from trials."""

    @abstractmethod
    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        """A function that scores points of one structure, float64 ``(n,)``; higher is faster."""

    def predict(self, task: Any, states: Sequence[State]) -> Floats:
        """Scores of states, float64 ``(n,)``; higher is faster. UsageError where a state is no
        point of a structure of the `SearchTask`, as a `SketchPolicy` makes them.
        """
        union = union_of(task.automatic_task)
        scores = np.empty(len(states))
        for number, places in placed(task.automatic_task, states).items():
            digits = digits_of(union.parts[number].config_space, [local for _, local in places])
            at = [position for position, _ in places]
            scores[at] = self.scorer(task.automatic_task, number)(digits)
        return scores


def placed(task: AutomaticTask, states: Sequence[State]) -> dict[int, list[tuple[int, int]]]:
    """Positions in ``states`` and indices in the structure, by structure."""
    union = union_of(task)
    positions: dict[int, list[tuple[int, int]]] = {}
    for position, state in enumerate(states):
        index = None if state.config is None else union.find(state.config)
        if index is None:
            raise UsageError(
                f"state {position} is no point of a structure of {task}; take those of a "
                "SketchPolicy without further steps"
            )
        number, local = union.place(index)
        positions.setdefault(number, []).append((position, local))
    return positions


class RandomModel(CostModel):
    """Random scores, from a seed: a search with it draws points at random.

    Example:
        >>> X = te.placeholder((64, 256), name="X")
        >>> Y = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="Y")
        >>> dag, model = lw.auto_scheduler.ComputeDAG(Y), lw.auto_scheduler.RandomModel()
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> states = lw.auto_scheduler.SketchPolicy(task, model).sample_initial_population()
        >>> scores = model.predict(task, states)
        >>> print(len(scores) == len(states), bool((0 <= scores).all() and (scores < 1).all()))
        True True
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn nothing."""

    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        return lambda digits: self._rng.random(len(digits))


class XGBModel(CostModel):
    """Boosted trees over an analytical model of the machine, as in `loopwright.tuner.XGBTuner`.

    It is trained when it is used, on the trials given to it; a structure with fewer than 8 trials
    is scored by the analytical model alone. The tuner of a search learns from its measurements,
    too.

    Args:
        model_file: keep trials in this file, and begin with those that it holds.
        verbose_eval: accepted: the summary of a search reports the model's quality.
        num_warmup_sample: accepted: the analytical model needs none.
        seed: accepted: predictions follow from the trials.
        adaptive_training: accepted: the model is trained when it is used.

    Example:
        >>> X = te.placeholder((64, 256), name="X")
        >>> Y = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="Y")
        >>> dag, model = lw.auto_scheduler.ComputeDAG(Y), lw.auto_scheduler.XGBModel()
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> states = lw.auto_scheduler.SketchPolicy(task, model).generate_sketches()
        >>> print(model.predict(task, states).shape == (len(states),))
        True
        >>> model.update_from_file("matmul.jsonl", n_lines=4)
        >>> print(len(model.records))
        4
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.records: list[Record] = []
        self.model_file = model_file
        if model_file is not None and Path(model_file).exists():
            self.load(model_file)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from trials of logs, as `RecordReader` returns them; the results of the records
        count. UsageError where an input is not from a log.
        """
        records = [item.record for item in inputs]
        if None in records:
            raise UsageError("XGBModel.update takes inputs of a log, see RecordReader")
        self._take([record for record in records if record is not None])

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from the first ``n_lines`` trials of a log, or from all; see `RecordReader`."""
        inputs, _ = RecordReader(file_name).read_lines(n_lines)
        self._take([item.record for item in inputs if item.record is not None])

    def save(self, file_name: str) -> None:
        """Write the trials that it learned from to a log, from which `load` trains the model again.

        RecordError where it cannot be written, UsageError where the file exists and is no log.
        """
        lines = "".join(f"{record.to_line()}\n" for record in self.records)
        write(Output(Path(file_name), lines.encode(), LOG), force=None, error=RecordError)

    def load(self, file_name: str) -> None:
        """Learn from a file of `save`; errors as of `update_from_file`."""
        inputs, _ = RecordReader(file_name).read_lines()
        self.records += [item.record for item in inputs if item.record is not None]

    def _take(self, records: Sequence[Record]) -> None:
        self.records += records
        if self.model_file is not None:
            self.save(self.model_file)

    def scorer(self, task: AutomaticTask, number: int) -> Scorer:
        """Log2 of calls per second of a measured task, else of the share of the machine's peak."""
        structure: Any = StructureTask(task, number)
        measured = Measurements()
        measured.add(self._trials(structure))
        if measured.ran < _FIRST:
            analytical, distance = AnalyticalModel(structure), self._distance(task)
            return lambda digits: analytical.predict(digits) + distance
        candidates = CandidateBatches(structure, "itervar", analytical=True)
        model = XGBCostModel(candidates.names)
        samples = measured.samples(candidates, len(measured))
        model.fit(samples)
        # Trees predict up to a constant, which is set by what ran.
        ran = samples.outcome != SampleOutcome.FAILED
        constant = float(np.mean(samples.score[ran] - model.predict(samples.batch)[ran]))
        return lambda digits: model.predict(candidates.batch(digits, len(measured))) + constant

    def _distance(self, task: AutomaticTask) -> float:
        """Offset from predicted shares of the peak to the unit of the task's measurements, or 0."""
        apart: list[float] = []
        for number in range(len(union_of(task).parts)):
            structure: Any = StructureTask(task, number)
            ran = [(config, speed_of(result)) for config, result in self._trials(structure)]
            ran = [(config, speed) for config, speed in ran if speed]
            if not ran:
                continue
            digits = digits_of(structure.config_space, [point(config) for config, _ in ran])
            speeds = np.log2([speed for _, speed in ran])
            apart += (speeds - AnalyticalModel(structure).predict(digits)).tolist()
        return float(np.mean(apart)) if apart else 0.0

    def _trials(self, own: StructureTask) -> list[tuple[ConfigEntity, TrialResult]]:
        space = own.config_space
        mine = [r for r in self.records if r.task == own.key and not r.phase]
        indices = [space.find(record.config) for record in mine]
        pairs = zip(indices, results_of(mine), strict=True)
        return [(space.get(n), result) for n, result in pairs if n is not None]


class SearchCallback:
    """The base of ``init_search_callbacks`` of a search."""


class PreloadMeasuredStates(SearchCallback):
    """Begin a search with the trials of a log: the model learns from them; none is measured again.

    A search continues its own log without this callback, too. The lines of another log are first
    copied into its own, or kept in memory if it has none.

    RecordError where the log does not exist, or holds no record.

    Example:
        >>> print(lw.auto_scheduler.PreloadMeasuredStates("matmul.jsonl").filename)
        matmul.jsonl
    """

    def __init__(self, filename: str = "auto_scheduler_tuning.json") -> None:
        records.load(filename)
        self.filename = filename


class PreloadCustomSketchRule(SearchCallback):
    """A custom rule for one search; `loopwright.space_rule` registers one for all.

    Args:
        meet_condition_func: called ``f(policy, state, stage_id)`` for every stage, the last first;
            returns `PASS`, `APPLY`, or `APPLY_AND_SKIP_REST`, with which the structures of other
            rules are left out.
        apply_func: called in the same way where the rule applies; returns pairs of a state and the
            next stage. Each state is one structure; open lengths of its splits are knobs. The
            rules of loopwright schedule an expression as a whole, so the next stage is ignored.
        rule_name: its name in records.

    Example:
        >>> A = te.placeholder((16, 64), name="A")
        >>> B = te.compute((16, 64), lambda i, j: A[i, j] + 1, name="B")
        >>> dag = lw.auto_scheduler.ComputeDAG([A, B])
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> def condition(policy, state, stage_id):
        ...     rule = lw.auto_scheduler.PreloadCustomSketchRule
        ...     return rule.APPLY_AND_SKIP_REST if stage_id == 1 else rule.PASS
        >>> def halves(policy, state, stage_id):
        ...     new = state.copy()
        ...     outer, inner = new.split(stage_id, 1, [None])
        ...     new.vectorize(stage_id, inner)
        ...     return [[new.state_object, -1]]
        >>> rule = lw.auto_scheduler.PreloadCustomSketchRule(condition, halves, "halves")
        >>> policy = lw.auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
        >>> print([str(structure) for structure in policy.structures])
        ['halves (7 configurations)']
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self,
        meet_condition_func: Callable[[Any, State, int], int],
        apply_func: Callable[[Any, State, int], Sequence[Sequence[Any]]],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func = meet_condition_func, apply_func
        self.rule_name = rule_name


def space_rule_of(policy: Any, custom: PreloadCustomSketchRule) -> SpaceRule:
    """A rule of loopwright from a user's rule, whose functions get ``policy``."""
    task, dag = policy.task.automatic_task, policy.task.compute_dag

    def no_schedule() -> Any:
        raise InternalError("a state over a sketch has its schedule from there")

    def initial(outputs: Sequence[Tensor], args: Sequence[Tensor]) -> State:
        return State(no_schedule, dag, sketch=Sketch(outputs, args))

    probe = initial(task.program.outputs, task.program.args)
    answers = {
        stage: custom.meet_condition_func(policy, probe.copy(), stage)
        for stage in reversed(range(len(probe.stages)))
    }

    def rule(outputs: Sequence[Tensor], args: Sequence[Tensor]) -> list[Structure]:
        states: list[State] = []
        for stage in (n for n, answer in answers.items() if answer != custom.PASS):
            pairs = custom.apply_func(policy, initial(outputs, args), stage)
            states += [state for state, *_ in pairs]
        return [_finished(state, custom.rule_name, number) for number, state in enumerate(states)]

    stops = custom.APPLY_AND_SKIP_REST in answers.values()
    return rule_of(task, custom.rule_name, rule, stops)


def _finished(state: Any, name: str, number: int) -> Structure:
    if not isinstance(state, State) or state.sketch is None:
        raise SpaceError(
            f"the rule {name!r} returned {state!r:.40}; return pairs of a copy of the state that "
            "it was given and a number"
        )
    state.sketch.why.append(f"PreloadCustomSketchRule {name!r}")
    return state.sketch.finished(name if not number else f"{name} {number}")


def rule_of(task: AutomaticTask, name: str, rule: Any, stops: bool) -> SpaceRule:
    """A rule that is asked before the built-in ones."""
    return SpaceRule(f"auto_scheduler/{name}", rule, (task.kind,), 1_000, stops)


def with_rules(task: AutomaticTask, rules: Sequence[SpaceRule]) -> AutomaticTask:
    """A copy of the task, with the structures of other rules."""
    former = {rule.name: RULES.get(rule.name) for rule in rules}
    try:
        for rule in rules:
            RULES.pop(rule.name, None)
            enter(rule)
        return AutomaticTask(task.template, task.args, task.target)
    finally:
        for name, rule_before in former.items():
            RULES.pop(name, None)
            if rule_before is not None:
                RULES[name] = rule_before


class SearchPolicy(ABC):
    """The base of the policies: the task, its space, and the tuner that searches it; UsageError
    where a callback is of another kind.
    """

    def __init__(self, task: Any, init_search_callbacks: Sequence[SearchCallback] | None) -> None:
        self.task, self.verbose = task, 1
        self._callbacks = list(init_search_callbacks or ())
        for one in self._callbacks:
            if not isinstance(one, (PreloadMeasuredStates, PreloadCustomSketchRule)):
                raise UsageError(
                    f"init_search_callbacks: {one!r:.60} is neither PreloadMeasuredStates nor "
                    "PreloadCustomSketchRule"
                )

    @property
    def search_task(self) -> Any:
        """The `SearchTask`."""
        return self.task

    @cached_property
    def automatic_task(self) -> AutomaticTask:
        """The task with the space that is searched."""
        task: AutomaticTask = self.task.automatic_task
        return task

    @property
    def structures(self) -> tuple[Any, ...]:
        """The structures that are searched."""
        return self.automatic_task.structures

    @property
    @abstractmethod
    def tuner(self) -> Tuner:
        """The tuner that searches them."""

    def set_verbose(self, verbose: int) -> None:
        """Show the progress of a search; 0: never, whatever `TuningOptions` says."""
        self.verbose = verbose

    def search(self, tuning_options: TuningOptions) -> Summary | None:
        """Measure until a limit is reached; a log is continued. Returns the summary, or None if
        there was nothing to measure; errors are those of `loopwright.tuner.Tuner.tune`.
        """
        if not tuning_options.num_measure_trials:
            return None
        before = self.prepare(tuning_options)
        return self.tuner.tune(
            n_trial=before + tuning_options.num_measure_trials,
            measure_option=tuning_options.measure_option,
            early_stopping=tuning_options.early_stopping,
            callbacks=[*tuning_options.callbacks([self]), tuning_options.display(self)],
        )

    def prepare(self, options: TuningOptions) -> int:
        """Load the trials that a search begins with; returns the number of valid ones."""
        tuner, log = self.tuner, options.log
        if options.num_measures_per_round is not None:
            tuner.plan_size = options.num_measures_per_round
        for one in self._callbacks:
            if isinstance(one, PreloadMeasuredStates):
                self._preload(one.filename, log, options.runner.devices)
        self._teach(log)
        return valid_trials(self.automatic_task, log, options.runner.devices, tuner.journal)

    def _preload(self, filename: str, log: str | None, devices: str) -> None:
        if log is not None:
            if not (os.path.exists(log) and os.path.samefile(filename, log)):
                records.merge([filename], log)
            return
        if self.tuner.journal is not None:
            return
        kept = Journal(self.automatic_task)
        with open_journal(self.automatic_task, filename, new_run(), None, devices) as journal:
            for trial in journal.trials:
                kept.add(trial)
        self.tuner.journal = kept

    def _teach(self, log: str | None) -> None:  # noqa: B027 -- without a model nothing is told
        """Pass the trials that the cost model was given before the search to the tuner."""


def valid_trials(
    task: AutomaticTask, log: str | None, devices: str, journal: Journal | None = None
) -> int:
    """Number of valid trials of a task in a log, which need not exist, or in a journal in memory
    where the log is None, as a run on these devices counts them.
    """
    if log is not None and not os.path.exists(log):
        return 0
    state = RunState(0, None, Budget())
    with open_journal(task, log, new_run(), journal, devices) as opened:
        state.resume((t for _, trials in opened.rounds() for t in trials), opened.later)
    return state.valid


class EmptyPolicy(SearchPolicy):
    """Measures the expression without any step of a schedule; arguments as of `SearchPolicy`.

    Example:
        >>> X = te.placeholder((16,), name="X")
        >>> dag = lw.auto_scheduler.ComputeDAG(te.compute((16,), lambda i: X[i] + 1, name="Y"))
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> print([str(s) for s in lw.auto_scheduler.EmptyPolicy(task).structures])
        ['empty (1 configurations)']
    """

    def __init__(
        self, task: Any, init_search_callbacks: Sequence[SearchCallback] | None = None
    ) -> None:
        super().__init__(task, init_search_callbacks)

    @cached_property
    def automatic_task(self) -> AutomaticTask:
        def empty(outputs: Sequence[Tensor], args: Sequence[Tensor]) -> Structure:
            sketch = Sketch(outputs, args)
            sketch.why.append("EmptyPolicy: every stage runs as it was written")
            return sketch.finished("empty")

        task: AutomaticTask = self.task.automatic_task
        return with_rules(task, [rule_of(task, "empty", empty, True)])

    @cached_property
    def tuner(self) -> Tuner:
        return RandomTuner(self.automatic_task)


class SketchPolicy(SearchPolicy):
    """Searches all structures of the rules: a bandit shares out the trials, and inside each
    structure evolution on the cost model proposes, see `loopwright.tuner.XGBTuner`. UsageError
    where a parameter is unknown or not supported, or the cost model is of another kind.

    Args:
        program_cost_model: `XGBModel`, or `RandomModel` for a random search; None: the latter.
        params: Ansor's parameters by name. These have an effect: ``eps_greedy``,
            ``sample_init_min_population``, ``sample_init_use_measured_ratio``,
            ``evolutionary_search_population``, ``evolutionary_search_num_iters``. The others are
            left to rules, or have no counterpart, and are accepted with Ansor's values alone.
        seed: seed of every random choice; None: 0.
        verbose: 0: nothing is shown, whatever `TuningOptions` says.
        init_search_callbacks: `PreloadMeasuredStates` and `PreloadCustomSketchRule`.

    Example:
        >>> X = te.placeholder((64, 64), name="X")
        >>> dag = lw.auto_scheduler.ComputeDAG(te.compute((64, 64), lambda i, j: X[j, i], name="Y"))
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> policy = lw.auto_scheduler.SketchPolicy(task, lw.auto_scheduler.XGBModel(), seed=1)
        >>> print(len(policy.generate_sketches()) == len(policy.structures))
        True
        >>> best = policy.evolutionary_search(policy.sample_initial_population(), 4)
        >>> print(len(best), best[0].config is not None)
        4 True
    """

    DEFAULT_PARAMS: ClassVar[dict[str, Any]] = {
        "eps_greedy": 0.05,
        "retry_search_one_round_on_empty": 1,
        "sample_init_min_population": 50,
        "sample_init_use_measured_ratio": 0.2,
        "evolutionary_search_population": 2048,
        "evolutionary_search_num_iters": 4,
        "evolutionary_search_mutation_prob": 0.85,
        "cpu_multi_level_tiling_structure": "SSRSRS",
        "gpu_multi_level_tiling_structure": "SSSRRSRS",
        "max_innermost_split_factor": 64,
        "max_vectorize_size": 16,
        "disable_change_compute_location": 0,
    }

    def __init__(
        self,
        task: Any,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
    ) -> None:
        super().__init__(task, init_search_callbacks)
        self.program_cost_model = program_cost_model or RandomModel()
        if not isinstance(self.program_cost_model, (RandomModel, XGBModel)):
            raise UsageError(
                f"SketchPolicy: the cost model is a {type(program_cost_model).__name__}; give "
                "XGBModel() or RandomModel(), or derive a tuner from loopwright.tuner.Tuner"
            )
        self.params = _checked_params(dict(params or {}))
        self.seed, self.verbose = seed or 0, verbose

    @cached_property
    def automatic_task(self) -> AutomaticTask:
        task: AutomaticTask = self.task.automatic_task
        custom = [one for one in self._callbacks if isinstance(one, PreloadCustomSketchRule)]
        return with_rules(task, [space_rule_of(self, one) for one in custom]) if custom else task

    @cached_property
    def tuner(self) -> Tuner:
        if isinstance(self.program_cost_model, RandomModel):
            return RandomTuner(self.automatic_task, seed=self.seed)
        options: dict[str, Any] = {}
        if "eps_greedy" in self.params:
            options["epsilon"] = self.params["eps_greedy"]
        if self._evolution != Evolution():
            options["optimizer"] = self._evolution
        return XGBTuner(self.automatic_task, seed=self.seed, **options)

    @property
    def _evolution(self) -> Evolution:
        params = self.params
        return Evolution(
            **{ours: params[name] for name, ours in _EVOLUTION.items() if name in params}
        )

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """One state for each structure, with the default of every knob; ``print_for_debug`` also
        prints them, with the reasons of the rules.
        """
        union = union_of(self.automatic_task)
        states = []
        for number, part in enumerate(union.parts):
            begin = union.offsets[number]
            states.append(self._state(begin + part.config_space.default_index))
            if print_for_debug:
                print(f"{'=' * 20} {number} {'=' * 20}")
                print("\n".join([str(part), *getattr(part, "why", ()), str(states[-1])]))
        return states

    def sample_initial_population(self) -> list[State]:
        """Random states, equally many by structure: ``sample_init_min_population``, 50, or all."""
        count = self.params.get("sample_init_min_population", 50)
        space = self.automatic_task.config_space
        return [self._state(index) for index in space.sample_ints(count, self.seed)]

    def evolutionary_search(self, init_populations: Sequence[State], out_size: int) -> list[State]:
        """Up to ``out_size`` states with the best scores of the cost model, the best first, evolved
        from others: the best of a structure are crossed with random points of it. UsageError where
        one of ``init_populations`` is no point of a structure.
        """
        union = union_of(self.automatic_task)
        scored: list[tuple[float, int]] = []
        for number, places in placed(self.automatic_task, init_populations).items():
            seeds = digits_of(union.parts[number].config_space, [local for _, local in places])
            liked = self._bred(number, seeds, out_size)
            scored += [(score, union.offsets[number] + local) for score, local in liked]
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        return [self._state(index) for _, index in scored[:out_size]]

    def _bred(self, number: int, seeds: Digits, count: int) -> list[tuple[float, int]]:
        """The points of a structure with the best scores of the model, and these scores."""
        task = self.automatic_task
        space = union_of(task).parts[number].config_space
        score = self.program_cost_model.scorer(task, number)
        pool = Pool(space, score, lambda at: np.array([*map(space.is_valid, at)], np.bool_), set())
        order = np.argsort(-score(seeds), kind="stable")
        nothing = np.empty((0, len(space.dims)), np.int64)
        rng = np.random.default_rng(self.seed)
        points = KnownPoints(space, seeds[order], nothing)
        self._evolution.search(pool, self._evolution.moves(space), points, rng)
        best = pool.best(count)
        return list(zip(best.scores.tolist(), indices_of(space, best.digits), strict=True))

    def _teach(self, log: str | None) -> None:
        if not isinstance(self.program_cost_model, XGBModel) or self.tuner.pretrained:
            return
        # What the search finds in its log counts as measured, and is not taught a second time.
        key = self.automatic_task.key
        others = [r for r in self.program_cost_model.records if log is None or r.task != key]
        self.tuner.load_history(others)

    def _state(self, index: int) -> State:
        task = self.automatic_task
        config = task.config_space.get(index)
        return State(lambda: task.instantiate(config), self.task.compute_dag, config)


#: Parameters of the evolution, by Ansor's names, and all that have an effect here.
_EVOLUTION = {
    "evolutionary_search_population": "population",
    "evolutionary_search_num_iters": "generations",
    "sample_init_use_measured_ratio": "measured",
}
_HAD = ("eps_greedy", "sample_init_min_population", *_EVOLUTION)


def _checked_params(params: dict[str, Any]) -> dict[str, Any]:
    defaults = SketchPolicy.DEFAULT_PARAMS
    for name, value in params.items():
        if name not in defaults:
            near = did_you_mean(name, defaults)
            raise UsageError(
                f"SketchPolicy has no parameter {name!r}{near}; it has {', '.join(defaults)}"
            )
        if name not in _HAD and value != defaults[name]:
            raise UsageError(
                f"SketchPolicy: {name}={value!r} is not supported, since rules decide it; leave "
                "it out, or write a rule (loopwright.space_rule)"
            )
    return {name: value for name, value in params.items() if name in _HAD}
