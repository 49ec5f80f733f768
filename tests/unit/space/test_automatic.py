"""Tasks of tensors: their identity, their records, and what users give by mistake."""

from __future__ import annotations

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import SpaceError, TaskError, TensorError, TuneError, UsageError
from loopwright.records import Checked, Record, environment
from loopwright.task import Template
from loopwright.task.dispatch import schedule_for
from loopwright.task.union import STRUCTURE

TARGET = "llvm -num-threads=1"


def product(n: int, m: int = 16, transposed: bool = False) -> list[te.Tensor]:
    A = te.placeholder((n, m), name="A")
    B = te.placeholder((m, n), name="B")
    k = te.reduce_axis((0, m), name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def product_by_other_names(rows: int) -> te.Tensor:
    X = te.placeholder((rows, 16), name="X")
    Y = te.placeholder((16, rows), name="Y")
    r = te.reduce_axis((0, 16), name="r")
    return te.compute((rows, rows), lambda a, b: te.sum(X[a, r] * Y[r, b], axis=r), name="Z")


def record_of(task: lw.Task, index: int, seconds: float, **changes: object) -> Record:
    """What measuring a point of a task would have written."""
    config = task.config_space.get(index)
    s, _ = task.instantiate(config)
    fields = {
        "task": task.alias,
        "op": task.name,
        "args": list(task.args),
        "target": task.target.canonical,
        "config": config.values,
        "times": (seconds,),
        "dag": s.dag.hash,
        "trace": s.trace_json(),
        "space": task.config_space.hash_of(config),
        "env": environment(),
        "ts": time.time(),
        "checked": Checked.YES,
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


# ---------------------------------------------------------------- identity


def test_what_is_computed_is_the_identity_and_names_are_not() -> None:
    first = lw.create_task(product, (16,), TARGET)
    other = lw.create_task(product_by_other_names, (16,), TARGET)
    tensors = lw.create_task(product(16), target=TARGET)
    assert first.key == other.key == tensors.key
    assert (first.name, other.name) == ("user/product", "user/product_by_other_names")
    assert str(tensors) == "expression of C: float32[16, 16]"
    assert first.key != lw.create_task(product, (32,), TARGET).key
    assert first.key != lw.create_task(product, (16,), "c -num-threads=1").key
    assert [t.name for t in other.program.args] == ["X", "Y", "Z"]


def test_records_of_a_template_serve_the_expression_and_the_other_way_round() -> None:
    template = lw.create_task("matmul", (16, 16, 16), TARGET)
    automatic = lw.create_task(product, (16,), TARGET)
    assert template.dag_hash == automatic.dag_hash
    assert template.key == automatic.key == automatic.alias != template.alias
    for made, asked in [(template, automatic), (automatic, template)]:
        (index,) = made.config_space.sample_ints(1, 5)
        record = record_of(made, index, 1e-6)
        history = lw.apply_history_best([record])
        s, args = history.apply(asked)
        assert s.trace_json() == record.trace
        assert [t.name for t in args] == ["A", "B", "C"]
        (choice,) = history.report()
        assert choice.record is record
        assert "its trace was replayed" in str(history.report())
    # A verdict is about the default of the task that was measured.
    verdict = {"outcome": "tie", "gain": 0.0, "margin": 0.0, "rounds": 3}
    tie = record_of(template, index % len(template.config_space), 1e-6, verdict=verdict)
    assert "default configuration" not in str(lw.apply_history_best([tie]).explain(automatic))


def test_build_takes_tensors_and_the_best_record_of_their_expression(caplog) -> None:
    task = lw.create_task(product, (16,), TARGET)
    a, b = (np.random.default_rng(n).random((16, 16), "float32") for n in (0, 1))
    c = np.empty((16, 16), "float32")
    A, B, C = product(16)
    for f in (lw.build([A, B, C], TARGET), lw.build(C, target=TARGET)):
        f(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert not caplog.records  # the default is what was asked for
    (index,) = task.config_space.sample_ints(1, 9)
    with lw.apply_history_best([record_of(task, index, 1e-6)]) as history:
        lw.build([A, B, C], TARGET)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert history.report()[0].record is not None
    with lw.apply_history_best([record_of(lw.create_task(product, (32,), TARGET), 0, 1e-6)]):
        lw.build([A, B, C], TARGET)
    assert "using the default configuration, not a tuned one" in caplog.text
    with pytest.raises(UsageError, match="tensors are the arguments themselves"):
        lw.build([A, B, C], [A, B, C], TARGET)


def test_build_takes_a_task_and_its_best_record() -> None:
    task = lw.create_task(product, (16,), TARGET)
    a, b = (np.random.default_rng(n).random((16, 16), "float32") for n in (0, 1))
    c = np.empty((16, 16), "float32")
    (index,) = task.config_space.sample_ints(1, 9)
    with lw.apply_history_best([record_of(task, index, 1e-6)]) as history, lw.Target("c"):
        for f in (lw.build(task), lw.build(task, TARGET)):
            assert f.artifact.kind == "llvm-object"
            f(a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert history.report()[0].record is not None
    template = lw.create_task("transpose", (8, 8), TARGET)
    lw.build(template)(a[:8, :8].copy(), out := np.empty((8, 8), "float32"))
    np.testing.assert_array_equal(out, a[:8, :8].T)


def test_a_record_of_a_structure_that_is_gone_is_replayed() -> None:
    @lw.space_rule("test/halves", stops=True)
    def halves(outputs, args):
        sketch = lw.space.Sketch(outputs, args)
        outer, _ = sketch.s[outputs[0]].split(outputs[0].op.axis[0], nparts=sketch.number("n", [2]))
        sketch.s[outputs[0]].parallel(outer)
        return sketch.finished("halves")

    try:
        task = lw.create_task(product, (16,), TARGET)
        assert task.config_space.names == ("halves",)
        record = record_of(task, 0, 1e-6)
    finally:
        lw.space.remove_rule("test/halves")
    now = lw.create_task(product, (16,), TARGET)
    assert "halves" not in now.config_space.names
    assert now.key == record.task
    s, _ = lw.apply_history_best([record]).apply(now)
    assert s.trace_json() == record.trace
    space = now.config_space
    conditions = lw.records.Conditions(
        *(now.key, space.space_hashes, record.build, record.hardware, record.threads)
    )
    assert lw.records.reuse_of(record, conditions) is lw.records.Reuse.TRACE_ONLY
    kept = replace(record, space=space.space_hashes[0])
    assert lw.records.reuse_of(kept, conditions) is lw.records.Reuse.AS_TRIAL
    (text,) = lw.records.differences(record, conditions)
    assert text.startswith("space differs")


def test_workloads_call_each_other() -> None:
    @lw.workload("test/automatic/product")
    def inner(n: int) -> list[te.Tensor]:
        return product(n)

    @lw.workload("test/automatic/shifted")
    def outer(n: int) -> list[te.Tensor]:
        A, B, C = inner(n)
        return [A, B, te.compute((n, n), lambda i, j: C[i, j] + 1, name="D")]

    task = lw.create_task("test/automatic/shifted", (16,), TARGET)
    assert [t.name for t in task.program.args] == ["A", "B", "D"]
    with lw.Target(TARGET):
        s, _ = outer(16)  # called by a user it gives a schedule
    assert s.dag.hash == task.dag_hash
    assert task.of((32,)).args == (32,)


def test_the_default_is_the_first_choice_of_the_model_and_the_best_is_not_measured() -> None:
    task = lw.create_task(product, (64,), TARGET)
    (best, speed), *others = task.ranking
    assert task.config_space.default_index == best
    assert all(speed >= other for _, other in others)
    places = {task.config_space.place(index)[0] for index, _ in task.ranking}
    assert places == set(range(len(task.structures)))
    part, local = task.part(task.config_space.get(best))
    assert part.instantiate(local)[0].trace_json() == task.instantiate(best)[0].trace_json()


def test_a_draft_measures_nothing_and_a_search_comes_back_with_its_best(tmp_path, capfd) -> None:
    drafted, _ = lw.auto_schedule(product(16), TARGET, effort="draft")
    task = lw.create_task(product, (16,), TARGET)
    default, _ = task.instantiate(task.config_space.default_index)
    assert drafted.trace_json() == default.trace_json()
    option = lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1))
    log = tmp_path / "log.jsonl"
    s, args = lw.auto_schedule(task, n_trial=4, log=log, measure_option=option)
    lw.build(s, args, TARGET)
    assert {r.task for r in lw.records.load(str(log)).records} == {task.alias}
    again, _ = lw.auto_schedule(
        task, effort="draft", log=log
    )  # nothing is measured, the log counts
    assert again.trace_json() == s.trace_json()
    assert "stopped" not in re.sub(r"\(.*\)", "", capfd.readouterr().err)  # the result in a line
    options = {"n_trial": 2, "tuner": "random", "measure_option": option}
    best, _ = lw.auto_schedule(task, **options, verbose=True)
    assert "\ntrials:  2 valid" in capfd.readouterr().err
    assert best.dag.hash == task.dag_hash
    with pytest.raises(UsageError, match=r"unknown effort 'nigth'.*did you mean 'night'"):
        lw.auto_schedule(task, effort="nigth")


@pytest.mark.parametrize("effort", ["draft", "quick"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"timeout": -1}, "timeout -1 is not a duration"),
        ({"timeout": 0}, "timeout 0 is not a duration"),
        ({"timeout": "soon"}, "timeout 'soon' is not a duration"),
        ({"timeout": [1]}, r"timeout \[1\] is not a duration"),
        ({"timeout": True}, "timeout True is not a duration"),
        ({"n_trial": -1}, "n_trial must be an integer above zero, got -1"),
        ({"n_trial": False}, "n_trial must be an integer above zero, got False"),
        ({"n_trial": 0.0}, r"n_trial must be an integer above zero, got 0\.0"),
        ({"tuner": "xbg"}, "unknown tuner 'xbg'"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"callbacks": ["log"]}, "a callback is called with"),
        ({"measure_option": 3}, "measure_option is a int"),
    ],
)
def test_what_a_search_refuses_a_draft_refuses(effort, wrong, text) -> None:
    with pytest.raises((UsageError, TuneError), match=text):
        lw.auto_schedule(product(16), TARGET, effort=effort, **wrong)


# ---------------------------------------------------------------- by mistake


def test_functions_that_return_something_else_are_refused() -> None:
    A, B, C = product(8)
    task = lw.create_task(product, (8,), TARGET)

    def fails() -> None:
        raise KeyError("no such thing")

    cases = [
        (lambda: te.create_schedule(C.op), "expected tensors"),
        (lambda: (te.create_schedule(C.op), [A, B, C]), "returns a schedule; decorate it with"),
        (lambda: None, "expected tensors"),
        (lambda: 5, "expected tensors"),
        (lambda: [], "nothing is computed: nothing given"),
        (lambda: [A, B], "nothing is computed: A, B given"),
        (lambda: [A, C], "the expression reads B, not among the tensors given"),
        (lambda: [A, B, C, C], "'C' is given twice"),
        (lambda: [A, B, "C"], "expected tensors"),
        (lambda: task.instantiate(task.fallback())[1], "'C' belongs to a schedule; build"),
        (fails, "KeyError: 'no such thing'"),
    ]
    for function, text in cases:
        with pytest.raises((TaskError, TensorError), match=text):
            lw.create_task(function, (), TARGET)
    with pytest.raises(TaskError, match="takes"):
        lw.create_task(product, (), TARGET)
    with pytest.raises(TaskError, match="tensors take no arguments"):
        lw.create_task([A, B, C], (8,), TARGET)
    with pytest.raises(TaskError, match="expected a name, a function or tensors, got a int"):
        lw.create_task(7, (), TARGET)


def test_whatever_is_called_may_be_a_workload() -> None:
    class Product:
        def __call__(self, n: int) -> list[te.Tensor]:
            return product(n)

    key = lw.create_task(product, (16,), TARGET).key
    for function, args in ((partial(product, 16), ()), (Product(), (16,))):
        assert lw.create_task(function, args, TARGET).key == key
    assert str(lw.create_task(partial(product, 16), (), TARGET)).startswith("user/product(")
    with pytest.raises(TaskError, match=r"test_automatic.py:\d+: ZeroDivisionError"):
        lw.create_task(partial(lambda n: product(1 // n), 0), (), TARGET)
    with pytest.raises((TaskError, TensorError), match="expected tensors"):
        lw.create_task(abs, (16,), TARGET)


def test_functions_that_never_end_are_ended(monkeypatch) -> None:
    def endless() -> None:
        while True:
            with contextlib.suppress(Exception):
                pass

    monkeypatch.setattr("loopwright.space.tasks.TEMPLATE_S", 0.2)
    monkeypatch.setattr("loopwright.task.task.TEMPLATE_S", 0.2)
    at = r"user/endless\(\) \(test_automatic.py:\d+\)"
    with pytest.raises(TaskError, match=rf"{at} took longer than 0\.2 s to return its tensors"):
        lw.create_task(endless, (), TARGET)
    with ThreadPoolExecutor() as pool:  # threads have no timer of the system
        failed = pool.submit(lw.create_task, endless, (), TARGET).exception()
    assert isinstance(failed, TaskError)
    assert "took longer than 0.2 s" in str(failed)
    stuck = lw.workload("test/automatic/stuck")(endless)
    with pytest.raises(TaskError, match=r"test/automatic/stuck\(\) .* took longer than"):
        lw.build(stuck(), target=TARGET)
    template = Template("test/automatic/template", endless, schedule_for)
    with pytest.raises(TaskError, match=r"the template test/automatic/template\(\) took longer"):
        lw.Task(template, (), TARGET)


def test_sizes_that_are_variables_are_refused() -> None:
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    with pytest.raises(TensorError, match=r"the shape of 'B' has variables.*give ints"):
        lw.create_task([A, B], target=TARGET)


# ---------------------------------------------------------------- rules


@pytest.fixture
def rule():
    """Registers rules of a test, and forgets them."""
    names = []

    def register(function, **options):
        name = f"test/{function.__name__}{len(names)}"
        lw.space_rule(name, **options)(function)
        names.append(name)

    yield register
    for name in names:
        lw.space.remove_rule(name)


def named(name):
    def function(outputs, args):
        return lw.space.Sketch(outputs, args).finished(name)

    return function


def names_of(args: list[te.Tensor]) -> list[str]:
    with lw.Target(TARGET):
        return [s.name for s in lw.space.structures(args[-1], args)]


def test_rules_are_asked_by_priority_and_may_stop(rule) -> None:
    own = names_of(product(8))
    rule(named("later"), priority=5)
    rule(named("first"), priority=20)
    rule(named("behind"), priority=-1)
    assert names_of(product(8)) == ["first", "later", *own, "behind"]
    rule(named("alone"), priority=30, stops=True)
    assert names_of(product(8)) == ["alone"]


def test_a_rule_that_knows_nothing_stops_nothing(rule) -> None:
    own = names_of(product(8))
    rule(lambda outputs, args: None, priority=30, stops=True)
    rule(lambda outputs, args: [], priority=30, stops=True)
    rule(named("for devices"), targets=("gpu",))
    assert names_of(product(8)) == own


def test_a_rule_that_fails_is_named_with_its_place(rule) -> None:
    def raises(outputs, args):
        raise ZeroDivisionError("by zero")

    rule(raises)
    match = r"'test/raises0' \(test_automatic.py:\d+\) failed for 'C': ZeroDivisionError: by zero"
    with pytest.raises(SpaceError, match=match):
        names_of(product(8))


def test_a_rule_that_never_ends_is_ended(rule, monkeypatch) -> None:
    def endless(outputs, args):
        while True:
            pass

    monkeypatch.setattr("loopwright.space.derivation.TEMPLATE_S", 0.2)
    rule(endless)
    with pytest.raises(SpaceError, match=r"0\.2"):
        names_of(product(8))


def test_a_rule_that_makes_something_else_is_refused(rule) -> None:
    other = product(4)
    returns = [
        (lambda outputs, args: 7, "returned 7; return structures, or None"),
        (lambda outputs, args: ["halves"], "returned 'halves'; return structures, or None"),
        (
            lambda outputs, args: lw.space.Sketch(other[2:], other).finished("other"),
            "made a structure of another expression",
        ),
        (
            lambda outputs, args: lw.space.Sketch(outputs, args[::-1]).finished("turned"),
            "of another expression or other arguments",
        ),
    ]
    for function, text in returns:
        lw.space_rule("test/odd")(function)
        try:
            with pytest.raises(SpaceError, match=text):
                names_of(product(8))
        finally:
            lw.space.remove_rule("test/odd")


def test_two_structures_of_one_name_are_refused(rule) -> None:
    rule(named("same"))
    rule(named("same"))
    with pytest.raises(SpaceError, match="two structures are called 'same'; rename one"):
        lw.create_task(product, (8,), TARGET)


def test_names_of_rules_are_kept_apart(rule) -> None:
    lw.space_rule("test/once")(named("a"))
    try:
        with pytest.raises(SpaceError, match=r"defined at test_automatic.py:\d+ already; rename"):
            lw.space_rule("test/once")(lambda outputs, args: None)
    finally:
        lw.space.remove_rule("test/once")
    with pytest.raises(SpaceError, match="there is no rule 'test/once'"):
        lw.space.remove_rule("test/once")


def test_a_configuration_says_in_which_structure_it_is() -> None:
    task = lw.create_task(product, (16,), TARGET)
    config = task.config(task.config_space.sample_ints(1, 0)[0])
    assert config[STRUCTURE].val in task.config_space.names
    assert task.config(config.values) == config
    assert task.fallback().is_fallback
    assert "structures" in str(task.config_space)
