"""The limit of a device that bounds a kernel, from kernels of our own; see `machine_limit`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loopwright.errors import RunError
from loopwright.measure.checking.check import computed_in
from loopwright.measure.playoff.machine_limit import (
    MachineLimit,
    bytes_of,
    higher,
    stays_in_cache,
)
from loopwright.measure.result import MeasureError
from loopwright.measure.running import RunSession
from loopwright.measure.yardsticks import programs
from loopwright.measure.yardsticks.programs import YardstickProgram
from loopwright.measure.yardsticks.sampling import Yardstick
from loopwright.records import Json
from loopwright.runtime import Artifact, Device
from loopwright.target import Target
from loopwright.te import Dag

#: Measures how many units of work of a kernel the device does in a second.
Rate = Callable[[YardstickProgram], float]


def device_limit(
    artifact: Artifact,
    dag: Dag,
    flop: int,
    target: Target,
    device: Device,
    rate: Rate,
    *,
    on_tensor_cores: bool = False,
) -> MachineLimit | None:
    """The limit that bounds kernels of a device with these arguments; None where none is known.

    ``flop`` counts floating point operations of one call, or is 0; ``rate`` measures on the device,
    of which only properties are read here. Products on tensor cores are not bounded by the peak of
    multiply-adds in registers. Raises a LoopwrightError where a yardstick kernel cannot be built,
    or fails.
    """
    nbytes = bytes_of(artifact)
    in_cache = stays_in_cache(nbytes, device)
    memory = None if in_cache else bandwidth_limit(nbytes, target, rate)
    counted = flop and not on_tensor_cores
    return higher(arithmetic_limit(flop, dag, target, rate) if counted else None, memory)


def arithmetic_limit(flop: int, dag: Dag, target: Target, rate: Rate) -> MachineLimit:
    """The limit by arithmetic: in float64 where that is the only float, else in float32, in which
    kernels compute shorter types, too.
    """
    dtype = "float64" if computed_in(dag) == "float64" else "float32"
    return _limit(programs.arithmetic(target, dtype), flop, rate)


def bandwidth_limit(nbytes: int, target: Target, rate: Rate) -> MachineLimit:
    """The limit by memory bandwidth."""
    return _limit(programs.memory(target), nbytes, rate)


def _limit(program: YardstickProgram, work: float, rate: Rate) -> MachineLimit:
    return MachineLimit(program.name, work, lambda: rate(program) * program.work)


def in_runner(session: RunSession) -> Rate:
    """Measures in the process of a runner; raises a RunError where that fails."""
    return partial(_asked, session)


def _asked(session: RunSession, program: YardstickProgram) -> float:
    found = session.undisturbed(
        lambda: session.yardstick(program.name, program.artifact, program.through_memory)
    )
    if isinstance(found, MeasureError):
        raise RunError(found.text)
    return found


def in_this_process(device: Device) -> Rate:
    """Measures in this process; errors are those of `Yardstick`."""
    loaded: dict[str, Yardstick] = {}

    def rate(program: YardstickProgram) -> float:
        if program.name not in loaded:
            loaded[program.name] = Yardstick(program.artifact, device, program.through_memory)
        return loaded[program.name].rate()

    return rate


def uses_tensor_cores(trace: Json) -> bool:
    """Whether a trace multiplies with instructions of tensor cores (``mma_m16n8k16_float16``)."""
    tensorized = [step[-1] for step in trace if step[0] == "tensorize"]
    return any(str(intrinsic["name"]).startswith("mma_") for intrinsic in tensorized)
