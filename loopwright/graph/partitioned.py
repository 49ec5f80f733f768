"""Models over several devices: the program is cut, and each part built for its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loopwright import driver
from loopwright.errors import UsageError
from loopwright.graph.building import applied_history, records_in_force
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.kernel_tasks import fastest, kernel_tasks
from loopwright.graph.pipeline import prepared
from loopwright.graph.plan import Planned
from loopwright.history.contexts import Source
from loopwright.runtime import Device, Module
from loopwright.runtime.artifacts.kinds import artifact_kind
from loopwright.runtime.executors import PartitionedExecutor, partition
from loopwright.target import Target
from loopwright.task.dispatch import schedule_of
from loopwright.task.task import TargetLike, Task, resolve_target
from loopwright.tuner.run.state import flop_of


def compile_partitioned(
    model: ModelLike,
    targets: Sequence[TargetLike],
    capacities: Sequence[float] | None = None,
    devices: Sequence[Device] | None = None,
    history: Source | Any = None,
) -> PartitionedExecutor:
    """Build a model for several devices, each of which runs a part of it.

    The program is cut where few bytes go from one device to another, into parts whose work is about
    proportional to the capacity of the devices (`loopwright.runtime.executors.partition`). The work
    of a kernel is the sum of its arithmetic operations and of the elements that it reads and
    writes.

    Args:
        model: as of `compile`.
        targets: of each part, such as ``["llvm", "opencl"]``.
        capacities: relative capacities of the devices; None: all the same.
        devices: of each part; None: the first device of each target's kind.
        history: as of `compile`.

    Raises:
        GraphError, RecordError: as of `compile`.
        UsageError: the numbers of targets, capacities and devices differ, or a capacity is not
            above zero.

    Example:
        >>> x = lw.graph.var("x", (1, 4))
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.softmax(x))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> executor = lw.graph.compile_partitioned(module, ["llvm", "llvm -num-threads=1"])
        >>> executor.run(x=np.zeros((1, 4), "float32"))
        >>> print(executor.cut.devices, executor.get_output(0).numpy())
        (0, 1) [[0.25 0.25 0.25 0.25]]
    """
    resolved = [resolve_target(t) for t in targets]
    shares = [1.0] * len(resolved) if capacities is None else list(capacities)
    for what, given in (("capacities", shares), ("devices", devices)):
        if given is not None and len(given) != len(resolved):
            raise UsageError(
                f"compile_partitioned: there are {len(resolved)} targets and {len(given)} {what}"
            )
    planned = prepared(module_of(model))
    ways = [kernel_tasks(planned, t) for t in resolved]
    kernels: list[dict[str, Module]] = [{} for _ in resolved]
    with applied_history(history):
        records = records_in_force()
        tasks = [{n: fastest(c, records).task for n, c in each.items()} for each in ways]
        cut = partition(planned.program, _loads(planned, tasks[0]), shares)
        steps = zip(planned.program.steps, cut.devices, strict=True)
        used = sorted({(device, step.kernel) for step, device in steps})
        for device, name in used:
            kernels[device][name] = _built(tasks[device][name], resolved[device], name)
    homes = devices or [_first_device(k) for k in kernels]
    return PartitionedExecutor(cut, kernels, homes, planned.constants)


def _loads(planned: Planned, tasks: Mapping[str, Task]) -> list[float]:
    values = planned.program.values
    return [
        flop_of(tasks[step.kernel]) + sum(values[n].nbytes / 4.0 for n in step.args)
        for step in planned.program.steps
    ]


def _built(task: Task, target: Target, name: str) -> Module:
    schedule, args = schedule_of(task)
    return driver.build(schedule, args, target, name=name)


def _first_device(kernels: Mapping[str, Module]) -> Device:
    """The first device of the kind that some kernels are for; the host where there are none."""
    kinds = [artifact_kind(module.artifact.kind).device for module in kernels.values()]
    return Device(kinds[0] if kinds else "cpu")
