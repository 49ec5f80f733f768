"""Benchmarks: kernels and models sampled in turns, beside the limits of their device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from loopwright import runtime
from loopwright.errors import BuildError, CodegenError, LowerError, RunError, UsageError
from loopwright.presenting import counted
from loopwright.records import Json, compared
from loopwright.runtime import Artifact, Device, Module
from loopwright.tuner import flop_of

if TYPE_CHECKING:
    from loopwright.executors import Executor, Model
    from loopwright.measure import Array, MachineLimit, PairedGain
    from loopwright.schedule import Schedule
    from loopwright.task import Task
    from loopwright.te import Dag


_T = TypeVar("_T")
#: A sample of a model holds so many seconds of runs, at least one.
_SAMPLE_S = 0.05
#: Errors of building or running the kernel that measures a limit.
_REFUSED = (BuildError, CodegenError, LowerError, RunError, UsageError)


@contextmanager
def locked(device: Device, announce: Callable[[str], None]) -> Iterator[None]:
    from loopwright.measure import DeviceLock, lock_names

    with ExitStack() as stack:
        for name in lock_names([device]):
            lock = DeviceLock(name, announce=announce)
            lock.acquire()
            stack.callback(lock.release)
        yield


def threads_of(module: Module) -> int:
    return int(module.artifact.manifest["num_threads"]) or runtime.get_num_threads()


@dataclass(frozen=True)
class RunPlace:
    device: Device
    threads: int  # those that run, or launch, its kernels; 0: any

    @staticmethod
    def of_model(model: Model) -> RunPlace:
        """Place of a model: the first of its devices; a missing one is refused."""
        home = runtime.device(model.device_type)
        home.require()
        return RunPlace(home, max(map(threads_of, model.kernels.values()), default=1))

    def __str__(self) -> str:
        if self.on_cpu:
            return counted(self.threads, "thread")
        return f"{self.device} ({self.device.device_name})"

    @property
    def on_cpu(self) -> bool:
        return self.device == runtime.cpu()

    def to_json(self) -> dict[str, Json]:
        return {"threads": self.threads if self.on_cpu else None, "device": str(self.device)}

    @contextmanager
    def held(self, announce: Callable[[str], None]) -> Iterator[None]:
        pinned = runtime.pinned(self.threads) if self.threads else nullcontext()
        with locked(self.device, announce), pinned:
            yield


def random_arguments(module: Module, task: Task | None = None) -> list[Array]:
    """Random inputs, of the meaning that a task knows, and poisoned outputs of a kernel."""
    from loopwright.measure import DataPlan, arguments, input_set, poison, task_inputs

    args = arguments(module.artifact)
    data = input_set(DataPlan(), args, 0, None, 0) if task is None else task_inputs(task, args)
    inputs = iter(data)
    arrays = [np.empty(arg.shape, arg.dtype) if arg.output else next(inputs) for arg in args]
    for arg, array in zip(args, arrays, strict=True):
        if arg.output:
            poison(array)
    return arrays


def on_device(arrays: Sequence[Array], device: Device) -> Sequence[Any]:
    return arrays if device == runtime.cpu() else [runtime.array(a, device=device) for a in arrays]


@dataclass
class Contestant:
    name: str
    sample: Callable[[], float | None]  # seconds of a call, measured now; None once it failed
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def kernel_contestant(name: str, module: Module, task: Task, device: Device) -> Contestant:
    call = module.timed_call(*on_device(random_arguments(module, task), device))
    call.run()
    estimate = runtime.time_call(call, 1)
    return Contestant(name, lambda: runtime.measure_windows(call, windows=1, estimate=estimate)[0])


def model_run(executor: Executor) -> Callable[[], object]:
    """Run of a model that waits for its end, which runs of devices do not."""

    def run() -> None:
        executor.run()
        executor.sync()

    return run


def model_sampler(run: Callable[[], object]) -> Callable[[], float]:
    """Function that samples seconds of a run: about 50 ms of runs after one that warms up."""

    def seconds(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            run()
        return time.perf_counter() - begin

    run()
    number = max(1, round(_SAMPLE_S / max(seconds(1), 1e-9)))

    def sample() -> float:
        run()
        return seconds(number) / number

    return sample


def sample_in_turns(
    contestants: Sequence[Contestant], rounds: int, peak: Callable[[], float | None] | None = None
) -> list[float]:
    """Sample all in each round, another one first each time; returns the known peaks, operations a
    second, which ``peak`` measured after each round.
    """
    peaks: list[float] = []
    for turn in range(rounds):
        start = turn % len(contestants)
        for one in [*contestants[start:], *contestants[:start]]:
            if (seconds := one.sample()) is not None:
                one.times.append(seconds)
        if peak is not None and (reached := peak()) is not None:
            peaks.append(reached)
    return peaks


def sample_below_peak(
    contestants: Sequence[Contestant],
    rounds: int,
    flop: int,
    limited: Sequence[Contestant],
    peak: Callable[[], float | None],
) -> tuple[list[float], str]:
    """Sample in turns, again if one of ``limited`` is above the peak; the peaks, and a doubt."""
    for _ in range(2):
        for one in contestants:
            one.times.clear()
        peaks = sample_in_turns(contestants, rounds, peak)
        if not peaks:
            return [], ""
        limit = statistics.median(peaks)
        above = [one.name for one in limited if one.times and flop / one.median > limit]
        if not above:
            return peaks, ""
    return peaks, (
        f"{' and '.join(above)}: above the peak, measured twice. It is no limit for what computes "
        "less than its definition, or it was disturbed both times"
    )


@dataclass(frozen=True)
class Gain:
    one: str
    other: str
    gain: PairedGain | None  # of the one; None with too few rounds for an interval
    of_peak: float | None = None  # share of the peak that the other one reached, where known
    limit: str = ""  # name of the peak, such as ``"FMA peak (AVX2)"``; empty where none is known

    def text(self) -> str:
        if self.gain is None:
            return f"{self.one} and {self.other}: too few rounds for an interval; give 6 or more"
        other, note = self.other, ""
        if other == "default":
            other = "the default"
            if self.of_peak is not None:
                note = f"{other} has {self.of_peak * 100:.0f} % of the {self.limit}"
        gain = self.gain
        return compared(gain.outcome, gain.gain, gain.margin, self.one, other, note)

    def to_json(self) -> dict[str, Json]:
        names = ("gain", "margin", "rounds", "outcome")
        figures: dict[str, Json] = {name: getattr(self.gain, name, None) for name in names}
        if self.gain is None:
            figures["rounds"] = 0
        return {"one": self.one, "other": self.other, **figures, "text": self.text()}


def gains_of(
    contestants: Sequence[Contestant],
    of_peak: Mapping[str, float | None] | None = None,
    limit: str = "",
) -> list[Gain]:
    from loopwright.measure import paired_gain

    times = {one.name: one.times for one in contestants}
    mine = "tuned" if "tuned" in times else "default"
    return [
        Gain(mine, name, paired_gain(theirs, times[mine]), (of_peak or {}).get(name), limit)
        for name, theirs in times.items()
        if name != mine and len(theirs) == len(times[mine])
    ]


class CpuLimits:
    """Limits of this machine's CPU for the kernels of a task: arithmetic, and memory."""

    doubt = ""

    def __init__(self, task: Task, dag: Dag, artifact: Artifact, threads: int) -> None:
        from loopwright.measure import arithmetic_roof, bytes_of, moving

        self._roof = arithmetic_roof(task.target, dag) if flop_of(task) else None
        self._threads = threads
        self.nbytes = bytes_of(artifact)
        self._moving = moving(self.nbytes, threads)
        self.name = "" if self._roof is None else self._roof.name
        self.memory_name = "" if self._moving is None else self._moving.name

    def peak(self) -> float | None:
        """Operations a second, measured now; None where unknown."""
        return runtime.fma_peak(self._threads, 0.02, self._roof) if self._roof else None

    def bandwidth(self) -> float | None:
        """Bytes a second, measured now; None where the caches of the cores hold all."""
        return None if self._moving is None else self._moving.rate()


class DeviceLimits:
    """Limits of a device for a task's kernels, measured here; ``doubt`` tells why one is
    unknown.
    """

    def __init__(self, task: Task, schedule: Schedule, artifact: Artifact, device: Device) -> None:
        from loopwright.measure import BANDWIDTH, bytes_of, device_limit

        self.name, self.doubt, self.memory_name = "", "", BANDWIDTH
        self._task, self._device = task, device
        self.nbytes = bytes_of(artifact)
        self._rate = device_limit.in_this_process(device)
        self._arithmetic: MachineLimit | None = None
        flop = flop_of(task)
        if flop and not device_limit.uses_tensor_cores(schedule.trace_json()):
            self._arithmetic = self._unless_refused(
                lambda: device_limit.arithmetic_limit(flop, schedule.dag, task.target, self._rate)
            )
        if self._arithmetic is not None:
            self.name = self._arithmetic.name

    def peak(self) -> float | None:
        """Operations a second, measured now; None where unknown, or refused once."""
        limit = self._arithmetic
        rate = None if limit is None else self._unless_refused(limit.rate)
        if rate is None:
            self._arithmetic, self.name = None, ""
        return rate

    def bandwidth(self) -> float | None:
        """Bytes a second of memory, measured now; None where unknown, or a cache holds all."""
        from loopwright.measure import bandwidth_limit, stays_in_cache

        if stays_in_cache(self.nbytes, self._device):
            return None
        return self._unless_refused(
            lambda: bandwidth_limit(self.nbytes, self._task.target, self._rate).rate()
        )

    def _unless_refused(self, measure: Callable[[], _T]) -> _T | None:
        try:
            return measure()
        except _REFUSED as error:
            self.doubt = f"what {self._device} can do at most is not known: {error}"
            return None


def device_rates(
    device: Device, announce: Callable[[str], None]
) -> tuple[float | None, float | None, str]:
    """Most operations and bytes a second, measured now, None where unknown, and the reason."""
    from loopwright.measure import device_limit, in_this_process
    from loopwright.target import Target

    rate = in_this_process(device)
    peak = bandwidth = None
    try:
        target = Target(device.name)
        with locked(device, announce):
            arithmetic, memory = device_limit.arithmetic(target), device_limit.memory(target)
            peak = rate(arithmetic) * arithmetic.work
            bandwidth = rate(memory) * memory.work
    except _REFUSED as error:
        return peak, bandwidth, str(error)
    return peak, bandwidth, ""
