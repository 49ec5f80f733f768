"""The share of PyTorch in the time of a compiled model, for a warning to its user."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping

from loopwright.errors import FallbackWarning
from loopwright.executors import GraphExecutor
from loopwright.graph.ir.expr import HostFunction

#: Runs that are timed, behind one that is not; the share from which on there is a warning; the
#: operators that it names.
_RUNS, _MOST, _NAMED = 3, 0.2, 6


class FallbackShare:
    """Times the first runs of a model with nodes that PyTorch computes; warns at most once."""

    def __init__(self) -> None:
        self.known = False  # enough runs were timed
        self._runs, self._whole = 0, 0.0
        self._by_operators: defaultdict[str, float] = defaultdict(float)

    def run(self, executor: GraphExecutor, hosts: Mapping[str, HostFunction]) -> None:
        """Run a model once; ``hosts`` are the steps that PyTorch computes."""
        if not hosts or self.known:
            self.known = True
            executor.run()
            return
        seconds = executor.seconds_of_steps()
        self._runs += 1
        if self._runs == 1:
            return
        self._whole += sum(seconds)
        for step, took in zip(executor.program.steps, seconds, strict=True):
            if step.kernel in hosts:
                self._by_operators[_operators(hosts[step.kernel])] += took
        self.known = self._runs > _RUNS
        if self.known:
            self._warn()

    def _warn(self) -> None:
        share = sum(self._by_operators.values()) / self._whole
        if share <= _MOST:
            return
        most = sorted(self._by_operators.items(), key=lambda pair: -pair[1])[:_NAMED]
        named = ", ".join(f"{name} ({took / self._whole:.0%})" for name, took in most)
        more = len(self._by_operators) - len(most)
        warnings.warn(
            f"{share:.0%} of the time of this compiled model is PyTorch's, which computes what has "
            f"no kernel: {named}{f', and {more} more' if more else ''}; the reasons are told by "
            "loopwright.graph.torch_backend.compiled_models()[-1].report",
            FallbackWarning,
            stacklevel=2,
        )


def _operators(host: HostFunction) -> str:
    """The operators that a function computes, without the names of their nodes."""
    return " > ".join(part.partition(" ")[0] for part in (host.span or host.name).split(" > "))
