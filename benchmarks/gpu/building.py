"""Propose candidates and build them; needs no device, and goes on where it was broken off.

Candidates are proposed by the learned tuner: without measurements half by the analytical model and
half by chance, and once results lie in the folder by what was learnt from them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np

from benchmarks.gpu.build_role import task_of
from benchmarks.gpu.cases import Case
from benchmarks.gpu.folder import Folder, building, is_good
from benchmarks.gpu.journal import Journal, Line
from benchmarks.gpu.messages import GpuBuildRequest, GpuBuilt
from loopwright.cost.analytical import AnalyticalModel
from loopwright.errors import InternalError
from loopwright.measure import MeasureError, MeasureResult
from loopwright.measure.workers.process import (
    FailureCause,
    Outcome,
    Worker,
    WorkerFailure,
    WorkerProgram,
    take,
    wait_any,
)
from loopwright.measure.workers.protocol import Failed
from loopwright.records import ErrorKind
from loopwright.task import Task
from loopwright.task.sampling import digits_of
from loopwright.tuner import XGBTuner
from loopwright.tuner.run.state import point

_MODULE = "benchmarks.gpu.build_role"
#: Workers are never replaced for their size: builders of this benchmark live for minutes.
_ANY_SIZE = 1 << 50


def build(
    folder: Folder,
    cases: Sequence[Case],
    trials: int,
    *,
    minutes: float,
    jobs: int,
    seconds: float,
) -> bool:
    """Propose and build until each case has its candidates, or the time is over.

    Args:
        folder: where programs go.
        cases: which.
        trials: candidates of a case, the default configuration among them.
        minutes: after this long nothing more is begun.
        jobs: processes that build side by side.
        seconds: that one candidate may take.

    Returns:
        Whether all is built.
    """
    end = time.monotonic() + 60 * minutes
    with building(folder) as plan, _workers(jobs) as workers:
        for case in cases:
            if time.monotonic() < end:
                _propose(folder, plan, case, min(trials, case.trials or trials))
            _build_case(folder, plan, case, workers, seconds, end)
            left = _unbuilt(folder, case)
            print(_progress(folder, case, left), flush=True)
            if left or not folder.rounds(case):
                return False
    return True


@contextmanager
def _workers(jobs: int) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        workers = [
            Worker("builder", 0, max_rss=_ANY_SIZE, program=WorkerProgram(_MODULE))
            for _ in range(jobs)
        ]
        for worker in workers:
            stack.enter_context(closing(worker))
        yield workers


# ---------------------------------------------------------------- proposals


def _propose(folder: Folder, plan: Journal, case: Case, trials: int) -> None:
    """Enter a round of candidates in the plan, where there are fewer than there shall be."""
    rounds = folder.rounds(case)
    have = sum(len(x["indices"]) for x in rounds)
    if have and (have >= trials or not case.template):
        return
    line: Line = {"what": "round", "case": case.name, "number": len(rounds)}
    if not case.template:
        plan.append({**line, "indices": [0], "predicted": [0.0], "looked_at": 0, "pruned": {}})
        return
    begun = time.perf_counter()
    task = task_of(case.name, folder.purpose.small, folder.purpose.target)
    tuner = _taught(folder, case, task)
    default = task.config_space.default_index
    first = [] if have else [default]
    tuner.exclude(first)
    indices = first + [point(c) for c in tuner.ask(trials - have - len(first))]
    if not indices and have:
        return
    found = AnalyticalModel(task).predict(digits_of(task.config_space, indices))
    plan.append(
        {
            **line,
            "indices": indices,
            "predicted": [round(float(x), 4) for x in found],
            "looked_at": tuner.pruning.looked_at,
            "pruned": dict(tuner.pruning.reasons),
            "learnt_from": sum(n in folder.trials(case) for x in rounds for n in x["indices"]),
            "seconds": round(time.perf_counter() - begun, 3),
        }
    )


def _taught(folder: Folder, case: Case, task: Task) -> XGBTuner:
    """A tuner that knows what was proposed and measured, round by round."""
    tuner = XGBTuner(task, seed=folder.purpose.seed)
    trials, space = folder.trials(case), task.config_space
    for x in folder.rounds(case):
        tuner.exclude(x["indices"])
        tuner.tell([(space.get(n), result_of(trials[n])) for n in x["indices"] if n in trials])
    return tuner


def result_of(trial: Line) -> MeasureResult:
    """A trial as tuners are told of it."""
    if trial["outcome"] == "dropped":
        return MeasureResult(times=tuple(trial["times"]), dropped=True)
    if trial["outcome"] == "ok":
        return MeasureResult(times=tuple(trial["times"]))
    wrong = trial["outcome"] == "wrong"
    kind = ErrorKind.WRONG_ANSWER if wrong else ErrorKind.RUN_ERROR
    return MeasureResult(error=MeasureError(kind, trial["text"]))


# ---------------------------------------------------------------- building


def _unbuilt(folder: Folder, case: Case) -> list[int]:
    """Proposed candidates of which nothing is known yet."""
    known = folder.candidates(case)
    return [n for x in folder.rounds(case) for n in x["indices"] if n not in known]


def _build_case(
    folder: Folder,
    plan: Journal,
    case: Case,
    workers: Sequence[Worker],
    seconds: float,
    end: float,
) -> None:
    """Build what is not built, side by side; each outcome is written as it comes."""
    left = _unbuilt(folder, case)
    doing: dict[Worker, int] = {}
    while True:
        for worker in workers:
            if worker not in doing and left and time.monotonic() < end:
                doing[worker] = left.pop(0)
                worker.submit(_request(folder, case, doing[worker]), seconds=seconds)
        if not doing:
            return
        for worker in wait_any(doing):
            index = doing.pop(worker)
            line = {"what": "candidate", "case": case.name, "index": index}
            plan.append({**line, **_outcome(take(worker))})


def _request(folder: Folder, case: Case, index: int) -> GpuBuildRequest:
    purpose = folder.purpose
    return GpuBuildRequest(
        case=case.name,
        small=purpose.small,
        target=purpose.target,
        index=index,
        path=str(folder.artifact(case, index)),
    )


def _outcome(reply: Outcome) -> dict[str, Any]:
    """What a line says of a candidate."""
    match reply:
        case GpuBuilt():
            return {
                "outcome": reply.outcome,
                "text": reply.text,
                "lower_s": round(reply.lower_s, 4),
                "compile_s": round(reply.compile_s, 4),
                "resources": json.loads(reply.resources),
            }
        case Failed():
            return {"outcome": "failed", "text": reply.text}
        case WorkerFailure():
            late = reply.cause is FailureCause.TIMEOUT
            return {"outcome": "timeout" if late else "crashed", "text": reply.text}
    raise InternalError(f"a builder answered with a {type(reply).__name__}")


def _progress(folder: Folder, case: Case, left: Sequence[int]) -> str:
    outcomes = [x["outcome"] for x in folder.candidates(case).values()]
    counts = ", ".join(f"{outcomes.count(x)} {x}" for x in dict.fromkeys(outcomes))
    return f"{case.name}: {counts or 'nothing yet'}; {len(left)} to build"


# ---------------------------------------------------------------- what building tells


def figures(folder: Folder, case: Case) -> dict[str, Any]:
    """What the plan tells of a case: times of building, what was refused, what spills.

    Returns:
        ``compile_s`` and ``compile_spread`` are of those that were compiled; shares are of those
        that were proposed, or, of spills, of those that were built.
    """
    lines = list(folder.candidates(case).values())
    count = max(len(lines), 1)
    compiled = [x["compile_s"] for x in lines if x["outcome"] == "built"]
    outcomes = [x["outcome"] for x in lines]
    built = [x for x in lines if x["outcome"] == "built"]
    rounds = folder.rounds(case)
    looked_at = sum(x["looked_at"] for x in rounds)
    return {
        "case": case.name,
        "proposed": sum(len(x["indices"]) for x in rounds),
        "done": len(lines),
        "pruned": sum(sum(x["pruned"].values()) for x in rounds) / max(looked_at, 1),
        "refused": outcomes.count("refused") / count,
        "illegal": outcomes.count("illegal") / count,
        "failed": sum(outcomes.count(x) for x in ("failed", "crashed", "timeout")) / count,
        "built": len(built),
        "compile_s": float(np.median(compiled)) if compiled else None,
        "compile_spread": list(np.percentile(compiled, [10, 90])) if compiled else None,
        "spills": sum(_most(x, "spill_bytes") > 0 for x in built) / len(built) if built else None,
        "registers_of_best": _registers_of_best(folder, case),
        "measured": len(folder.trials(case)),
        "good": sum(map(is_good, folder.trials(case).values())),
    }


def _most(line: Line, what: str) -> int:
    """The most that a kernel of a candidate takes of something."""
    return max((taken[what] or 0 for taken in line["resources"].values()), default=0)


def _registers_of_best(folder: Folder, case: Case) -> int | None:
    """Registers of the candidate that the analytical model likes best of those that were built."""
    known = folder.candidates(case)
    ranked = [
        (score, -k, n)
        for x in folder.rounds(case)
        for k, (n, score) in enumerate(zip(x["indices"], x["predicted"], strict=True))
        if n in known and known[n]["outcome"] == "built" and known[n]["resources"]
    ]
    return _most(known[max(ranked)[2]], "registers") if ranked else None
