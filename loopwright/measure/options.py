"""Options of measuring: frozen options of builder and runner. Processes belong to `Measurer`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from pathlib import Path

from loopwright.env import total_memory, usable_cpus
from loopwright.errors import UsageError, did_you_mean
from loopwright.runtime import Device, device

#: Racing drops a candidate whose first run takes longer than this many times the incumbent.
DROP_RATIO = 2.0
#: A candidate is killed after this many times the best time so far, but not before so many seconds.
SLOW_RATIO, SHORTEST_LIMIT_S = 20.0, 1.0
#: Samples of a contender when ``number``, ``repeat`` and ``min_repeat_ms`` are left alone.
WINDOWS = 5
#: Length of such a sample in seconds, and of one of the playoff.
WINDOW_S, PLAYOFF_WINDOW_S = 0.01, 0.02
#: A contender whose first two samples are both this many times the incumbent gets no more.
CLEAR_RATIO = 1.1
#: Names for `LocalBuilder.build_func` and `LocalRunner.module_loader`.
BUILD_FUNCS, MODULE_LOADERS = ("default", "tar"), ("default",)
#: After this many seconds of samples no further one is begun: slow kernels need fewer of them.
SAMPLES_S = 0.3


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container where it is limited to less."""
    total = total_memory()
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return total


def _positive(owner: str, name: str, value: float | None, *, zero: bool = False) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value > 0 or (zero and value == 0)):
        need = "0 or more" if zero else "more than 0"
        raise UsageError(f"{owner}: {name} must be a number, {need}; it is {value!r}")


def _count(owner: str, name: str, value: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{owner}: {name} must be an integer of at least 1; it is {value!r}")


def _named(owner: str, name: str, value: object, names: tuple[str, ...], why: str) -> None:
    if isinstance(value, str) and value in names:
        return
    text = " or ".join(map(repr, names))
    what = "a function" if callable(value) else repr(value)
    raise UsageError(f"{owner}: {name} is {text}, not {what}: {why}")


def _device_names(names: object) -> str:
    parts = names.split(",") if isinstance(names, str) else names
    parts = [parts] if isinstance(parts, Device) else parts
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str | Device) for p in parts):
        raise UsageError(
            f'LocalRunner: device is a name such as "opencl:0", or several; it is {names!r}'
        )
    named = [device(p.strip() if isinstance(p, str) else p) for p in parts if p]
    return ",".join(f"{one.name}:{one.device_id}" for one in named)


def _unsupported(owner: str, name: str, value: object, why: str) -> None:
    if value:
        raise UsageError(f"{owner}: {name}={value!r} is not supported: {why}; leave it out")


@dataclass(frozen=True)
class LocalBuilder:
    """Build candidates in killable processes of this machine.

    AutoTVM's ``build_kwargs`` and ``runtime`` are accepted, and ignored, with their default (None)
    only; ``do_fork`` changes nothing, since builders are processes of their own anyway.

    Attributes:
        timeout: seconds that one build may take; then it is killed (``BUILD_TIMEOUT``). The
            template may take as long before it, in this process (``INSTANTIATION``).
        n_parallel: number of builder processes; None: all usable cores.
        build_func: ``"default"``, or ``"tar"``, AutoTVM's other name of its default; both mean the
            code of the target's compiler. A function is refused: builders are other processes,
            which get data and never import a user's script (docs/adr/018, 019).
        memory_bytes: memory that one builder may take beyond what it starts with; None: half of the
            machine's divided by the number of builders, at least 1 GiB.

    Example:
        >>> print(lw.LocalBuilder(timeout=5, n_parallel=2).n_parallel)
        2
    """

    timeout: float = 10.0
    n_parallel: int | None = None
    build_func: str = "default"
    memory_bytes: int | None = None
    _: KW_ONLY
    build_kwargs: InitVar[object] = None
    do_fork: InitVar[bool] = False
    runtime: InitVar[object] = None

    def __post_init__(self, build_kwargs: object, do_fork: bool, runtime: object) -> None:
        why = "what a builder compiles follows from schedule and target alone"
        _unsupported("LocalBuilder", "build_kwargs", build_kwargs, why)
        why = "programs run on the one runtime of loopwright"
        _unsupported("LocalBuilder", "runtime", runtime, why)
        _positive("LocalBuilder", "timeout", self.timeout)
        _count("LocalBuilder", "n_parallel", self.n_parallel)
        _count("LocalBuilder", "memory_bytes", self.memory_bytes)
        why = (
            "builders are other processes, which get data and never import a script "
            "(docs/adr/018, 019); choose the compiler by the target, such as target='c'"
        )
        _named("LocalBuilder", "build_func", self.build_func, BUILD_FUNCS, why)
        object.__setattr__(self, "build_func", BUILD_FUNCS[0])

    @property
    def processes(self) -> int:
        return self.n_parallel or len(usable_cpus())

    @property
    def memory_limit(self) -> int:
        return self.memory_bytes or max(1 << 30, machine_memory() // 2 // self.processes)


@dataclass(frozen=True)
class LocalRunner:
    """Time and check candidates in a killable process of this machine.

    With ``number``, ``repeat`` and ``min_repeat_ms`` left alone a contender gets the plan of
    loopwright: 5 samples, each a window of about 10 ms (as many calls as fit, at least one), fewer
    for a kernel so slow that they would take more than 0.3 s, and 2 where both are more than 10 %
    behind the incumbent. As soon as one of the three is given, all have AutoTVM's meaning, the
    others AutoTVM's defaults (4, 3, 0); racing stays on.

    Attributes:
        timeout: seconds that running one candidate may take at most; then it is killed
            (``RUN_TIMEOUT``). Once there is an incumbent the limit is max(1 s, 20 x incumbent), at
            most this.
        number: calls per sample; the sample is their mean.
        repeat: number of samples.
        min_repeat_ms: ``number`` grows until one sample takes at least this long.
        cooldown_interval: seconds of rest before each candidate. Default 0, not AutoTVM's 0.1.
        enable_cpu_cache_flush: empty the caches before each call, on a device the second-level one;
            each sample is then one call.
        other_constants: bytes of constants that are read between two calls of a kernel, such as the
            weights of the other layers of a model: its calls then read copies of its own constants
            in turns, so many bytes together, or 64 copies; constants larger than the caches come
            from memory, as they do in a model. For kernels on CPUs only. None: the tuning run
            decides: 0, or for a model the bytes of its weights.
        check: check a candidate that would become the best: its outputs on two sets of inputs, and
            that it touches nothing else (`loopwright.measure.workers.run_role`).
        racing: stop after a warm-up and one run when that run takes more than twice the incumbent,
            after 2 samples when both are more than 10 % behind it.
        memory_bytes: memory that the runner may take beyond what it starts with; None: half of the
            machine's.
        seed: seed of the input data.
        device: names of the devices that kernels run on, such as ``"opencl:0"``, or several with
            commas, or in a list: candidates are spread over them, which must be equal. Empty: the
            first device of the target's kind. Kernels of devices are timed by the device's clock.
        module_loader: None or ``"default"``: the runner links what builders send it. A function is
            refused: the runner is another process (docs/adr/018, 019).

    Example:
        >>> runner = lw.LocalRunner(number=4, repeat=3, min_repeat_ms=10)
        >>> print(runner.number, runner.repeat)
        4 3
    """

    timeout: float = 10.0
    number: int | None = None
    repeat: int | None = None
    min_repeat_ms: float | None = None
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False
    check: bool = True
    racing: bool = True
    memory_bytes: int | None = None
    seed: int = 0
    _: KW_ONLY
    other_constants: int | None = None
    device: str | Device | Sequence[str | Device] = ""
    module_loader: InitVar[object] = None

    def __post_init__(self, module_loader: object) -> None:
        why = (
            "the runner is another process, which links what builders send it and never imports a "
            "script (docs/adr/018, 019); leave it out"
        )
        if module_loader is not None:
            _named("LocalRunner", "module_loader", module_loader, MODULE_LOADERS, why)
        _positive("LocalRunner", "timeout", self.timeout)
        _count("LocalRunner", "number", self.number)
        _count("LocalRunner", "repeat", self.repeat)
        _positive("LocalRunner", "min_repeat_ms", self.min_repeat_ms, zero=True)
        _positive("LocalRunner", "cooldown_interval", self.cooldown_interval, zero=True)
        _count("LocalRunner", "memory_bytes", self.memory_bytes)
        _positive("LocalRunner", "other_constants", self.other_constants, zero=True)
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(
                f"LocalRunner: seed must be an integer of at least 0; it is {self.seed!r}"
            )
        object.__setattr__(self, "device", _device_names(self.device))

    @property
    def devices(self) -> str:
        assert isinstance(self.device, str)  # it was made one
        return self.device

    @property
    def windows(self) -> bool:
        """Whether samples are windows of time; otherwise they are AutoTVM's counts."""
        return self.number is None and self.repeat is None and self.min_repeat_ms is None

    @property
    def counts(self) -> tuple[int, int, float]:
        """``(number, repeat, min_repeat_ms)`` with AutoTVM's defaults for what was not given."""
        return (self.number or 4, self.repeat or 3, self.min_repeat_ms or 0.0)

    @property
    def memory_limit(self) -> int:
        return self.memory_bytes or max(1 << 30, machine_memory() // 2)

    def limit(self, incumbent: float | None) -> float:
        """Seconds that one candidate may take; ``incumbent`` is the best time per call so far."""
        if incumbent is None:
            return self.timeout
        return min(self.timeout, max(SHORTEST_LIMIT_S, SLOW_RATIO * incumbent))


@dataclass(frozen=True)
class MeasureOption:
    """A builder with a runner; made by `measure_option`.

    Example:
        >>> print(lw.measure_option().runner.check)
        True
    """

    builder: LocalBuilder
    runner: LocalRunner


def measure_option(
    builder: LocalBuilder | str = "local", runner: LocalRunner | str = "local"
) -> MeasureOption:
    """Choose how candidates are built and run; ``"local"`` stands for the defaults.

    Example:
        >>> option = lw.measure_option(
        ...     builder=lw.LocalBuilder(timeout=10), runner=lw.LocalRunner(number=4, repeat=3)
        ... )
        >>> print(option.runner.repeat)
        3
    """
    builder = LocalBuilder() if builder == "local" else builder
    runner = LocalRunner() if runner == "local" else runner
    for name, value, kind in (("builder", builder, LocalBuilder), ("runner", runner, LocalRunner)):
        if not isinstance(value, kind):
            hint = did_you_mean(value, ["local"]) if isinstance(value, str) else ""
            raise UsageError(
                f'measure_option: {name} must be "local" or a {kind.__name__}; '
                f"it is {value!r}{hint}"
            )
    assert isinstance(builder, LocalBuilder)
    assert isinstance(runner, LocalRunner)
    return MeasureOption(builder, runner)
