"""Options of the backend: ``torch.compile(..., options={...})``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from loopwright.errors import GraphError, did_you_mean
from loopwright.graph.frontend.torch.memory import torch_package
from loopwright.target import Target
from loopwright.task import TargetLike

#: The log of tuning where no history is named.
LOG = "torch_compile.jsonl"


@dataclass(frozen=True)
class Options:
    """Options of the backend.

    Attributes:
        target: the target of kernels; None is the current target, or ``llvm`` with as many threads
            as PyTorch has (``torch.get_num_threads()``).
        history: a log, or whatever else `loopwright.compile` takes as its history.
        trials: number of results that the log has to hold before the model is built; None tunes
            nothing. The log is the history, which must be a path then, or `LOG` in the current
            folder.
        timeout: of tuning, such as ``"10m"``, in place of trials or beside them.
        fallback: whether PyTorch computes unsupported calls; False refuses them.
        freezing: whether weights keep the values of the first call, as with inductor's option of
            this name: changes are not looked for, and a later one may count or not.
    """

    target: TargetLike = None
    history: Any = None
    trials: int | None = None
    timeout: float | str | None = None
    fallback: bool = True
    freezing: bool = False

    @property
    def tunes(self) -> bool:
        return self.trials is not None or self.timeout is not None

    @property
    def log(self) -> str:
        return LOG if self.history is None else os.fspath(self.history)

    @property
    def records(self) -> Any:
        """The history from which the model is built; None: the records in force."""
        return self.log if self.tunes else self.history

    @property
    def resolved(self) -> Target:
        if self.target is not None:
            return self.target if isinstance(self.target, Target) else Target(self.target)
        current = Target.current()
        if str(current) != str(Target("llvm")):
            return current
        threads = torch_package().get_num_threads()
        return current if threads == os.cpu_count() else Target(f"llvm -num-threads={threads}")


def options_of(values: Mapping[str, Any] | None) -> Options:
    """The options of a dictionary; GraphError where one is unknown, or malformed."""
    names = [f.name for f in fields(Options)]
    for name in values or {}:
        if name not in names:
            raise GraphError(
                f"the backend loopwright has no option {name!r}{did_you_mean(str(name), names)}; "
                f"it has {', '.join(names)}"
            )
    options = Options(**(values or {}))
    trials = options.trials
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int)):
        raise GraphError(f"option trials is {trials!r}; give a whole number")
    if options.tunes and not isinstance(options.history, (str, os.PathLike, type(None))):
        raise GraphError(
            "trials and timeout tune into a log: give its path as the option history, got a "
            f"{type(options.history).__name__}"
        )
    return options
