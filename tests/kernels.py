"""Compiled kernels of earlier runs of the tests, and a `build` that uses them.

They lie in the folder that pytest keeps for such things; `make clean` removes them. Tests that
change the compiler or look at the texts of a module take `loopwright.build` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuzzing.differential import ArtifactCache
from loopwright.lowering.context import PassContext
from loopwright.runtime.module import Module
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.te import Tensor

KERNELS = ArtifactCache(Path(__file__).parents[1] / ".pytest_cache" / "d" / "kernels")


def build(
    s: Schedule, args: Sequence[Tensor], target: str | Target | None = None, name: str = "main"
) -> Module:
    """As `loopwright.build`: compile a schedule for calls with NumPy arrays."""
    resolved = Target(target) if target is not None else Target.current()
    ids, context = s.arg_ids(args), PassContext.current()
    dag, trace = s.dag.to_json(), s.trace_json()
    return Module(KERNELS.compile(dag, trace, ids, resolved, context, name))
