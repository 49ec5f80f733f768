"""The time of a run of a whole model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwright.cli.workload import counted

if TYPE_CHECKING:
    from loopwright.records import Json
    from loopwright.runtime import Device
    from loopwright.runtime.executors import Executor, Model

#: A sample holds so many seconds of runs, at least one.
_SAMPLE_S = 0.05


@dataclass(frozen=True)
class Place:
    #: The first of the devices that the model was built for.
    device: Device
    #: Most threads of its kernels.
    threads: int

    def __str__(self) -> str:
        if self.on_cpu:
            return counted(self.threads)
        return f"{self.device} ({self.device.device_name})"

    @property
    def on_cpu(self) -> bool:
        from loopwright.runtime import cpu

        return self.device == cpu()

    def to_json(self) -> dict[str, Json]:
        """The place as ``loopwright bench`` of a kernel prints it."""
        return {"threads": self.threads if self.on_cpu else None, "device": str(self.device)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the device: nobody else of loopwright times there, and threads stay on their
        CPUs.
        """
        from loopwright import runtime
        from loopwright.cli import schedules as workload_kernels

        with workload_kernels.alone(self.device), runtime.pinned(self.threads):
            yield


def place_of(model: Model) -> Place:
    """The place where a model runs; a missing device is refused."""
    from loopwright import runtime
    from loopwright.cli import schedules as workload_kernels

    home = runtime.device(model.device_type)
    home.require()
    threads = map(workload_kernels.threads_of, model.kernels.values())
    return Place(home, max(threads, default=1))


def sampler(run: Callable[[], object]) -> Callable[[], float]:
    """A function that takes a sample: seconds of a run, the mean of about 50 ms of runs.

    A run that is not timed comes before each sample, so that caches and waiting threads of other
    code do not count.
    """
    run()
    once = _seconds(run, 1)
    number = max(1, round(_SAMPLE_S / max(once, 1e-9)))

    def sample() -> float:
        run()
        return _seconds(run, number) / number

    return sample


def waited(executor: Executor) -> Callable[[], object]:
    """A run that waits for its end, which runs of devices do not."""

    def run() -> None:
        executor.run()
        executor.sync()

    return run


def _seconds(run: Callable[[], object], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - begin
