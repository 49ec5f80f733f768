"""Runs that wait for something say what it is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from loopwright.measure import DeviceLock, LocalBuilder, LocalRunner, Measurer, measure_option
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import Monitor, RandomTuner
from loopwright.tuner.run import phases
from loopwright.tuner.run.phases import StallWatch
from tests.unit.measure.programs import MatmulTask


class Scene:
    """A watch whose clock and trials are set by hand; nothing looks but `at`."""

    def __init__(self):
        self.now, self.trials, self.said = 0.0, 0, []
        measurer = FakeMeasurer(bowl)
        clock = lambda: self.now  # noqa: E731
        self.watch = StallWatch(measurer, lambda: self.trials, self.said.append, 1e6, clock)
        self.watch._after = self.watch._next = 60.0

    def at(self, now):
        self.now = now
        self.watch.look()
        return len(self.said)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.watch.close()


def test_it_is_said_once_and_again_after_twice_as_long(scene):
    with scene.watch.waiting_for(""):
        counts = [scene.at(now) for now in (10, 59, 60, 70, 119, 120, 130, 239, 240, 479, 480)]
    assert counts == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4]
    assert scene.said[0] == "no progress for 60 s: waiting for the measurer"


def test_progress_starts_it_anew(scene):
    with scene.watch.waiting_for(""):
        assert scene.at(50) == 0
        scene.trials += 1
        assert scene.at(70) == 0
        assert scene.at(129) == 0
        assert scene.at(130) == 1


def test_nothing_is_said_where_nothing_is_awaited(scene):
    assert scene.at(500) == 0
    with scene.watch.waiting_for(""):
        assert scene.at(559) == 0
        with scene.watch.waiting_for("the log"):
            assert scene.at(560) == 1
    assert scene.said == ["no progress for 60 s: waiting for the log"]


class Notes(Monitor):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_a_run_announces_it_and_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(phases.StallWatch.__init__, "__defaults__", (0.04, time.monotonic))

    def slow(*args):
        time.sleep(0.1)
        return bowl(*args)

    notes = Notes()
    RandomTuner(FakeTask()).tune(n_trial=2, measure_option=FakeMeasurer(slow), callbacks=[notes])
    assert any("waiting for the measurer" in text for text in notes.said)
    assert not [t for t in threading.enumerate() if t.name == "stall-watch"]


OPTION = measure_option(LocalBuilder(n_parallel=1, timeout=60), LocalRunner(timeout=2))


def until_said(measurer: Measurer, *words: str) -> str:
    """What the measurer says that it waits for, once all these words are in it."""
    text = ""
    for _ in range(2000):
        text = measurer.waiting_for
        if all(word in text for word in words):
            return text
        time.sleep(0.005)
    raise AssertionError(f"{words} are not all in {text!r}")


def measured(measurer: Measurer, task: MatmulTask, *configs: int) -> threading.Thread:
    thread = threading.Thread(target=lambda: list(measurer.measure(task.inputs(*configs))))
    thread.start()
    return thread


def test_what_a_measurer_waits_for():
    begun, go_on, answer = threading.Event(), threading.Event(), threading.Event()

    class Slow(MatmulTask):
        def instantiate(self, config):
            if config == 2:
                begun.set()
                go_on.wait(30)
            return super().instantiate(config)

    def reference(a, b):
        answer.wait(30)
        return a.astype("float64") @ b

    task = Slow(reference=reference)
    with Measurer(task, OPTION) as m:
        (builder,) = m.session.builds.workers
        thread = measured(m, task, 2)
        begun.wait(30)
        assert "the template of test/matmul" in until_said(m, "template")
        go_on.set()
        until_said(m, "the reference of test/matmul")
        answer.set()
        thread.join()
        os.kill(builder.pid, signal.SIGSTOP)
        thread = measured(m, task, 8)
        until_said(m, f"builder {builder.pid} (building trial 0 for 0 s)")
        os.kill(builder.pid, signal.SIGCONT)
        thread.join()
        runner = m.session.runner.worker
        os.kill(runner.pid, signal.SIGSTOP)
        thread = measured(m, task, 16)
        until_said(m, f"runner {runner.pid} (race for 0 s)")
        os.kill(runner.pid, signal.SIGCONT)
        thread.join()
        other = DeviceLock()
        other.acquire()
        thread = measured(m, task, 4)
        until_said(m, f"the device, on which process {os.getpid()} (", "is timing")
        other.release()
        thread.join()
        assert m.answered > 3
