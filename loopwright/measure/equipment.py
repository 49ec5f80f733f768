"""What measuring needs: builders, a runner, right answers, the device's lock, a clock.

`Measurer` uses it for the candidates of a batch, `playoff` for finalists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loopwright.errors import UsageError
from loopwright.measure.building import Build, BuildPool, Candidate, instantiate
from loopwright.measure.check import reduction_length
from loopwright.measure.lock import DeviceLock
from loopwright.measure.options import MeasureOption
from loopwright.measure.reference import InputData, References
from loopwright.measure.result import MeasureError, MeasureResult, TaskLike
from loopwright.measure.running import RunSession
from loopwright.measure.workers.messages import CheckReply
from loopwright.records import Json
from loopwright.runtime import Artifact

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


class Clock:
    """Where the time went: seconds by phase, and counts of events."""

    def __init__(self) -> None:
        phases = ("instantiate", "build", "run", "check", "reference", "wait", "cooldown")
        self.seconds = dict.fromkeys(phases, 0.0)
        self.counts = dict.fromkeys(
            ("trials", "built", "duplicates", "dropped", "failed", "checked"), 0
        )
        self.total = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def count(self, result: MeasureResult) -> None:
        """Count one result; what shares the result of another is no trial."""
        if result.same_as:
            self.counts["duplicates"] += 1
            return
        self.counts["trials"] += 1
        self.counts["failed"] += result.error is not None
        self.counts["dropped"] += result.dropped

    def report(self) -> dict[str, float | int]:
        """Seconds by phase, ``overhead`` (what no phase accounts for), ``total``, the counts."""
        by_phase = sum(self.seconds.values())
        rest = {"overhead": max(0.0, self.total - by_phase), "total": self.total}
        return {**self.seconds, **rest, **self.counts}


class Equipment:
    """The processes that measure candidates of one task, and what they do with one candidate.

    Args:
        task: whose candidates they are.
        option: how to measure.
        announce: called with one line about what a person should know.
        beside: the equipment of another task with an equal option, which is closed later; its
            processes are used.

    Attributes:
        passes: settings of the `PassContext` that candidates are lowered in.
    """

    option: MeasureOption
    builds: BuildPool
    runs: RunSession

    def __init__(
        self,
        task: TaskLike,
        option: MeasureOption,
        announce: Callable[[str], None],
        beside: Equipment | None = None,
    ) -> None:
        if beside is not None and beside.option != option:
            raise UsageError("measurers that share their processes have one measure_option")
        self.task = task
        self.option = option
        self.announce = announce
        self.passes: Mapping[str, Json] = {}
        self._borrowed = beside is not None
        builders, runner = (beside.builds.workers, beside.runs.worker) if beside else (None, None)
        data = InputData(task)
        self.builds = BuildPool(option.builder, task.target.canonical, builders)
        self.runs = RunSession(option.runner, self.builds.pump, data, runner, data.owner)
        self.references = References(task, self.builds, self.runs, announce)
        self.lock = DeviceLock("cpu0", announce)
        self.clock = Clock()

    def start(self) -> None:
        """Start the processes, without waiting for them."""
        self.builds.start()
        self.runs.start()

    def reset(self) -> None:
        """Give the device back and forget all work that is under way."""
        self.lock.release()
        self.builds.reset()
        self.runs.reset()

    def close(self) -> None:
        """End the processes that are its own; nothing of them is left."""
        self.reset()
        if not self._borrowed:
            self.builds.close()
            self.runs.close()

    def instantiate(self, config: ConfigEntity) -> Candidate | MeasureError:
        """Run the template."""
        with self.clock.phase("instantiate"):
            return instantiate(self.task, config, passes=self.passes)

    def wait_for(self, builds: Sequence[Build]) -> None:
        """Return when these builds are done."""
        with self.clock.phase("build"):
            self.builds.wait(builds)

    def feed(self) -> None:
        """Serve the builders while more waits for them than they can begin."""
        with self.clock.phase("build"):
            self.builds.feed()

    def take_device(self) -> None:
        """Hold the device; waits while another process times on it."""
        if not self.lock.held:
            with self.clock.phase("wait"):
                self.lock.acquire()

    def check(
        self, candidate: Candidate, artifact: Artifact, *, slot: int = 0
    ) -> CheckReply | MeasureError | None:
        """Compare what is in the runner's slot with the reference.

        Returns:
            What the comparison gave, an error when the kernel failed, None when there can be no
            reference.
        """
        with self.clock.phase("reference"):
            reference = self.references.get(candidate, artifact)
        if reference is None:
            return None
        self.clock.counts["checked"] += 1
        with self.clock.phase("check"):
            return self.runs.check(
                self.references.key(candidate),
                reference,
                reduction_length(candidate.dag),
                self.option.runner.timeout,
                slot=slot,
            )
