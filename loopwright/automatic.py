"""From tensors to a tuned kernel: derive the space, search it, return the best schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loopwright import driver
from loopwright.errors import UsageError, did_you_mean
from loopwright.schedule import Schedule
from loopwright.space import Tensors, create_task
from loopwright.task import Task, resolve_target, schedule_of
from loopwright.te import Operation, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from loopwright.codegen import Binds
    from loopwright.ir import Func
    from loopwright.ir.sizes import SizeVar
    from loopwright.measure import MeasureOption, MeasurerLike
    from loopwright.runtime import Module
    from loopwright.task import Scheduled, TargetLike
    from loopwright.tuner import Callback


@dataclass(frozen=True)
class Effort:
    """Limits of a search; None is no limit.

    Attributes:
        trials: measured candidates.
        timeout: time of the search, such as ``"30m"``.
        min_gain: share by which the best must be expected to become faster within a minute.

    Example:
        >>> from loopwright.automatic import EFFORTS, Effort
        >>> print(EFFORTS["night"].timeout, Effort(trials=100).min_gain)
        8h None
    """

    trials: int | None
    timeout: str | None = None
    min_gain: str | None = None


#: Efforts by name: nothing measured, a coffee, a meal, a night.
EFFORTS: dict[str, Effort] = {
    "draft": Effort(trials=0),
    "quick": Effort(trials=16),
    "standard": Effort(trials=256, min_gain="0.5%"),
    "night": Effort(trials=None, timeout="8h", min_gain="0.02%"),
}


def find_effort(name: str) -> Effort:
    """The effort of a name; an unknown one is a `UsageError`."""
    if name not in EFFORTS:
        near = did_you_mean(name, EFFORTS) if isinstance(name, str) else ""
        raise UsageError(f"unknown effort {name!r:.60}{near}; there are {', '.join(EFFORTS)}")
    return EFFORTS[name]


def auto_schedule(
    tensors: Tensors | Task,
    target: TargetLike = None,
    *,
    effort: str = "standard",
    n_trial: int | None = None,
    timeout: float | str | None = None,
    log: str | Path | None = None,
    tuner: str | None = None,
    seed: int = 0,
    measure_option: MeasureOption | MeasurerLike | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool | None = None,
) -> Scheduled:
    """Schedule an expression without a template: derive its space, search it, return the best.

    Args:
        tensors: results, or inputs and results in calling order; or a task.
        target: the target; None: the current or the default one, or that of the task.
        effort: ``"draft"`` measures nothing and takes the best by the analytical model;
            ``"quick"`` measures 16 candidates, ``"standard"`` up to 256, ``"night"`` as many as
            possible in 8 hours. The last two end earlier if no more gain is expected.
        n_trial: candidates, in place of the effort's; 0 measures nothing.
        timeout: seconds or a text such as ``"30m"``, in place of the effort's.
        log: file of the records; those of this expression count as measured.
        tuner, seed: name of the tuner, None for the default one, and its seed.
        measure_option, callbacks: as for ``Tuner.tune``.
        verbose: show the progress, as `loopwright.callback.progress_bar` does; None: on a terminal
            and in a notebook, unless a callback shows it. The result is printed in any case.

    Returns:
        ``(schedule, [tensors])`` as `loopwright.build` takes it: that of the best record in the
        log, including earlier ones; the default if nothing faster was found.

    Raises:
        UsageError: the effort or the tuner is unknown, or a number is malformed, even if nothing is
            measured.
        TensorError: a size is a variable, or an input is missing among the tensors.
        TuneError: nothing could be measured, or a callback or ``measure_option`` is invalid.

    Example:
        >>> A = te.placeholder((64, 256), name="A")
        >>> B = te.compute((64, 256), lambda i, j: te.exp(A[i, j]), name="B")
        >>> s, args = lw.auto_schedule([A, B], "llvm", effort="draft")
        >>> print(lw.build(s, args, "llvm").entry_name)
        main
    """
    from loopwright.history import apply_history_best
    from loopwright.tuner import (
        DEFAULT_TUNER,
        check_arguments,
        count,
        find_tuner,
        log_to_file,
        progress_bar,
        seconds,
        shows_progress,
    )

    # A draft measures nothing, and refuses what a search would refuse.
    budget, tuner_class = find_effort(effort), find_tuner(tuner or DEFAULT_TUNER)
    limit = seconds(budget.timeout if timeout is None else timeout)
    none_asked = type(n_trial) is int and n_trial == 0
    trials = budget.trials if n_trial is None else 0 if none_asked else count("n_trial", n_trial)
    check_arguments(measure_option, callbacks)
    task = tensors if isinstance(tensors, Task) else create_task(tensors, target=target)
    search = tuner_class(task, seed=seed)
    path = None if log is None else str(log)
    if trials == 0 and path is None:
        return schedule_of(task)
    if path is not None:
        callbacks = [*callbacks, log_to_file(path)]
    if shows_progress(verbose, callbacks):
        callbacks = [*callbacks, progress_bar()]
    summary = None
    if trials != 0:
        summary = search.tune(
            n_trial=trials,
            timeout=limit,
            min_gain=budget.min_gain,
            measure_option=measure_option,
            callbacks=callbacks,
        )
    if path is not None:
        with apply_history_best(path):
            return schedule_of(task)
    assert summary is not None, "a search without a log keeps its best in its summary"
    assert summary.best_config is not None, "a run without a result raises"
    return task.instantiate(summary.best_config)


def build(
    s: Schedule | Func | Tensors | Task,
    args: Sequence[Tensor | SizeVar] | TargetLike = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    name: str = "main",
    binds: Binds | None = None,
    *,
    verify: bool = False,
    cache: bool | None = None,
) -> Module:
    """Compile a schedule, or what has none: tensors, ``build([A, B, C], "llvm")``, or a task.

    Tensors get the schedule of the best record of their expression under
    ``loopwright.apply_history_best``, from any tuner; else the best one in the space of the
    expression by the analytical model, without a trial. So does a task; that of a template gets its
    default configuration where no record fits.

    Args:
        s: the schedule; results, or inputs and results in calling order; a task; or a function of
            `loopwright.lower`.
        args: for a schedule, inputs and outputs in calling order, and size variables; for tensors
            the target may be given here.
        target: a target or its string; by default that of ``with target:``, else the host. A task
            has its own.
        target_host, name, binds: as of `loopwright.driver.build`.
        verify: time the kernel as users call it, for the report of the ``apply_history_best`` that
            chose the schedule.
        cache: keep the machine code on disk; None: if ``apply_history_best`` chose the schedule.

    Returns:
        A module that is called with NumPy arrays or NDArrays: ``f(a, b, c)`` writes c.

    Raises:
        TensorError: a size is a variable, or an input is missing among the tensors.
        UsageError: another target is given than that of the task.
        BuildError, ScheduleError, LowerError, CodegenError, TargetError: as of
            `loopwright.driver.build`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build([A, B], "llvm")
        >>> a, b = np.array([1, 2, 3, 4], "float32"), np.empty(4, "float32")
        >>> f(a, b)
        >>> print(b)
        [2. 3. 4. 5.]
    """
    options: dict[str, Any] = {"verify": verify, "cache": cache}
    has_no_schedule = isinstance(s, Task) or all(
        isinstance(t, Tensor) for t in (s if isinstance(s, list | tuple) else [s])
    )
    if not has_no_schedule:
        _refuse_uncalled(s)
        scheduled: Any = s
        return driver.build(
            scheduled, cast("Any", args), target, target_host, name, binds, **options
        )
    if args is not None and target is not None:
        raise UsageError("build: tensors are the arguments themselves; give them and the target")
    resolved = cast("TargetLike", args) if target is None else target
    if not isinstance(s, Task):
        s = create_task(cast("Tensors", s), target=resolved)
    elif resolved is not None and resolve_target(resolved) != s.target:
        raise UsageError(f"build: {s} is a task for {s.target}; make one for {resolved}")
    schedule, tensors = schedule_of(s)
    return driver.build(schedule, tensors, s.target, target_host, name, binds, **options)


def _refuse_uncalled(s: object) -> None:
    """Say what to give in place of a function or an operation."""
    if isinstance(s, Operation):
        raise UsageError(f"build: {s} is an operation; give its tensor, {s.name}.op.output(0)")
    if callable(s) and not isinstance(s, type):
        name = getattr(s, "__name__", "f")
        raise UsageError(
            f"build: {name!r} is a function; call it with its sizes, lw.build({name}(...)), or "
            f"make a task, lw.build(lw.create_task({name}, args=(...)))"
        )
