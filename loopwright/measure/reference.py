"""What the right answer is: the template's NumPy reference, else the naive schedule of the DAG.

The answer is computed once per DAG and order of arguments and kept as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.errors import UsageError
from loopwright.measure.building import BuildPool, Built, candidate
from loopwright.measure.check import Array, reduction_length, reference_problem
from loopwright.measure.result import MeasureError
from loopwright.measure.running import REFERENCE_S, RunSession, arguments, outputs


class InputData:
    """Inputs that the template makes itself (``make_inputs``), for operators that need real ones.

    Args:
        task: ``task.template.make_inputs(*task.args)`` gives one array per input, if it is there.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self._make = getattr(getattr(task, "template", None), "make_inputs", None)

    @property
    def owner(self) -> str:
        """Names the data that the template makes; empty where it makes none."""
        return "" if self._make is None else repr((self._task.name, self._task.args))

    def __call__(self, args: list[dict[str, Any]]) -> list[Array] | None:
        """One array per input among these arguments, of its shape and dtype; None: use a seed.

        Raises:
            UsageError: what the template made does not fit.
        """
        if self._make is None:
            return None
        wanted = [a for a in args if not a["output"]]
        made = [np.asarray(a) for a in self._make(*self._task.args)]
        if [list(a.shape) for a in made] != [list(w["shape"]) for w in wanted]:
            raise UsageError(
                f"make_inputs of {self._task.name} must return one array per input, with shapes "
                f"{[w['shape'] for w in wanted]}; it returned {[list(a.shape) for a in made]}"
            )
        return [a.astype(w["dtype"]) for a, w in zip(made, wanted, strict=True)]


class References:
    """Right answers by key; computed when first asked for.

    Args:
        task: its ``reference(*inputs) -> array or list of arrays`` is used if it has one.
        builds: builds the naive schedule.
        runs: runs it.
        announce: told once per key why there is no reference or why it is not the template's.
    """

    def __init__(
        self,
        task: Any,
        builds: BuildPool,
        runs: RunSession,
        announce: Callable[[str], None],
    ) -> None:
        self._task, self._builds, self._runs = task, builds, runs
        self._announce = announce
        self._known: dict[str, bytes | None] = {}

    def key(self, built: Built) -> str:
        """Names the answer to what a candidate computes."""
        c = built.candidate
        return f"reference {c.dag.hash} {c.arg_ids}"

    def length(self, built: Built) -> int:
        """Terms added up on the way to an output; scales the tolerance."""
        return reduction_length(built.candidate.dag)

    def get(self, built: Built) -> bytes | None:
        """The outputs one after the other; None when no reference can be had (announced)."""
        key = self.key(built)
        if key not in self._known:
            self._known[key] = self._compute(built)
        return self._known[key]

    def _compute(self, built: Built) -> bytes | None:
        template = getattr(self._task, "template", None)
        function = getattr(self._task, "reference", None) or getattr(template, "reference", None)
        if callable(function):
            answer = self._from_template(function, built)
            if answer is not None:
                return answer
        return self._from_naive(built)

    def _from_template(self, function: Callable[..., Any], built: Built) -> bytes | None:
        args = arguments(built.manifest)
        inputs = self._runs.input_arrays(args)
        wanted = outputs(built.manifest)
        try:
            answer = function(*inputs)
            found = list(answer) if isinstance(answer, list | tuple) else [answer]
            arrays = [np.asarray(a) for a in found]
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # sys.exit in it does not end the tuning
            problem: str | None = f"it raised {type(e).__name__}: {e}"
        else:
            problem = reference_problem(wanted, arrays)
        if problem is None:
            parts = zip(arrays, wanted, strict=True)
            return b"".join(a.astype(w["dtype"]).tobytes() for a, w in parts)
        self._announce(
            f"the NumPy reference of {self._task.name} cannot be used ({problem}); "
            "comparing with the naive schedule instead"
        )
        return None

    def _from_naive(self, built: Built) -> bytes | None:
        c = built.candidate
        naive = candidate(c.dag, [], c.arg_ids, "naive")
        job = self._builds.add(naive, first=True, seconds=REFERENCE_S)
        self._builds.wait([job])
        if isinstance(job.outcome, Built):
            answer = self._runs.outputs_of(job.outcome)
        else:
            assert job.outcome is not None
            answer = job.outcome
        if not isinstance(answer, MeasureError):
            return answer
        self._announce(
            f"answers of {self._task.name} cannot be checked: its naive schedule failed ({answer})"
        )
        return None
