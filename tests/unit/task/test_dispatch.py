"""Nesting of contexts, threads, one configuration for all."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from loopwright.errors import InstantiationError, TaskError, UsageError
from loopwright.target import Target
from loopwright.task import (
    ApplyConfig,
    ApplyFixedConfig,
    DispatchContext,
    create_task,
    get_config,
    in_context,
    template,
)


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


def test_asynchronous_tasks_inherit_the_contexts(tile):
    async def build(n):
        await asyncio.sleep(0)
        return inner(tile(n))

    async def apart(size):
        with ApplyConfig({"i": [-1, size]}):
            return [await build(64) for _ in range(5)]

    async def main():
        with ApplyConfig({"i": [-1, 2]}):
            task = asyncio.create_task(build(64))
        found = [await task]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(apart(size)) for size in (4, 8)]
        return found + [task.result() for task in tasks]

    assert asyncio.run(main()) == [2, [4] * 5, [8] * 5]
    assert inner(tile(64)) == 16


def test_a_function_takes_its_contexts_to_threads(tile, fakes):
    barrier = threading.Barrier(4, timeout=30)

    def build(n):
        if n == 64:
            barrier.wait()  # four are inside at the same time
        return inner(tile(n)), Target.current().canonical.get("mcpu")

    with ThreadPoolExecutor(4) as pool:
        with ApplyConfig({"i": [-1, 2]}), fakes.Target(mcpu="mine"):
            bound = in_context(build)
            # Without it a thread of a pool knows neither the configuration nor the target.
            assert pool.submit(lambda: Target.current().canonical.get("mcpu")).result() != "mine"
        assert list(pool.map(bound, [64] * 16)) == [(2, "mine")] * 16
    assert bound(32) == (2, "mine")
    assert bound.__name__ == "build"
    assert inner(tile(64)) == 16


def test_fixed_configurations_by_template(tile, fakes):
    tasks = [create_task("tile", (64,), fakes.Target())]
    with ApplyConfig({"i": [-1, 2]}):
        with ApplyFixedConfig(tasks, "tile", {"tile": {"i": [-1, 4]}}) as fixed:
            assert inner(tile(64)) == inner(tile(32)) == 4
            fixed.update(None, tasks[0], tasks[0].config({"i": [-1, 8]}))
            assert inner(tile(64)) == 8
        with ApplyFixedConfig(tasks, configs={"tile": 3}):
            assert inner(tile(64)) == 8
        with ApplyFixedConfig([]):
            assert inner(tile(64)) == 2
    with pytest.raises(UsageError, match="no task is of template 'other'; there are tile"):
        ApplyFixedConfig(tasks, ["other"])


def test_the_current_context_answers_queries(tile, fakes):
    task = create_task("tile", (64,), fakes.Target())
    assert DispatchContext.current.query(task.target, task.workload).values == {"i": [-1, 16]}
    with ApplyConfig({"i": [-1, 2]}) as context:
        assert DispatchContext.current is context
        assert DispatchContext.current.query(task.target, task.workload).values == {"i": [-1, 2]}
        context.update(task.target, task.workload, task.config({"i": [-1, 4]}))
        assert inner(tile(64)) == 4
        with Nothing() as nothing:
            assert nothing.query(task.target, task).values == {"i": [-1, 4]}
            with pytest.raises(UsageError, match="Nothing has no configurations"):
                nothing.update(task.target, task, task.fallback())
