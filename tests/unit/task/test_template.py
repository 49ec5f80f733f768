"""Registering and calling templates; what they accept as arguments."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import TaskError, UsageError
from loopwright.task import TASKS, Template, get_config, lookup, template
from loopwright.task.dispatch import task_of


@pytest.fixture
def matmul(fakes):
    @template("demo/matmul")
    def matmul(m, n, dtype="float32"):
        cfg = get_config()
        cfg.define_split("i", m)
        s = fakes.Schedule()
        cfg["i"].apply(s, "C", "i")
        return s, ["A", "B", "C"]

    return matmul


def test_registering(matmul, fakes):
    assert isinstance(matmul, Template)
    assert TASKS["demo/matmul"] is matmul
    assert lookup("demo/matmul") is lookup(matmul) is lookup(matmul.function) is matmul
    assert matmul.__name__ == "matmul"
    assert "test_template.py:" in repr(matmul)

    @template
    def bare(n):
        return fakes.Schedule(), []

    assert bare.name == "user/bare"
    assert TASKS["user/bare"] is lookup("bare") is lookup("user/bare") is bare


def test_a_template_without_a_name_takes_none_of_an_operator(fakes):
    """A script's own function may be called as an operator of loopwright is."""
    from loopwright import autotvm, ops

    @template
    def softmax(n):
        return fakes.Schedule(), []

    try:
        assert lookup("softmax") is ops.softmax
        assert autotvm.task.create("softmax", (3,), "llvm").template is softmax
        assert autotvm.task.create(softmax, (3,), "llvm").template is softmax
    finally:
        del TASKS["user/softmax"]


def test_optional_parts():
    def reference(a):
        return a

    @template("x", reference=reference, default={"k": 2})
    def x(n):
        return None

    assert x.reference is reference
    assert x.default_values((1,)) == {"k": 2}
    x.default = lambda n: {"k": n}
    assert x.default_values((7,)) == {"k": 7}
    assert x.make_inputs is None


def test_an_unknown_name_gives_all_and_the_nearest(matmul):
    with pytest.raises(UsageError, match="did you mean 'demo/matmul'") as caught:
        lookup("demo/matmull")
    assert "there are:" in str(caught.value)
    with pytest.raises(TaskError, match="decorate it"):
        lookup(lambda: None)


def test_one_name_is_one_function_but_may_be_defined_again(fakes):
    def make(n):
        return n

    first = template("again")(make)
    second = template("again")(make)
    assert TASKS["again"] is second is not first
    with pytest.raises(TaskError, match="is defined at"):
        template("again")(lambda n: n)


def test_arguments_are_normalised(matmul):
    assert matmul.bind((4, 8)) == (4, 8, "float32")
    assert matmul.bind((4,), {"n": 8, "dtype": "int8"}) == (4, 8, "int8")
    bound = matmul.bind((np.int64(4), [1, (2, np.float32(0.5))]))
    assert bound == (4, (1, (2, 0.5)), "float32")
    assert type(bound[0]) is int
    assert matmul.bind((True, None)) == (True, None, "float32")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((4,), r"takes \(m, n, dtype='float32'\), got \(4\)"),
        ((1, 2, 3, 4), "too many"),
        (({}, 2), "argument 'm' is a dict"),
        ((1, object()), "argument 'n' is a object"),
        ((1, (2, {3})), "argument 'n' is a set"),
        ((float("nan"), 1), "finite"),
        ((np.zeros(3), 1), "argument 'm' is a ndarray"),
    ],
)
def test_arguments_that_no_record_could_hold(matmul, args, words):
    with pytest.raises(TaskError, match=words):
        matmul.bind(args)


def test_keyword_only_parameters_are_refused():
    @template("kw")
    def kw(n, *, flag=True):
        return n

    with pytest.raises(TaskError, match="keyword-only"):
        kw.bind((1,))


def test_messages_leave_types_out():
    @template("typed")
    def typed(n: int, dtype: str = "float32") -> int:
        return n

    with pytest.raises(TaskError, match=r"takes \(n, dtype='float32'\), got \(\): missing"):
        typed.bind(())


def test_get_config_outside_of_a_template():
    with pytest.raises(TaskError, match="inside a template"):
        get_config()


def test_a_direct_call_uses_the_default_and_says_so_once(matmul, default_target, caplog):
    with caplog.at_level(logging.WARNING, logger="loopwright"):
        s, tensors = matmul(64, 8)
        matmul(64, 8)
        matmul(64, n=8, dtype="float32")
    assert s.steps == [["split", "C", "i", 16]]
    assert tensors == ["A", "B", "C"]
    assert [r.message for r in caplog.records] == [
        "demo/matmul(64, 8, 'float32'): using the default configuration, not a tuned one "
        "(no apply_history_best around this call)"
    ]
    with caplog.at_level(logging.WARNING, logger="loopwright"):
        matmul(32, 8)
    assert len(caplog.records) == 2
    with pytest.raises(TaskError):
        get_config()


def test_a_template_may_call_another(matmul, default_target, fakes):
    @template("outer")
    def outer(n):
        get_config().define_knob("k", [1, 2])
        return matmul(n, n)

    s, _ = outer(64)
    assert s.steps == [["split", "C", "i", 16]]
    task = task_of(None, ("outer", 64))
    assert list(task.config_space.knobs) == ["k", "i"]


def test_a_call_that_raises_is_one_line(default_target):
    @template("bad")
    def bad(n):
        raise ValueError("first\nsecond")

    with pytest.raises(TaskError) as caught:
        bad(3)
    text = str(caught.value)
    assert text.startswith("bad(3): test_template.py:")
    assert text.endswith("ValueError: first second")
    assert isinstance(caught.value.__cause__, ValueError)


# ------------------------------------------------------------------ implementations by target


@pytest.fixture
def by_target():
    @template("demo/by_target", default={"n": 2})
    def anywhere(m):
        get_config().define_knob("n", [1, 2])
        return lw.ops.matmul.function(m, m, m)

    @anywhere.register("gpu")
    def on_gpus(m):
        get_config().define_knob("threads", [32, 64])
        return lw.ops.matmul.implementation()(m, m, m, False, False, "float32")

    yield anywhere
    del TASKS["demo/by_target"]


def test_the_target_decides_which_implementation_runs(by_target):
    on_cpu = lw.create_task("demo/by_target", (8,), "llvm")
    assert next(iter(on_cpu.config_space.knobs)) == "n"
    assert on_cpu.config_space.get(on_cpu.config_space.default_index)["n"].val == 2
    for target in ("opencl", "cuda", "llvm -keys=gpu"):
        task = lw.create_task("demo/by_target", (8,), target)
        assert next(iter(task.config_space.knobs)) == "threads"
    assert on_cpu.key != lw.create_task("demo/by_target", (8,), "opencl").key


def test_a_key_has_one_implementation(by_target):
    def another(m):
        return m

    with pytest.raises(TaskError, match=r"'demo/by_target' has an implementation for 'gpu'"):
        by_target.register("gpu")(another)


def test_what_an_implementation_raises_is_said_with_its_line():
    @template("demo/raises")
    def anywhere(m):
        return m

    @anywhere.register("gpu")
    def on_gpus(m):
        raise ValueError("no such thing")

    with pytest.raises(TaskError, match=r"test_template.py:\d+: ValueError: no such thing"):
        lw.create_task(anywhere, (8,), "opencl")
