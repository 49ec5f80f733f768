"""Files of built kernels: `build` writes into them which workload they compute, and `run` checks
the outputs against the reference of that workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loopwright import dtypes
from loopwright.cli.workload import Workload
from loopwright.errors import LoopwrightError, RunError, UsageError

if TYPE_CHECKING:
    from loopwright.measure.checking.check import Array
    from loopwright.runtime import Arg, Module
    from loopwright.task import Task


def write(workload: Workload, module: Module, output: str) -> list[Path]:
    """Write a kernel, whose manifest says what it computes.

    Args:
        workload: what it computes.
        module: the kernel.
        output: the file: a shared object where it ends in ``.so``, else an object file with its
            manifest beside it.

    Returns:
        The files, the kernel's first.
    """
    from loopwright import runtime

    task = workload.task
    says = {"name": task.name, "args": list(task.args), "target": str(task.target)}
    manifest = {**module.artifact.manifest, "workload": says}
    named = runtime.Module(runtime.Artifact(manifest, module.artifact.objects))
    if Path(output).suffix == ".so":
        return [named.export_library(output)]
    path = named.save(output)
    return [path, Path(f"{path}.json")]


def check(file: str, module: Module, arrays: Sequence[Array]) -> str:
    """Check what a kernel wrote; returns in words what it was compared with.

    Args:
        file: where the kernel is from, for messages.
        module: the kernel.
        arrays: the arguments of the call, its outputs filled.

    Raises:
        RunError: an output is wrong, or not finite where no reference is known.
        UsageError: the kernel's arguments are not those of the workload that its manifest names.
    """
    from loopwright.measure.arguments import arguments

    pairs = list(zip(arguments(module.artifact), arrays, strict=True))
    task = _task_of(module)
    if task is None:
        _check_finite(file, pairs)
        name = module.artifact.contents.workload.get("name")
        why = f"{name!r} is no operator of loopwright" if name else "its workload is not known"
        return f"all finite ({why}, so that they were not compared with a reference)"
    return _compare(file, task, pairs)


def _task_of(module: Module) -> Task | None:
    """The task that the manifest names; None where it names no operator with a reference.

    A template in a file is not looked for: a manifest cannot make Python run.
    """
    from loopwright import ops
    from loopwright.task import create_task

    says = module.artifact.contents.workload
    operator = ops.WORKLOADS.get(says.get("name", ""))
    if operator is None:
        return None
    try:
        task = create_task(operator.template, operator.template.bind(says["args"]), says["target"])
    except LoopwrightError as error:
        raise UsageError(f"the manifest names a workload that cannot be: {error}") from error
    return None if task.reference is None else task


def _compare(file: str, task: Task, pairs: Sequence[tuple[Arg, Array]]) -> str:
    from loopwright.measure.checking import check as checking

    schedule, tensors = task.instantiate(task.config_space.get(task.config_space.default_index))
    shapes = [(t.dtype, tuple(t.shape)) for t in tensors]
    if shapes != [(arg.dtype.name, arg.shape) for arg, _ in pairs]:
        raise UsageError(f"{file} does not have the arguments of {task}; build it again")
    outputs = [(arg, array) for arg, array in pairs if arg.output]
    assert task.reference is not None
    expected = task.reference(*(array for arg, array in pairs if not arg.output))
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    expected = [np.asarray(e, arg.dtype) for e, (arg, _) in zip(expected, outputs, strict=True)]
    length = checking.reduction_length(schedule.dag)
    worst = 0.0
    for (arg, array), want in zip(outputs, expected, strict=True):
        result = checking.compare(arg.name, array, want, length)
        if result.problem is not None:
            raise RunError(f"{file}: {result.problem}; build it again, and tell us if that recurs")
        worst = max(worst, result.max_error)
    return f"equal to the reference of {task} within {worst:.3g}"


def _check_finite(file: str, pairs: Sequence[tuple[Arg, Array]]) -> None:
    for arg, array in pairs:
        floats = dtypes.is_float(array.dtype.name)
        bad = int(np.count_nonzero(~np.isfinite(array))) if floats else 0
        if arg.output and bad:
            raise RunError(
                f"{file}: {bad} of {array.size} elements of output {arg.name!r} are not "
                "finite; unless the workload itself gives such values on random inputs, the kernel "
                "is wrong: build it again, and tell us if that recurs"
            )
