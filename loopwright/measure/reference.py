"""What the right answer is: the template's NumPy reference, else the naive schedule of the DAG.

The answer is computed once per DAG and order of arguments and kept as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.errors import UsageError
from loopwright.measure.arguments import arguments, outputs
from loopwright.measure.building import Build, BuildPool, Candidate, Same, make_candidate
from loopwright.measure.check import Array, reference_problem
from loopwright.measure.result import MeasureError, TaskLike
from loopwright.measure.running import REFERENCE_S, RunSession
from loopwright.runtime import Arg, Artifact


class InputData:
    """Inputs that the template makes itself, for operators that need real ones."""

    def __init__(self, task: TaskLike) -> None:
        self._task = task

    @property
    def owner(self) -> str:
        """Names the data that the template makes; empty where it makes none."""
        return "" if self._task.make_inputs is None else repr((self._task.name, self._task.args))

    def __call__(self, args: Sequence[Arg]) -> list[Array] | None:
        """One array per input among these arguments, of its shape and dtype; None: use a seed.

        Raises:
            UsageError: what the template made does not fit.
        """
        if self._task.make_inputs is None:
            return None
        inputs = [arg for arg in args if not arg.output]
        arrays = [np.asarray(a) for a in self._task.make_inputs()]
        if [a.shape for a in arrays] != [arg.shape for arg in inputs]:
            raise UsageError(
                f"make_inputs of {self._task.name} must return one array per input, with shapes "
                f"{[list(arg.shape) for arg in inputs]}; it returned "
                f"{[list(a.shape) for a in arrays]}"
            )
        return [a.astype(arg.dtype) for a, arg in zip(arrays, inputs, strict=True)]


class References:
    """Right answers by key; computed when first asked for.

    Args:
        task: its ``reference`` is used if it has one.
        builds: builds the naive schedule.
        runs: runs it.
        announce: told once per key why there is no reference or why it is not the template's.
    """

    def __init__(
        self,
        task: TaskLike,
        builds: BuildPool,
        runs: RunSession,
        announce: Callable[[str], None],
    ) -> None:
        self._task, self._builds, self._runs = task, builds, runs
        self._announce = announce
        self._answers: dict[str, bytes | None] = {}

    def key(self, candidate: Candidate) -> str:
        """Names the answer to what a candidate computes."""
        return f"reference {candidate.dag.hash} {candidate.arg_ids}"

    def get(self, candidate: Candidate, artifact: Artifact) -> bytes | None:
        """The outputs one after the other; None when no reference can be had (announced)."""
        key = self.key(candidate)
        if key not in self._answers:
            answer = self._from_template(artifact)
            self._answers[key] = self._from_naive(candidate) if answer is None else answer
        return self._answers[key]

    def _from_template(self, artifact: Artifact) -> bytes | None:
        """The answer of the template's NumPy function; None where there is none that fits."""
        function = self._task.reference
        if function is None:
            return None
        inputs = self._runs.input_arrays(arguments(artifact))
        expected = outputs(artifact)
        arrays: list[Array] = []
        try:
            arrays = _as_arrays(function(*inputs))
            problem = reference_problem(expected, arrays)
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # a function of a user: sys.exit in it does not end the tuning
            problem = f"it raised {type(e).__name__}: {e}"
        if problem is None:
            pairs = zip(arrays, expected, strict=True)
            return b"".join(array.astype(arg.dtype).tobytes() for array, arg in pairs)
        self._announce(
            f"the NumPy reference of {self._task.name} cannot be used ({problem}); "
            "comparing with the naive schedule instead"
        )
        return None

    def _from_naive(self, c: Candidate) -> bytes | None:
        naive = make_candidate(c.dag, [], c.arg_ids, "naive")
        build = self._builds.add(naive, first=True, seconds=REFERENCE_S)
        self._builds.wait([build])
        answer = self._answer_of(build)
        if not isinstance(answer, MeasureError):
            return answer
        self._announce(
            f"answers of {self._task.name} cannot be checked: its naive schedule failed ({answer})"
        )
        return None

    def _answer_of(self, build: Build) -> bytes | MeasureError:
        outcome = build.outcome
        assert outcome is not None
        assert not isinstance(outcome, Same)
        return outcome if isinstance(outcome, MeasureError) else self._runs.outputs_of(outcome)


def _as_arrays(answer: Any) -> list[Array]:
    """What a NumPy reference returned: one array, or a list or tuple of them."""
    parts = answer if isinstance(answer, list | tuple) else [answer]
    return [np.asarray(part) for part in parts]
