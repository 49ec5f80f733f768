"""A process that builds candidates; it can be killed where a compiler does not end."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from benchmarks.gpu.cases import BY_NAME
from benchmarks.gpu.messages import GpuBuildRequest, GpuBuilt
from benchmarks.gpu.peak import peak_artifact
from loopwright.driver import LoweredProgram, compile_lowered
from loopwright.errors import (
    BuildError,
    CodegenError,
    InternalError,
    LowerError,
    ScheduleError,
    SpaceError,
)
from loopwright.lowering import lower_ids
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.measure.workers.protocol import Message, Reply
from loopwright.measure.workers.worker import main
from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.target import Target
from loopwright.task import Task, create_task


@lru_cache(maxsize=4)
def task_of(case: str, small: bool, target: str) -> Task:
    """The task of a case."""
    found = BY_NAME[case]
    return create_task(found.template, found.args(small), target)


class GpuBuildRole:
    """Builds one candidate a request."""

    def answer(self, request: Message) -> Reply:
        """Build a candidate and write its program."""
        if not isinstance(request, GpuBuildRequest):
            raise InternalError(f"a builder was sent a {type(request).__name__}")
        begun = time.perf_counter()
        lowered: float | None = None
        try:
            if BY_NAME[request.case].template:
                program, target = _lowered(request)
                lowered = time.perf_counter()
                artifact = compile_lowered(program, target)
            else:
                lowered = begun
                artifact = peak_artifact(Target(request.target))
        except (SpaceError, ScheduleError) as error:
            return _reply("illegal", str(error), begun, lowered)
        except LowerError as error:
            return _reply("refused", str(error), begun, lowered)
        except (BuildError, CodegenError) as error:
            return _reply("failed", str(error), begun, lowered)
        reply = _reply("built", "", begun, lowered, _resources(artifact))
        path = Path(request.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        artifact.save(path)
        return reply


def _lowered(request: GpuBuildRequest) -> tuple[LoweredProgram, Target]:
    """The program of a candidate, checked against the limits of the target."""
    task = task_of(request.case, request.small, request.target)
    s, args = task.instantiate(task.config_space.get(request.index))
    ids = s.arg_ids(args)
    func = lower_ids(s, ids, "candidate")
    verify_gpu_limits(func, limits_of(task.target.options), s)
    return LoweredProgram(func, s, ids), task.target


def _resources(artifact: Artifact) -> str:
    """What the kernels of a program take, as JSON."""
    entry = artifact.contents.function(artifact.entry)
    code = DeviceCode.from_bytes(artifact.objects, len(entry.args))
    return json.dumps({name: asdict(taken) for name, taken in code.resources.items()})


def _reply(
    outcome: str, text: str, begun: float, lowered: float | None, resources: str = "{}"
) -> GpuBuilt:
    """The reply; what was not reached has taken no time."""
    now = time.perf_counter()
    middle = now if lowered is None else lowered
    return GpuBuilt(
        outcome=outcome,
        text=text,
        lower_s=middle - begun,
        compile_s=now - middle,
        resources=resources,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda name: GpuBuildRole()))
