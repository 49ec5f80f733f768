"""``autotvm.measure.measure_methods``: builders and runners under AutoTVM's path."""

from __future__ import annotations

from typing import NoReturn

from loopwright.errors import no_such_name
from loopwright.measure import LocalBuilder, LocalRunner

__all__ = ["LocalBuilder", "LocalRunner"]

_REMOTE = "tune on the machine itself with LocalRunner, and merge the logs"
_INSTEAD = {
    "RPCRunner": _REMOTE,
    "check_remote": _REMOTE,
    "request_remote": _REMOTE,
    "set_cuda_target_arch": "name the architecture in the target: Target('cuda -arch=sm_90')",
}


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.autotvm.measure.measure_methods", name, _INSTEAD)
