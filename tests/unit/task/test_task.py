"""Tasks: key, space, FLOP, instantiation, the default configuration."""

from __future__ import annotations

import json
import sys

import pytest

from loopwright.errors import InstantiationError, SpaceError, TaskError
from loopwright.target import Target
from loopwright.task import ConfigSpace, SplitEntity, Task, create_task, get_config, template


@pytest.fixture
def matmul(fakes):
    @template("demo/matmul")
    def matmul(m, n, dtype="float32"):
        assert isinstance(Target.current(), fakes.Target)
        cfg = get_config()
        cfg.define_split("i", m)
        cfg.define_split("j", n)
        cfg.define_knob("mode", ["a", "b", "crash", "refuse", "nothing"])
        cfg.multi_filter(lambda c: c["i"].size[-1] * c["j"].size[-1] <= 512)
        mode = cfg["mode"].val
        if mode == "crash":
            raise KeyError(mode)
        if mode == "refuse":
            cfg.raise_error("refused here")
        if mode == "nothing":
            return None
        s = fakes.Schedule(flop=2 * m * n)
        cfg["i"].apply(s, "C", "i")
        cfg["j"].apply(s, "C", "j")
        return s, ("A", "B", "C")

    return matmul


@pytest.fixture
def task(matmul, fakes):
    return create_task("demo/matmul", (64, 32), fakes.Target())


def test_a_task(task, matmul, fakes):
    assert json.loads(task.key) == {"expression": task.dag_hash, "kind": "llvm"}
    assert json.loads(task.alias) == ["demo/matmul", [64, 32, "float32"], "llvm"]
    assert str(task) == "demo/matmul(64, 32, 'float32')"
    assert task.flop == 2 * 64 * 32
    assert task.config_space.dims == (7, 6, 5)
    assert task.config_space.is_filtered
    assert task.workload == ("demo/matmul", 64, 32, "float32")
    assert create_task(matmul, (64, 32, "float32"), fakes.Target(num_threads=1)).key == task.key
    assert create_task(matmul.function, (64, 32), fakes.Target("c")).key != task.key


def test_instantiate_by_configuration_index_or_values(task):
    config = task.config_space.get(8)
    s, tensors = task.instantiate(config)
    assert s.steps == [["split", "C", "i", 2], ["split", "C", "j", 2]]
    assert tensors == ["A", "B", "C"]
    assert task.instantiate(8)[0].steps == s.steps
    assert task.instantiate(config.values)[0].steps == s.steps
    s, _ = task.instantiate({"i": [-1, 5]})
    assert s.steps[0] == ["split", "C", "i", 5]
    other = create_task("demo/matmul", (128, 32), task.target)
    assert other.instantiate(config)[0].steps == [["split", "C", "i", 2], ["split", "C", "j", 2]]


def test_the_default_runs_the_template_as_it_was_collected(task):
    config = task.config_space.get(task.config_space.default_index)
    assert config.values == {"i": [-1, 16], "j": [-1, 16], "mode": "a"}
    s, _ = task.instantiate(task.fallback())
    assert s.steps == [["split", "C", "i", 16], ["split", "C", "j", 16]]


def test_failures_are_one_line_with_the_place(task):
    with pytest.raises(InstantiationError) as caught:
        task.instantiate({"mode": "crash"})
    text = str(caught.value)
    assert "test_task.py:" in text
    assert text.endswith("KeyError: 'crash'")
    assert "\n" not in text
    with pytest.raises(InstantiationError, match=r"^refused here$"):
        task.instantiate({"mode": "refuse"})
    with pytest.raises(InstantiationError, match="must return"):
        task.instantiate({"mode": "nothing"})
    with pytest.raises(SpaceError, match="outside of the space"):
        task.instantiate(10**6)


def test_flop_declared_or_counted_or_an_error(fakes):
    flops = {"declared": 0, "counted": 0}

    @template("flop")
    def flop():
        get_config().add_flop(flops["declared"])
        return fakes.Schedule(flop=flops["counted"]), []

    def task():
        return create_task("flop", (), fakes.Target())

    with pytest.raises(TaskError, match="add_flop"):
        _ = task().flop
    flops["counted"] = 7
    assert task().flop == 7
    flops["declared"] = 5.0
    assert task().flop == 5


def test_a_template_that_raises_or_returns_nothing(fakes):
    @template("none")
    def none(n):
        if n < 1:
            raise ValueError("n must be positive")
        return [n]

    with pytest.raises(TaskError, match=r"none\(0\): test_task.py:\d+: ValueError: n must be pos"):
        create_task("none", (0,), fakes.Target())
    with pytest.raises(TaskError, match="must return"):
        create_task("none", (1,), fakes.Target())
    with pytest.raises(TaskError, match="takes"):
        create_task("none", (), fakes.Target())
    with pytest.raises(TaskError, match="unknown template"):
        create_task("nome", (1,), fakes.Target())


def test_defaults_of_the_template(fakes):
    @template("d", default=lambda n: {"s": [-1, n // 8]})
    def d(n):
        cfg = get_config()
        cfg.define_split("s", n)
        cfg.define_split("t", n, default=[-1, 1])
        s = fakes.Schedule()
        s.steps.append(cfg["s"].size)
        return s, []

    task = create_task("d", (64,), fakes.Target())
    config = task.config_space.get(task.config_space.default_index)
    assert config.values == {"s": [-1, 8], "t": [-1, 1]}
    d.default = {"u": 1}
    with pytest.raises(TaskError, match="'u' is not defined"):
        create_task("d", (64,), fakes.Target())


def test_what_a_template_chooses_as_fallback_is_trial_0(fakes):
    @template("f")
    def f(n):
        cfg = get_config()
        cfg.define_split("s", n, num_outputs=3)
        cfg.define_split("t", n)
        if cfg.is_fallback:
            cfg.fallback_split("s", [-1, 8, 4])
            cfg["t"] = SplitEntity([-1, 2])
        s = fakes.Schedule()
        s.steps = [cfg["s"].size, cfg["t"].size]
        return s, []

    task = create_task("f", (64,), fakes.Target())
    space = task.config_space
    assert space.get(space.default_index).values == {"s": [-1, 8, 4], "t": [-1, 2]}
    assert task.instantiate(task.fallback())[0].steps == [(-1, 8, 4), (-1, 2)]
    assert task.instantiate(0)[0].steps == [(-1, 1, 1), (-1, 1)]


def test_a_default_that_the_template_refuses_gives_way(fakes):
    @template("r")
    def r(n):
        cfg = get_config()
        cfg.define_split("s", n)
        if cfg["s"].size[-1] != 2:
            cfg.raise_error("only 2")
        return fakes.Schedule(), []

    task = create_task("r", (64,), fakes.Target())
    assert task.config_space.get(task.config_space.default_index)["s"].size == (-1, 2)
    task.instantiate(task.fallback())


def fallback(**knobs):
    space = ConfigSpace()
    for name, length in knobs.items():
        space.define_split(name, length, num_outputs=3)
    space.define_knob("mode", ["a", "b"])
    space.freeze()

    class Fake:
        config_space = space

    return Task.fallback(Fake())


@pytest.mark.parametrize(
    ("length", "limits", "sizes"),
    [
        (1024, [-1, 8, 4], (-1, 8, 4)),
        (36, [-1, 8, 4], (-1, 3, 4)),
        (7, [-1, 8, 4], (-1, 7, 1)),
        (64, [4, -1, 8], (-1, 2, 8)),
        (64, [4, 8, 8], (-1, 8, 8)),
        (6, [1, 1, -1], (-1, 1, 6)),
    ],
)
def test_fallback_split(length, limits, sizes):
    config = fallback(s=length)
    assert config.is_fallback
    config.fallback_split("s", limits)
    assert config["s"].size == sizes
    assert config.index == config.space.find(config.values)


def test_fallback_split_refuses():
    config = fallback(s=64)
    for name, limits, words in [
        ("t", [-1, 1, 1], "not defined"),
        ("s", [-1, 8], "no split into 2"),
        ("mode", [-1], "no split"),
        ("s", [-1, -1, 8], "one may be -1"),
        ("s", [-1, 0, 8], "at least 1"),
    ]:
        with pytest.raises(SpaceError, match=words):
            config.fallback_split(name, limits)
    with pytest.raises(SpaceError, match="not defined"):
        config["t"] = SplitEntity([-1, 1, 1])


def test_fallback_with_reference_log():
    from loopwright.records import Record

    def record(sizes, mode, *times):
        return Record("t", "t", [], {}, {"s": sizes, "mode": mode}, times)

    config = fallback(s=36)
    config.fallback_with_reference_log(
        [
            record([-1, 16, 16], "a", 0.1),
            record([-1, 9, 4], "b", 0.5),
            record([-1, 9, 4], "a", 0.9),
            record([-1, 9, 4], "a"),
            Record("t", "t", [], {}, {"other": 1}, (0.1,)),
        ]
    )
    assert config["s"].size == (-1, 9, 4)
    assert config["mode"].val == "b"
    untouched = fallback(s=36)
    before = untouched.values
    untouched.fallback_with_reference_log([])
    assert untouched.values == before


@pytest.fixture
def leaving(fakes):
    @template("demo/leaving")
    def leaving(error):
        cfg = get_config()
        cfg.define_knob("k", ["stay", "leave"])
        if error is not None and (error or cfg["k"].val == "leave"):
            raise KeyboardInterrupt if error == "interrupt" else SystemExit(5)
        return fakes.Schedule(), ["A"]

    return leaving


def test_a_template_that_exits_costs_its_trial_only(leaving, fakes):
    task = create_task(leaving, ("",), fakes.Target())
    assert task.instantiate({"k": "stay"})
    with pytest.raises(InstantiationError, match=r"test_task\.py:\d+: SystemExit: 5$"):
        task.instantiate({"k": "leave"})


def test_a_template_that_exits_at_once_is_a_task_error(leaving, fakes):
    with pytest.raises(TaskError, match=r"test_task\.py:\d+: SystemExit: 5$") as caught:
        create_task(leaving, ("exit",), fakes.Target())
    assert "\n" not in str(caught.value)
    with pytest.raises(KeyboardInterrupt):
        create_task(leaving, ("interrupt",), fakes.Target())


def test_a_filter_that_exits_is_a_space_error():
    space = ConfigSpace()
    space.define_knob("k", [1, 2])
    space.multi_filter(lambda config: sys.exit(5))
    with pytest.raises(SpaceError, match=r"a filter failed on configuration 1 .*SystemExit: 5"):
        space.is_valid(1)
