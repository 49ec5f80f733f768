"""`create_measure_batch`: measure configurations of one's own choice, without a tuner."""

from __future__ import annotations

import dataclasses
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from loopwright.errors import UsageError
from loopwright.measure.building import Build
from loopwright.measure.measurer import Measurer
from loopwright.measure.options import MeasureOption
from loopwright.measure.result import MeasureError, MeasureInput, MeasureResult
from loopwright.runtime import Module, SizeFormula

if TYPE_CHECKING:
    from loopwright.task import Task


@dataclass(frozen=True)
class BuildResult:
    """Result of building one candidate.

    Attributes:
        filename: the file of the kernel, which ``loopwright.load_module`` reads; empty on failure.
            It is removed when the `MeasureBatch` is closed.
        arg_info: shape and dtype of each argument in calling order; empty on failure.
        error: the failure, or None.
        time_cost: seconds that building took.
    """

    filename: str
    arg_info: tuple[tuple[tuple[SizeFormula, ...], str], ...]
    error: MeasureError | None
    time_cost: float


class MeasureBatch:
    """Measures batches of inputs of one task; made by `create_measure_batch`.

    Its processes start with the first batch and end with ``close``, at the end of a ``with`` block,
    or when it is garbage-collected. Every candidate is measured to the end: there is no race.
    ``n_parallel`` is the number of builder processes.
    """

    def __init__(self, task: Task, option: MeasureOption) -> None:
        self.task = task
        self.n_parallel = option.builder.processes
        unraced = dataclasses.replace(option.runner, racing=False)
        self._option = MeasureOption(option.builder, unraced)
        self._open = ExitStack()
        self._measurer: Measurer | None = None
        self._folder: Path | None = None
        self._built = 0
        self._finalizer = weakref.finalize(self, self._open.close)

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build, run, and check each input; one result each, in order.

        Raises:
            UsageError: an input is of another task, or the batch is closed.
            RunError: a worker process cannot be started.
        """
        return list(self._started().measure(self._own(measure_inputs)))

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build each input, without running it; one result each, in order."""
        inputs, session = self._own(measure_inputs), self._started().session
        session.lower_as_here()
        candidates = [session.instantiate(item.config) for item in inputs]
        builds = [
            candidate if isinstance(candidate, MeasureError) else session.builds.add(candidate)
            for candidate in candidates
        ]
        session.wait_for([build for build in builds if isinstance(build, Build)])
        return [self._result(build) for build in builds]

    def close(self) -> None:
        """End its processes and remove the files of its builds."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _started(self) -> Measurer:
        if not self._finalizer.alive:
            raise UsageError("this measure_batch is closed; make another by create_measure_batch")
        if self._measurer is None:
            self._measurer = self._open.enter_context(Measurer(self.task, self._option))
        return self._measurer

    def _own(self, inputs: Sequence[MeasureInput]) -> list[MeasureInput]:
        """The inputs with this task in place of an equal one, as a log gives it."""
        for item in inputs:
            if (item.task.key, item.target) != (self.task.key, self.task.target):
                raise UsageError(
                    f"this measure_batch measures {self.task} for {self.task.target}; an input is "
                    f"of {item.task} for {item.target}"
                )
        return [MeasureInput(self.task, self.task.config(i.config), i.trial) for i in inputs]

    def _result(self, build: Build | MeasureError) -> BuildResult:
        if isinstance(build, MeasureError):
            return BuildResult("", (), build, 0.0)
        artifact = build.compiled
        if isinstance(artifact, MeasureError):
            return BuildResult("", (), artifact, build.seconds)
        if self._folder is None:
            self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self._built += 1
        path = artifact.save(self._folder / f"kernel{self._built}.{Module(artifact).format}")
        args = artifact.contents.functions[0].args
        info = tuple((tuple(arg.shape), arg.dtype) for arg in args)
        return BuildResult(str(path), info, None, build.seconds)


def create_measure_batch(task: Task, option: MeasureOption) -> MeasureBatch:
    """Make a function that measures lists of inputs of one task, as AutoTVM does.

    It takes a list of `MeasureInput`, returns a list of `MeasureResult`, and owns processes: close
    it, or use it in a ``with`` block.

    Raises:
        UsageError: ``option`` is no result of ``measure_option``.

    Example:
        >>> import loopwright as lw
        >>> task = lw.create_task("matmul", (16, 16, 16), "llvm")
        >>> option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
        >>> with lw.measure.create_measure_batch(task, option) as measure_batch:
        ...     inputs = [lw.MeasureInput(task, task.config_space.get(i)) for i in (0, 1)]
        ...     results = measure_batch(inputs)
        >>> [result.error_no == 0 for result in results]
        [True, True]
    """
    if not isinstance(option, MeasureOption):
        raise UsageError(
            "create_measure_batch: option is what measure_option(builder=..., runner=...) returns; "
            f"it is a {type(option).__name__}"
        )
    return MeasureBatch(task, option)
