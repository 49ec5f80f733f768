"""Files of built kernels, which name their workload, and checks of their outputs against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import dtypes, files
from loopwright.cli.workload import WorkloadSubject
from loopwright.errors import LoopwrightError, RunError, UsageError

if TYPE_CHECKING:
    from loopwright.measure import Array, Closeness
    from loopwright.runtime import Arg, Module
    from loopwright.task import Task
    from loopwright.te import Dag


#: An operation of an expression, by its index, and which of its outputs.
Place = tuple[int, int]
#: Points of a stage that NumPy evaluates at once, in a few hundred megabytes at most.
_MOST_POINTS = 1 << 22


def check_free(output: str, *, force: bool) -> None:
    """Refuse to write over other files, before anything is built."""
    from loopwright.executors import HEADER
    from loopwright.runtime import LIBRARY_FILE, MANIFEST, OBJECT, TAR_FILE

    path = Path(output)
    places = {
        ".so": [(path, LIBRARY_FILE), (path.with_suffix(".h"), HEADER)],
        ".tar": [(path, TAR_FILE)],
    }
    parts = [(path, OBJECT), (Path(f"{output}.json"), MANIFEST)]
    files.check(*places.get(path.suffix, parts), force=force)


def write(workload: WorkloadSubject, module: Module, output: str, *, force: bool) -> list[Path]:
    """Write a kernel whose manifest names the workload: a shared object where ``output`` ends in
    ``.so``, with a header for C, a tar of the object where in ``.tar``, else an object file with
    its manifest beside it. Returns the files, the kernel's first.
    """
    from loopwright import runtime
    from loopwright.executors import HEADER, c_header
    from loopwright.schedule import create_schedule
    from loopwright.space import AutomaticTask

    task = workload.task
    says: dict[str, Any]
    says = {"name": task.name, "args": list(task.args), "target": str(task.target)}
    if workload.operator is None:  # its DAG, and its arguments in calling order
        if isinstance(task, AutomaticTask):  # known without a look at its space
            schedule = create_schedule(list(dict.fromkeys(t.op for t in task.program.outputs)))
            tensors = list(task.program.args)
            schedule = schedule.with_arguments(tensors)
        else:
            schedule, tensors = task.default()
        args = list(schedule.arg_ids(tensors))
        says["expression"] = {"dag": schedule.dag.to_json(), "args": args}
    manifest = {**module.artifact.manifest, "workload": says}
    named = runtime.Module(runtime.Artifact(manifest, module.artifact.objects))
    if Path(output).suffix == ".so":
        path = named.export_library(output, force=force)
        header = path.with_suffix(".h")
        text = c_header(named.artifact.contents, str(task).replace("*/", ""))
        files.write(files.Output(header, text.encode(), HEADER), force=force)
        return [path, header]
    if Path(output).suffix == ".tar":
        return [named.export_library(output, force=force)]
    path = named.save(output, force=force)
    return [path, Path(f"{path}.json")]


def check(file: str, module: Module, arrays: Sequence[Array]) -> str:
    """Check outputs among a call's arguments; return in words what they were compared with."""
    from loopwright.measure import arguments

    pairs = list(zip(arguments(module.artifact), arrays, strict=True))
    says = module.artifact.contents.workload
    task = _task_of(says)
    if task is not None:
        return _compare_with_reference(file, task, pairs)
    if "expression" in says:
        return _compare_with_expression(file, says["expression"], pairs)
    for arg, array in pairs:
        floats = dtypes.is_float(array.dtype.name)
        bad = int(np.count_nonzero(~np.isfinite(array))) if floats else 0
        if arg.output and bad:
            raise RunError(
                f"{file}: {bad} of {array.size} elements of output {arg.name!r} are not "
                "finite; unless the workload itself gives such values on random inputs, the kernel "
                "is wrong: build it again, and tell us if that recurs"
            )
    name = says.get("name")
    why = f"{name!r} is no operator of loopwright" if name else "its workload is not known"
    return f"all finite ({why}, so that they were not compared with a reference)"


def _task_of(says: Any) -> Task | None:
    """The task that a manifest names; None where it names no operator with a reference, such as a
    template in a file, as a manifest runs no Python.
    """
    from loopwright import ops
    from loopwright.task import create_task

    operator = ops.WORKLOADS.get(says.get("name", ""))
    if operator is None:
        return None
    try:
        task = create_task(operator.template, operator.template.bind(says["args"]), says["target"])
    except LoopwrightError as error:
        raise UsageError(f"the manifest names a workload that cannot be: {error}") from error
    return None if task.reference is None else task


def _compare_with_reference(file: str, task: Task, pairs: Sequence[tuple[Arg, Array]]) -> str:
    from loopwright.measure import comparison as checking

    schedule, tensors = task.expression()
    shapes = [(t.dtype, tuple(t.shape)) for t in tensors]
    if shapes != [(arg.dtype.name, arg.shape) for arg, _ in pairs]:
        raise UsageError(f"{file} does not have the arguments of {task}; build it again")
    assert task.reference is not None
    expected = task.reference(*(array for arg, array in pairs if not arg.output))
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    close = checking.Closeness(checking.reduction_length(schedule.dag))
    worst = _compare(file, pairs, expected, close)
    return f"equal to the reference of {task} within {worst:.3g}"


def _compare_with_expression(file: str, says: Any, pairs: Sequence[tuple[Arg, Array]]) -> str:
    """Compare with the manifest's expression, which is data and no program: by NumPy, or compiled
    without any schedule where it is large.
    """
    from loopwright.measure import comparison as checking
    from loopwright.te import Dag, read_arg_id

    try:
        dag = Dag.from_json(says["dag"])
        places = [read_arg_id(x) for x in says["args"]]
        shapes = [(op.dtypes[k], op.shape) for op, k in ((dag.ops[i], k) for i, k in places)]
    except (LoopwrightError, LookupError, TypeError, AttributeError) as error:
        problem = f"its manifest holds no expression that can be: {error}"
        raise UsageError(f"{file}: {problem}") from error
    if [(d, tuple(n)) for d, n in shapes] != [(arg.dtype.name, arg.shape) for arg, _ in pairs]:
        raise UsageError(f"{file} does not have the arguments of its expression; build it again")
    close = checking.Closeness(checking.reduction_length(dag), checking.computed_in(dag))
    arrays = dict(zip(places, (array for _, array in pairs), strict=True))
    results = [place for place, (arg, _) in zip(places, pairs, strict=True) if arg.output]
    points = [prod(x.count for x in (*op.axes, *op.reduce_axes)) for op in dag.ops]
    evaluate, how = _by_numpy, "evaluated by NumPy"
    if max(points) > _MOST_POINTS:
        evaluate, how = _as_written, "compiled without a schedule"
    worst = _compare(file, pairs, evaluate(dag, arrays, results), close)
    return f"equal to its expression, {how}, within {worst:.3g}"


def _by_numpy(dag: Dag, arrays: Mapping[Place, Array], results: Sequence[Place]) -> list[Array]:
    """The results of an expression, by code that shares nothing with the compiler."""
    from loopwright.te import arg_id
    from loopwright.testing.numpy_eval import evaluate

    inputs = {i: array for (i, _), array in arrays.items() if dag.ops[i].is_placeholder}
    values = evaluate(dag, inputs)
    return [values[arg_id(i, output)] for i, output in results]


def _as_written(dag: Dag, arrays: Mapping[Place, Array], results: Sequence[Place]) -> list[Array]:
    """The results of an expression, compiled for this CPU without any step of a schedule."""
    from loopwright import driver
    from loopwright.schedule import replay
    from loopwright.te import arg_id

    schedule = replay(dag, [])
    arrays = {at: np.zeros_like(a) if at in results else a for at, a in arrays.items()}
    tensors = [schedule.tensor(arg_id(i, output)) for i, output in arrays]
    driver.build(schedule, tensors, "llvm")(*arrays.values())
    return [arrays[at] for at in results]


def _compare(
    file: str, pairs: Sequence[tuple[Arg, Array]], expected: Sequence[Any], close: Closeness
) -> float:
    from loopwright.measure import comparison as checking

    worst, outputs = 0.0, [pair for pair in pairs if pair[0].output]
    for (arg, array), want in zip(outputs, expected, strict=True):
        result = checking.compare(arg.name, array, np.asarray(want, arg.dtype), close)
        if result.problem is not None:
            raise RunError(f"{file}: {result.problem}; build it again, and tell us if that recurs")
        worst = max(worst, result.max_error)
    return worst
