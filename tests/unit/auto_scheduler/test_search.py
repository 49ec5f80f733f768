"""Searching under Ansor's names: what is measured, what is gone on from, what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import loopwright as lw
from loopwright import auto_scheduler, te
from loopwright.compat.task_scheduler import LogEstimatedLatency, TaskSchedulerCallback
from loopwright.errors import RecordError, SpaceError, TaskError, UsageError
from loopwright.space import SpaceRule
from loopwright.space.registry import RULES
from loopwright.testing.tuner_contract import FakeMeasurer

#: Short runs: what comes out does not matter here.
RUNNER = auto_scheduler.LocalRunner(number=1, repeat=1)


@auto_scheduler.register_workload("test/scaled_rows")
def scaled_rows(n: int, m: int) -> list[te.Tensor]:
    X, Y = te.placeholder((n, m), name="X"), te.placeholder((n,), name="Y")
    return [X, Y, te.compute((n, m), lambda i, j: te.exp(X[i, j]) * Y[i], name="Z")]


@auto_scheduler.register_workload("test/product")
def product(n: int) -> list[te.Tensor]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def rows(n: int = 64, **given: Any) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=scaled_rows, args=(n, 48), target="llvm", **given)


def measured(trials: int, log: Path | None = None, *more: Any) -> auto_scheduler.TuningOptions:
    callbacks = [auto_scheduler.RecordToFile(log)] if log else []
    return auto_scheduler.TuningOptions(
        trials, runner=RUNNER, measure_callbacks=[*callbacks, *more], verbose=0
    )


def options(trials: int, log: Path | None = None, *more: Any) -> auto_scheduler.TuningOptions:
    """The same with times that are made up."""
    made = measured(trials, log, *more)
    made.measure_option = FakeMeasurer()
    return made


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four trials of `rows`."""
    path = tmp_path_factory.mktemp("logs") / "rows.json"
    rows().tune(measured(4, path))
    return path


def trials(path: Path) -> list[lw.records.Record]:
    return [r for r in lw.records.load(path) if not r.phase and r.valid and not r.same_as]


# -- tasks ----------------------------------------------------------------------------------------


def test_a_task_is_made_in_four_ways() -> None:
    one = rows()
    assert one.workload_key == '["test/scaled_rows", 64, 48]'
    by_key = auto_scheduler.SearchTask(workload_key=one.workload_key, target="llvm")
    by_dag = auto_scheduler.SearchTask(compute_dag=one.compute_dag, target="llvm")
    auto_scheduler.register_workload_tensors("test/tensors", one.compute_dag.tensors)
    by_tensors = auto_scheduler.SearchTask(workload_key="test/tensors", target="llvm")
    ways = (one, by_key, by_dag, by_tensors)
    assert {task.automatic_task.key for task in ways} == {one.automatic_task.key}
    assert by_dag.workload_key == f'["{one.compute_dag.hash_key()}"]'
    assert by_tensors.workload_key == "test/tensors"
    with pytest.raises(UsageError, match="there is no expression"):
        auto_scheduler.SearchTask(target="llvm")


def test_templates_and_unknown_functions_are_refused() -> None:
    with pytest.raises(UsageError, match="'matmul' is a template"):
        auto_scheduler.SearchTask(func=lw.ops.matmul, args=(16, 16, 16), target="llvm")
    with pytest.raises(TaskError, match="no template"):
        auto_scheduler.SearchTask(func=lambda n: n, args=(16,), target="llvm")


def test_facts_of_the_hardware_are_part_of_the_target() -> None:
    task = rows(hardware_params=auto_scheduler.HardwareParams(num_cores=1))
    assert task.target.num_threads == task.automatic_task.target.num_threads == 1
    hosted = auto_scheduler.SearchTask(
        func=scaled_rows, args=(64, 48), target="llvm", target_host="llvm"
    )
    assert hosted.target_host == lw.Target("llvm")


def test_inputs_that_are_given_are_those_that_are_measured() -> None:
    y = np.arange(64, dtype="float32")
    task = rows(task_inputs={"Y": y})
    x, given = task.automatic_task.make_inputs()
    assert np.asarray(x).shape == (64, 48)
    np.testing.assert_array_equal(given, y)
    assert task.automatic_task.key == rows().automatic_task.key
    with pytest.raises(UsageError, match=r"no input 'W'"):
        rows(task_inputs={"W": y})
    with pytest.raises(UsageError, match=r"float64\[64\]; the input is float32\[64\]"):
        rows(task_inputs={"Y": y.astype("float64")})


# -- searching ------------------------------------------------------------------------------------


def test_trials_are_those_beyond_the_log(log: Path, tmp_path: Path) -> None:
    assert len(trials(log)) == 4
    own = tmp_path / "own.json"
    own.write_bytes(log.read_bytes())
    summary = rows().tune(options(2, own))
    assert summary is not None
    assert (summary.measured, len(trials(own))) == (2, 6)
    assert len({str(r.config) for r in trials(own)}) == 6


def test_without_trials_nothing_is_measured(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    assert rows().tune(options(0, own)) is None
    assert not own.exists()


def test_another_log_is_gone_on_from(log: Path, tmp_path: Path) -> None:
    before = {str(r.config) for r in trials(log)}
    for own in (tmp_path / "own.json", None):
        begin = [auto_scheduler.PreloadMeasuredStates(str(log))]
        policy = auto_scheduler.SketchPolicy(rows(), init_search_callbacks=begin)
        summary = policy.search(options(2, own))
        assert summary is not None
        assert summary.measured == 2
        if own is None:
            assert policy.tuner.journal is not None
            kept = {str(t.config.values) for t in policy.tuner.journal.trials}
        else:
            kept = {str(r.config) for r in trials(own)}
        assert before < kept
        assert len(kept) >= 6
    with pytest.raises(RecordError):
        auto_scheduler.PreloadMeasuredStates(str(tmp_path / "nothing.json"))


def test_callbacks_of_ansors_form_get_states() -> None:
    heard: list[tuple[object, str, list[Any], Any]] = []

    class Listens:
        def callback(self, policy: object, inputs: list[Any], results: Any) -> None:
            item = inputs[0]
            heard.append((policy, item.task.workload_key, item.state.transform_steps, results))

    task = rows()
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel())
    policy.search(options(2, None, Listens()))
    assert [one[:2] for one in heard] == [(policy, task.workload_key)]
    steps, results = heard[0][2:]
    assert steps
    assert results[0].costs


def test_the_model_chooses_the_tuner_and_parameters_its_options() -> None:
    task = rows()
    assert auto_scheduler.SketchPolicy(task).tuner.name == "random"
    params = {"eps_greedy": 0.25, "evolutionary_search_population": 64, "max_vectorize_size": 16}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.XGBModel(), params, seed=3)
    assert (policy.tuner.name, policy.tuner.seed) == ("xgb", 3)
    assert policy.tuner.options["epsilon"] == 0.25
    assert "population=64" in policy.tuner.options["optimizer"]
    for wrong, said in (
        ({"eps_gredy": 0.1}, "did you mean 'eps_greedy'"),
        ({"max_vectorize_size": 8}, "loopwright.space_rule"),
    ):
        with pytest.raises(UsageError, match=said):
            auto_scheduler.SketchPolicy(task, params=wrong)
    with pytest.raises(UsageError, match="XGBModel"):
        auto_scheduler.SketchPolicy(task, object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="PreloadMeasuredStates"):
        auto_scheduler.SketchPolicy(task, init_search_callbacks=[object()])  # type: ignore[list-item]


def test_a_policy_of_another_task_is_refused() -> None:
    with pytest.raises(UsageError, match="make one of"):
        rows().tune(options(2), auto_scheduler.SketchPolicy(rows(32)))


def test_the_empty_policy_measures_the_program_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    task = rows()
    summary = task.tune(options(4, own), auto_scheduler.EmptyPolicy(task))
    assert summary is not None
    assert summary.measured == 1
    assert trials(own)[0].trace == []
    assert "auto_scheduler/empty" not in lw.space.registry.RULES
    schedule, _ = task.apply_best(str(own))
    assert schedule.trace == ()


def test_a_best_schedule_without_a_log_is_right() -> None:
    task = auto_scheduler.SearchTask(func=product, args=(24,), target="llvm")
    for trials_ in (0, 2):
        schedule, args = auto_scheduler.auto_schedule(task, tuning_options=options(trials_))
        a, b = np.random.default_rng(0).random((2, 24, 24), "float32")
        c = np.empty((24, 24), "float32")
        lw.build(schedule, args, "llvm")(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


# -- sketches and populations ---------------------------------------------------------------------


def test_a_sketch_is_a_structure(capsys: pytest.CaptureFixture[str]) -> None:
    task = auto_scheduler.SearchTask(func=product, args=(32,), target="llvm")
    policy = auto_scheduler.SketchPolicy(task)
    sketches = policy.generate_sketches(print_for_debug=True)
    assert len(sketches) == len(policy.structures) > 1
    shown = capsys.readouterr().out
    assert all(str(structure) in shown for structure in policy.structures)
    names = [state.config["structure"].val for state in sketches if state.config]
    assert names == [structure.name for structure in policy.structures]


def test_evolution_finds_what_the_model_likes() -> None:
    task = auto_scheduler.SearchTask(func=product, args=(64,), target="llvm")
    model = auto_scheduler.XGBModel()
    few = {"sample_init_min_population": 20, "evolutionary_search_population": 64}
    policy = auto_scheduler.SketchPolicy(task, model, few, seed=1)
    initial = policy.sample_initial_population()
    assert len({state.config for state in initial}) == 20
    bred = policy.evolutionary_search(initial, 8)
    scores = model.predict(task, bred)
    assert list(scores) == sorted(scores, reverse=True)
    assert scores[0] >= model.predict(task, initial).max()
    again = auto_scheduler.SketchPolicy(task, model, few, seed=1).evolutionary_search(initial, 8)
    assert [state.config for state in again] == [state.config for state in bred]
    with pytest.raises(UsageError, match="no point of a structure"):
        model.predict(task, [task.compute_dag.get_init_state()])


def test_a_model_learns_what_it_is_told(tmp_path: Path) -> None:
    """Times that say the contrary of the analytical model turn its order around."""
    task = rows(256)
    policy = auto_scheduler.SketchPolicy(task, seed=2)
    union = policy.automatic_task.config_space
    states = policy.sample_initial_population()
    states = [s for s in states if union.place_of(s.config)[0] == 0]
    untold = auto_scheduler.XGBModel().predict(task, states)
    assert len(states) >= 12
    assert untold.std() > 0
    inputs = [auto_scheduler.MeasureInput(task, state) for state in states]
    apart = (untold - untold.mean()) / untold.std()
    told = [auto_scheduler.MeasureResult([2.0**score * 1e-3]) for score in apart]
    path = str(tmp_path / "told.json")
    auto_scheduler.save_records(path, inputs, told)
    model = auto_scheduler.XGBModel(model_file=str(tmp_path / "model.json"))
    model.update_from_file(path)
    assert np.corrcoef(model.predict(task, states), untold)[0, 1] < -0.5
    kept = auto_scheduler.XGBModel(model_file=str(tmp_path / "model.json"))
    np.testing.assert_array_equal(kept.predict(task, states), model.predict(task, states))
    with pytest.raises(UsageError, match="inputs of a log"):
        model.update(inputs, told)


# -- rules of one's own ---------------------------------------------------------------------------


def custom(answer: int, made: Any = None) -> auto_scheduler.PreloadCustomSketchRule:
    """A rule for the last stage that splits its columns."""

    def condition(policy: object, state: auto_scheduler.State, stage: int) -> int:
        last = stage == len(state.stages) - 1
        return answer if last else auto_scheduler.PreloadCustomSketchRule.PASS

    def apply(policy: object, state: auto_scheduler.State, stage: int) -> list[list[Any]]:
        new = state.copy()
        _, _, inner = new.split(stage, 1, [None, None])
        new.vectorize(stage, inner)
        other = new.copy()
        other.parallel(stage, 0)
        return [[new.state_object, -1], [other, -1]]

    return auto_scheduler.PreloadCustomSketchRule(condition, made or apply, "test/columns")


def test_sketches_of_ones_own_are_structures_with_knobs() -> None:
    rule = custom(auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST)
    policy = auto_scheduler.SketchPolicy(rows(), init_search_callbacks=[rule])
    one, other = policy.structures
    assert (one.name, other.name) == ("test/columns", "test/columns 1")
    # 48 = 2^4 * 3 in three ordered factors: C(4+2, 2) * C(1+2, 2).
    assert len(one.config_space) == len(other.config_space) == 15 * 3
    x, y = np.ones((64, 48), "float32"), np.arange(64, dtype="float32")
    for state in policy.sample_initial_population()[:2]:
        z = np.empty((64, 48), "float32")
        lw.build(*policy.task.compute_dag.apply_steps_from_state(state), "llvm")(x, y, z)
        np.testing.assert_allclose(z, np.exp(x) * y[:, None], rtol=1e-5)


def test_a_rule_as_tvm_writes_them() -> None:
    """It makes states of the state and of the policy's expression, and names splits by number."""
    Rule, State = auto_scheduler.PreloadCustomSketchRule, auto_scheduler.loop_state.State

    def condition(policy: Any, state: Any, stage: int) -> int:
        state = State(state, policy.search_task.compute_dag)
        return Rule.APPLY_AND_SKIP_REST if state.stages[stage].op.name == "Z" else Rule.PASS

    def apply(policy: Any, state: Any, stage: int) -> list[list[Any]]:
        s0 = State(state, policy.search_task.compute_dag)
        (consumer,) = [one.op for one in s0.stages if one.op.name == "W"]
        producer = s0.stages[stage].op
        i, j, k = s0[producer].iters
        m, n = s0[consumer].iters
        i0, i1, i2 = s0.split(producer, i, [None, None])
        m0, m1 = s0.follow_split(consumer, m, len(s0.transform_steps) - 1, 1)
        s0.reorder(producer, [i0, i1, k, j, i2])
        s0.reorder(consumer, [m0, m1, n])
        s0.vectorize(consumer, n)
        s0.compute_at(producer, consumer, m0)
        return [[s0.state_object, stage - 1]]

    X = te.placeholder((32, 48), name="X")
    k = te.reduce_axis((0, 48), name="k")
    Z = te.compute((32, 48), lambda i, j: te.sum(X[i, k] * X[j % 32, k], axis=k), name="Z")
    W = te.compute((32, 48), lambda i, j: Z[i, j] + 1, name="W")
    task = auto_scheduler.SearchTask(
        compute_dag=auto_scheduler.ComputeDAG([X, W]),
        target="llvm",
        task_inputs={"X": np.ones((32, 48), "float32")},
    )
    assert task.task_input_names == ["X"]
    rule = Rule(condition, apply, "test/follows")
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.RandomModel(), init_search_callbacks=[rule]
    )
    assert policy.search_task is task
    (structure,) = policy.structures
    assert len(structure.config_space) == 21  # 2^5 in three ordered factors: C(5+2, 2)
    x = np.random.default_rng(0).random((32, 48), "float32")
    for state in policy.sample_initial_population()[:2]:
        w = np.empty((32, 48), "float32")
        lw.build(*task.compute_dag.apply_steps_from_state(state), "llvm")(x, w)
        np.testing.assert_allclose(w, (x @ x.T)[:, np.arange(48) % 32] + 1, rtol=1e-5)


def test_rules_that_are_entered_while_sketches_are_asked_for_stay() -> None:
    before = dict(RULES)

    def condition(policy: object, state: auto_scheduler.State, stage: int) -> int:
        RULES.setdefault("test/meanwhile", SpaceRule("test/meanwhile", lambda outputs, args: None))
        return auto_scheduler.PreloadCustomSketchRule.PASS

    rule = auto_scheduler.PreloadCustomSketchRule(condition, lambda *_: [])
    try:
        assert auto_scheduler.SketchPolicy(rows(), init_search_callbacks=[rule]).structures
        assert set(RULES) == {*before, "test/meanwhile"}
    finally:
        RULES.pop("test/meanwhile", None)


def test_sketches_of_ones_own_stand_beside_those_of_rules() -> None:
    beside = custom(auto_scheduler.PreloadCustomSketchRule.APPLY)
    task = rows()
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[beside])
    assert len(policy.structures) == len(task.automatic_task.structures) + 2
    passing = custom(auto_scheduler.PreloadCustomSketchRule.PASS)
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[passing])
    assert len(policy.structures) == len(task.automatic_task.structures)
    assert "auto_scheduler/test/columns" not in lw.space.registry.RULES


def test_what_knobs_choose_cannot_be_looked_at() -> None:
    def wrong(verb: str) -> Any:
        def apply(policy: object, state: auto_scheduler.State, stage: int) -> list[list[Any]]:
            _, inner = state.split(stage, 1, [None])
            getattr(state, verb)(stage, inner, [None] if verb == "split" else 16)
            return [[state, -1]]

        return apply

    rule = custom(auto_scheduler.PreloadCustomSketchRule.APPLY, wrong("split"))
    with pytest.raises(SpaceError, match="an extent that a knob chooses"):
        auto_scheduler.SketchPolicy(rows(), init_search_callbacks=[rule]).generate_sketches()
    rule = custom(auto_scheduler.PreloadCustomSketchRule.APPLY, wrong("unroll"))
    with pytest.raises(SpaceError, match="leave max_unroll out"):
        auto_scheduler.SketchPolicy(rows(), init_search_callbacks=[rule]).generate_sketches()


def test_what_is_no_sketch_is_refused() -> None:
    def apply(policy: object, state: auto_scheduler.State, stage: int) -> list[list[Any]]:
        return [[policy.task.compute_dag.get_init_state(), -1]]  # type: ignore[attr-defined]

    rule = custom(auto_scheduler.PreloadCustomSketchRule.APPLY, apply)
    policy = auto_scheduler.SketchPolicy(rows(), init_search_callbacks=[rule])
    with pytest.raises(SpaceError, match="copy of the state"):
        policy.generate_sketches()


# -- several tasks --------------------------------------------------------------------------------


def test_several_tasks_share_the_trials(tmp_path: Path) -> None:
    rounds: list[int] = []

    class Counts(TaskSchedulerCallback):
        def post_tune(self, task_scheduler: Any, task_id: int) -> None:
            rounds.append(task_id)

    class Listens:
        keys: ClassVar[set[str]] = set()

        def callback(self, policy: Any, inputs: list[Any], results: Any) -> None:
            assert {item.task for item in inputs} == {policy.task}
            assert {result.error_msg for result in results} == {""}
            self.keys.add(policy.task.workload_key)

    own, latency = tmp_path / "tasks.json", tmp_path / "latency.tsv"
    tasks = [rows(32), rows(40)]
    callbacks = [Counts(), LogEstimatedLatency(str(latency))]
    scheduler = auto_scheduler.TaskScheduler(tasks, [1.0, 3.0], callbacks=callbacks)
    summary = scheduler.tune(options(4, own, Listens()), search_policy="sketch.random")
    assert summary.measured == 4
    assert set(rounds) == {0, 1}
    assert Listens.keys == {task.workload_key for task in tasks}
    assert scheduler.task_cts == [rounds.count(0), rounds.count(1)]
    first, second = scheduler.best_costs
    assert scheduler.cur_score == pytest.approx(first + 3 * second)
    lines = latency.read_text().splitlines()
    assert lines[0].split("\t")[2] == "Trials"
    assert lines[-1].split("\t")[2] == "4"

    again = tmp_path / "again.json"
    scheduler = auto_scheduler.TaskScheduler(tasks, load_log_file=str(own), callbacks=[])
    summary = scheduler.tune(options(2, again))
    assert (summary.from_log, summary.measured) == (4, 2)


def test_schedulers_are_checked() -> None:
    with pytest.raises(UsageError, match="no tasks"):
        auto_scheduler.TaskScheduler([])
    with pytest.raises(UsageError, match="load_log_file"):
        auto_scheduler.TaskScheduler([rows()], load_model_file="model")
    scheduler = auto_scheduler.TaskScheduler([rows()], callbacks=[])
    with pytest.raises(UsageError, match=r"sketch\.xgb"):
        scheduler.tune(options(2), search_policy="beam")
    with pytest.raises(UsageError, match="2 policies for 1 tasks"):
        scheduler.tune(options(2), search_policy=[auto_scheduler.EmptyPolicy(rows())] * 2)


# -- logs -----------------------------------------------------------------------------------------


def test_the_best_of_a_log_is_applied_printed_and_found(log: Path) -> None:
    task = rows()
    item, _ = auto_scheduler.load_best_record(str(log), task.workload_key, task.target)
    assert item is not None
    best = lw.records.best(lw.records.load(log))
    assert item.record == best
    schedule, args = task.apply_best(str(log))
    assert schedule.trace_json() == item.state.transform_steps == best.trace
    assert task.print_best(str(log)) == schedule.as_python()
    assert "define" in task.print_best(str(log), print_mode="cuda")
    x, y = np.ones((64, 48), "float32"), np.arange(64, dtype="float32")
    z = np.empty((64, 48), "float32")
    lw.build(schedule, args, task.target)(x, y, z)
    np.testing.assert_allclose(z, np.exp(x) * y[:, None], rtol=1e-5)
    with pytest.raises(UsageError, match="print_mode"):
        task.print_best(str(log), print_mode="source")


def test_other_workloads_and_targets_have_no_best(log: Path) -> None:
    find = auto_scheduler.load_best_record
    assert find(str(log), rows(32).workload_key) == (None, None)
    assert find(str(log), target="c") == (None, None)
    hash_key = rows().compute_dag.hash_key()
    assert find(str(log), f'["{hash_key}"]')[0] is not None
    assert find(str(log), '["test/scaled_rows", 64, 48]')[0] is not None
    assert find(str(log), '["test/unregistered", 64]') == (None, None)
    with pytest.raises(RecordError, match="no record to apply"):
        rows(32).apply_best(str(log))


def test_trials_are_read_and_written_again(log: Path, tmp_path: Path) -> None:
    reader = auto_scheduler.RecordReader(str(log))
    pairs = list(reader)
    inputs, results = reader.read_lines()
    assert len(pairs) == len(inputs) == len(results)
    assert len(reader.read_lines(max_lines=2, skip_lines=1)[0]) == 2
    item, result = pairs[0]
    assert item.task.workload_key == rows().workload_key
    dag = item.task.compute_dag
    assert dag.hash_key() == rows().compute_dag.hash_key()
    assert dag.flop_ct == rows().compute_dag.flop_ct
    assert [op.name for op in dag.ops] == ["X", "Y", "Z"]
    assert dag.print_python_code_from_state(item.state).startswith("def schedule(s, X, Y, Z):")
    assert dag.get_init_state().transform_steps == []
    lw.lower(*dag.apply_steps_from_state(item.state))
    assert result.costs == lw.records.load(log).records[0].times
    copy = tmp_path / "copy.json"
    auto_scheduler.save_records(str(copy), inputs, results)
    assert [r.id for r in lw.records.load(copy)] == [i.record.id for i in inputs]
    with pytest.raises(UsageError, match="0 results"):
        auto_scheduler.save_records(str(copy), inputs, [])


def test_states_of_ones_own_are_written_and_applied(tmp_path: Path) -> None:
    task = rows()
    state = task.compute_dag.get_init_state()
    state.vectorize(task.compute_dag.tensors[-1], 1)
    own = str(tmp_path / "own.json")
    item = auto_scheduler.MeasureInput(task, state)
    auto_scheduler.save_records(own, [item], [auto_scheduler.MeasureResult([1e-6])])
    (found, result), *_ = auto_scheduler.load_records(own)
    assert (found.state.transform_steps, result.costs) == (state.transform_steps, (1e-6,))
    schedule, _ = task.apply_best(own)
    assert schedule.trace_json() == state.transform_steps


def test_contexts_apply_records(log: Path) -> None:
    task = rows()
    with auto_scheduler.ApplyHistoryBest(str(log)) as history:
        lw.build(task.compute_dag.tensors, "llvm")
    assert history.report()[0].record is not None
    state = history.query("llvm", task.workload_key)
    assert state is not None
    assert state.transform_steps == task.apply_best(str(log))[0].trace_json()
    assert history.query("llvm", "", dag=rows(32).compute_dag) is None
    pairs = auto_scheduler.load_records(str(log))
    assert auto_scheduler.ApplyHistoryBest(pairs).query("llvm", task.workload_key) is not None
    none = auto_scheduler.ApplyHistoryBest(str(log), n_lines=0)
    assert none.query("llvm", task.workload_key) is None
    none.load(str(log))
    assert none.query("llvm", task.workload_key) is not None
    with pytest.raises(UsageError, match="load_records"):
        auto_scheduler.ApplyHistoryBest([(1, 2)])
    with pytest.raises(UsageError, match="cost_model_file"):
        auto_scheduler.ApplyHistoryBestOrSample(None, cost_model_file="model")
