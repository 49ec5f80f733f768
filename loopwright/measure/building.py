"""The parent's side of building: candidates as plain data, and the pool of builder processes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import InstantiationError
from loopwright.measure.options import LocalBuilder
from loopwright.measure.process import Failure, Outcome, Worker, take, wait_any
from loopwright.measure.result import ErrorKind, MeasureError

_TEXT = 2000
_KINDS = {"timeout": ErrorKind.BUILD_TIMEOUT, "memory": ErrorKind.MEMORY}


@dataclass(frozen=True, eq=False)
class Candidate:
    """What a builder needs to know of one schedule; nothing of the template that made it.

    Attributes:
        dag: the DAG (`loopwright.te.Dag`).
        trace: JSON-able steps.
        arg_ids: order of the arguments, as indices of the DAG's operations (``(index, k)`` for
            output k > 0 of one with several).
        name: of the function to be built.
        key: equal for candidates that give equal code.
        passes: settings of the `PassContext` that it is lowered in; empty: the default ones.
    """

    dag: Any
    trace: Any
    arg_ids: tuple[Any, ...]
    name: str
    key: str
    passes: Mapping[str, Any] = field(default_factory=dict)


def candidate(
    dag: Any,
    trace: Any,
    arg_ids: Sequence[Any],
    name: str,
    passes: Mapping[str, Any] | None = None,
) -> Candidate:
    """Describe a schedule to builders."""
    ids, passes = tuple(arg_ids), dict(passes or {})
    key = json.dumps([dag.hash, trace, ids, name, passes], separators=(",", ":"))
    return Candidate(dag, trace, ids, name, key, passes)


def instantiate(
    task: Any, config: Any, name: str = "main", passes: Mapping[str, Any] | None = None
) -> Candidate | MeasureError:
    """Run the template of a task with a configuration, in this process.

    Whatever the template raises becomes an ``INSTANTIATION`` error with its text, ``sys.exit(5)``
    too (``SystemExit: 5``); only Ctrl-C passes.

    Args:
        task: has ``instantiate(config) -> (schedule, arguments)``.
        config: a point of its space.
        name: of the function to be built.
        passes: settings of the `PassContext` that it is lowered in.
    """
    try:
        schedule, args = task.instantiate(config)
        ids = schedule.arg_ids(args)
        return candidate(schedule.dag, schedule.trace_json(), ids, name, passes)
    except InstantiationError as e:
        return MeasureError(ErrorKind.INSTANTIATION, str(e)[:_TEXT])
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        text = str(e).strip()
        return MeasureError(ErrorKind.INSTANTIATION, f"{type(e).__name__}: {text}"[:_TEXT])


@dataclass(frozen=True, eq=False)
class Built:
    """A candidate's artifact as it came from the builder."""

    candidate: Candidate
    manifest: dict[str, Any]
    objects: bytes


class BuildJob:
    """One build: waiting, running, or done with ``outcome`` set."""

    def __init__(self, candidate: Candidate, seconds: float) -> None:
        self.candidate, self.limit = candidate, seconds
        self.outcome: Built | MeasureError | None = None
        self.seconds = 0.0

    def finish(self, outcome: Outcome) -> None:
        """Take what the worker said or suffered."""
        self.seconds = outcome.seconds
        if isinstance(outcome, Failure):
            kind = _KINDS.get(outcome.how, ErrorKind.BUILD_CRASH)
            self.outcome = MeasureError(kind, outcome.text)
        elif not outcome.header["ok"]:
            self.outcome = MeasureError(outcome.header["kind"], outcome.header["text"])
        else:
            self.outcome = Built(self.candidate, outcome.header["manifest"], outcome.payload)


class BuildPool:
    """Builder processes with a queue. All waiting happens in `pump`.

    Args:
        option: how many builders, and their limits.
        target: canonical form of the target.
        workers: processes of another pool to be used; None: processes of its own.
    """

    def __init__(
        self,
        option: LocalBuilder,
        target: dict[str, Any],
        workers: list[Worker] | None = None,
    ) -> None:
        self.option, self.target = option, target
        self.workers = workers or [
            Worker("builder", option.memory_limit, max_requests=1000)
            for _ in range(option.processes)
        ]
        self.built = 0
        self._waiting: deque[BuildJob] = deque()
        self._running: dict[Worker, BuildJob] = {}

    def start(self) -> None:
        """Start all processes, without waiting for them."""
        for worker in self.workers:
            worker.start()

    def add(
        self, candidate: Candidate, *, first: bool = False, seconds: float | None = None
    ) -> BuildJob:
        """Queue a build; ``first`` puts it before all that wait."""
        job = BuildJob(candidate, seconds or self.option.timeout)
        if first:
            self._waiting.appendleft(job)
        else:
            self._waiting.append(job)
        self._dispatch()
        return job

    def pump(self, others: Sequence[Worker] = ()) -> None:
        """Wait until a builder, or one of ``others``, has something; then hand out more work."""
        wait_any([*others, *self._running])
        for worker in [w for w in self._running if w.outcome is not None]:
            self._running.pop(worker).finish(take(worker))
            self.built += 1
        self._dispatch()

    def wait(self, jobs: Sequence[BuildJob]) -> None:
        """Return when all these jobs are done."""
        while any(job.outcome is None for job in jobs):
            self.pump()

    def reset(self) -> None:
        """Forget all work; builders in the middle of it are killed."""
        self._waiting.clear()
        for worker in self._running:
            worker.kill()
            worker.outcome = None
        self._running.clear()

    def close(self) -> None:
        """End all processes."""
        self.reset()
        for worker in self.workers:
            worker.close()

    def _dispatch(self) -> None:
        for worker in self.workers:
            if not self._waiting:
                return
            if worker not in self._running:
                self._send(worker, self._waiting.popleft())

    def _send(self, worker: Worker, job: BuildJob) -> None:
        worker.refresh()
        worker.start()  # a dead worker knows nothing: see that before asking what it knows
        c = job.candidate
        header = {
            "dag": c.dag.hash,
            "target": self.target,
            "trace": c.trace,
            "arg_ids": c.arg_ids,
            "name": c.name,
            "passes": c.passes,
        }
        fresh = c.dag.hash not in worker.known
        payload = json.dumps(c.dag.to_json()).encode() if fresh else b""
        worker.submit(header, payload, seconds=job.limit)
        worker.known.add(c.dag.hash)
        self._running[worker] = job
