"""Numbers derived from schedules of candidates one by one, where templates branch on every knob.

A template then runs for each candidate, in Python, about a thousand times a second. Where that
takes long enough to pay for the start of processes, and there are enough CPUs (two bring nothing),
candidates are shared out over them (joblib's loky; processes stay for the next time). The results
are the same, in the same order: each candidate is derived by the same code, independently.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError  # noqa: TID251 - what joblib raises

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.evaluation import constant_row
from loopwright.cost.symbolic.symbols import DataDependent, Number
from loopwright.env import usable_cpus
from loopwright.errors import InstantiationError, TimeLimitError
from loopwright.schedule.state import State
from loopwright.task import ConfigEntity
from loopwright.task.sampling import Digits
from loopwright.task.space import Scheduler
from loopwright.time_limit import TEMPLATE_S, limited

#: Derives numbers from a schedule's state, always the same count.
Derive = Callable[[State], list[Number]]
Rows = npt.NDArray[np.float32]
#: Candidates derived before the time of the others is estimated; seconds from which processes may
#: pay, whose start takes two; and CPUs that processes need.
TIMED, PAYS_S, CPUS = 32, 6.0, 4
#: Parts for each process, so that one with slow candidates keeps the others from waiting.
_PARTS = 4

_log = logging.getLogger("loopwright.cost")


def derived(
    task: Scheduler, derive: Derive, config: ConfigEntity
) -> tuple[list[Number] | None, str]:
    """Numbers of a configuration, whose choices may be symbols, and an empty text.

    None where the template fails, with a text unless that is its own refusal.
    """
    try:
        run = task.instantiate
        schedule, _ = limited(TEMPLATE_S, "the template", run, config, often=True)
        return derive(schedule.state), ""
    except (InstantiationError, TimeLimitError, DataDependent):
        return None, ""
    # A schedule that cannot be described costs its own candidates only.
    except Exception as exc:
        text = f"{task}: nothing can be derived from the schedule of {config}: {exc!r}"
        return None, text


def rows_of(
    task: Scheduler, derive: Derive, logged: Sequence[bool], digits: Digits
) -> tuple[Rows, list[str]]:
    """Rows of candidates (n, knobs) in turn, all NaN where a template fails; and warnings."""
    out = np.full((len(digits), len(logged)), np.nan, np.float32)
    marks, texts = np.array(logged, bool), []
    knobs = task.config_space.knobs.values()
    for row, choice in zip(out, digits, strict=True):
        chosen = {k.name: k.entities[at] for k, at in zip(knobs, choice, strict=True)}
        numbers, text = derived(task, derive, ConfigEntity(task.config_space, chosen, None))
        if numbers is not None:
            row[:] = constant_row([float(x) for x in numbers], marks)
        texts += [text] if text else []
    return out, texts


class Candidates:
    """Rows of a task's candidates, each derived by itself."""

    def __init__(self, task: Scheduler, derive: Derive, logged: Sequence[bool]) -> None:
        self._task, self._derive, self._logged = task, derive, tuple(logged)
        #: Reason why the candidates stay in this process, however many they are; empty if they need
        #: not.
        self.why_alone = ""

    def rows(self, digits: Digits) -> Rows:
        """Rows, float32 (n, numbers), of candidates (n, knobs); all NaN where a template fails."""
        begin = time.perf_counter()
        first = self.in_one_process(digits[:TIMED])
        rest = digits[TIMED:]
        expected = (time.perf_counter() - begin) / TIMED * len(rest)
        processes = len(usable_cpus())
        if self.why_alone or processes < CPUS or expected < PAYS_S:
            return np.concatenate([first, self.in_one_process(rest)])
        return np.concatenate([first, self.side_by_side(rest, processes)])

    def in_one_process(self, digits: Digits) -> Rows:
        return self._warned(rows_of(self._task, self._derive, self._logged, digits))

    def side_by_side(self, digits: Digits, processes: int) -> Rows:
        from joblib import Parallel, delayed

        parts = np.array_split(digits, processes * _PARTS)
        work = delayed(rows_of)
        jobs = [work(self._task, self._derive, self._logged, part) for part in parts]
        try:
            found = Parallel(processes, backend="loky", batch_size=1, max_nbytes=None)(jobs)
        except (PicklingError, BrokenProcessPool) as exc:
            # A template that holds what cannot be sent, or a process that died: neither is a fault
            # of a candidate.
            self.why_alone = _reason(exc)
            _log.warning(
                "%s: its candidates are derived in one process, since others cannot: %.300s",
                self._task,
                self.why_alone,
            )
            return self.in_one_process(digits)
        return np.concatenate([self._warned(part) for part in found])

    def _warned(self, found: tuple[Rows, list[str]]) -> Rows:
        rows, texts = found
        for text in texts:
            _log.warning("%s", text)
        return rows


def _reason(exc: BaseException) -> str:
    """Reason why candidates cannot go to other processes: the last line of the error, if any."""
    lines = [line for x in (exc, exc.__cause__) for line in str(x or "").splitlines()]
    said = [line.strip() for line in lines if line.strip(' "')]
    return f"{type(exc).__name__}: {said[-1] if said else ''}"
