"""Nesting of contexts, threads, one configuration for all."""

from __future__ import annotations

import threading

import pytest

from loopwright.errors import InstantiationError, TaskError
from loopwright.task import ApplyConfig, DispatchContext, get_config, template


@pytest.fixture
def tile(fakes, default_target):
    @template("tile")
    def tile(n):
        cfg = get_config()
        cfg.define_split("i", n)
        if cfg["i"].size[-1] == 1:
            cfg.raise_error("one is too small")
        s = fakes.Schedule()
        s.inner = cfg["i"].size[-1]
        return s, []

    return tile


def inner(result):
    return result[0].inner


class Nothing(DispatchContext):
    asked = 0

    def apply(self, task):
        self.asked += 1

    def why_not(self, task):
        return "I never know"


def test_the_innermost_context_answers_first(tile, caplog):
    nothing = Nothing()
    with ApplyConfig({"i": [-1, 2]}):
        assert inner(tile(64)) == 2
        with ApplyConfig({"i": [-1, 4]}):
            assert inner(tile(64)) == 4
            with nothing:
                assert inner(tile(64)) == 4
        assert inner(tile(64)) == 2
    assert nothing.asked == 1
    assert caplog.records == []
    with nothing:
        assert inner(tile(64)) == 16
    assert "I never know" in caplog.records[0].message


def test_apply_config_takes_configurations_and_indices(tile, fakes):
    from loopwright.task import create_task

    config = create_task("tile", (64,), fakes.Target()).config_space.get(3)
    with ApplyConfig(config):
        assert inner(tile(64)) == 8
        assert inner(tile(640)) == 8
    with ApplyConfig(1):
        assert inner(tile(64)) == 2
    with ApplyConfig(0), pytest.raises(InstantiationError, match="one is too small"):
        tile(64)


def test_a_context_is_left_when_something_raises(tile):
    with pytest.raises(ZeroDivisionError), ApplyConfig(1):
        1 / 0  # noqa: B018
    assert inner(tile(64)) == 16


def test_threads_do_not_see_each_other(tile):
    shared = ApplyConfig({"i": [-1, 2]})
    barrier = threading.Barrier(4, timeout=30)
    found = {}

    def work(name, context):
        with context:
            barrier.wait()
            found[name] = [inner(tile(64)) for _ in range(20)]
            barrier.wait()

    contexts = [shared, shared, ApplyConfig({"i": [-1, 4]}), ApplyConfig({"i": [-1, 8]})]
    threads = [threading.Thread(target=work, args=item) for item in enumerate(contexts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [2] * 20, 1: [2] * 20, 2: [4] * 20, 3: [8] * 20}
    assert inner(tile(64)) == 16


def test_contexts_must_be_left_in_order(tile):
    first, second = ApplyConfig(1), ApplyConfig(2)
    first.__enter__()
    second.__enter__()
    with pytest.raises(TaskError, match="order"):
        first.__exit__()
    second.__exit__()
    first.__exit__()


def test_the_default_that_fails_is_one_line(fakes, default_target):
    @template("never")
    def never(n):
        get_config().define_split("i", n)
        get_config().raise_error("never works")
        return fakes.Schedule(), []

    with pytest.raises(TaskError, match="default configuration fails: never works"):
        never(64)
