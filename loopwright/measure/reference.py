"""Right answers: from the template's NumPy reference, else from the naive schedule of the DAG.

The naive schedule adds up sums in float64: one term after the other, a long sum in float32 would be
less accurate than the candidates are. Where sums go into further functions, both are computed:
their difference is the effect of rounding on this program.

The answers to both sets of inputs are computed once per DAG and order of arguments and kept as
bytes. For inputs at the edges of their types NumPy evaluates the DAG at some elements
(`loopwright.te.error_bounds`): all of a small output, some thousands of a large one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from loopwright import dtypes
from loopwright.errors import TimeLimitError
from loopwright.measure.building import BuildPool
from loopwright.measure.candidate import Candidate
from loopwright.measure.comparison import (
    Array,
    Closeness,
    KnownElements,
    computed_in,
    reduction_length,
    reference_problem,
    split,
)
from loopwright.measure.inputs import EDGES, SETS, arguments
from loopwright.measure.result import MeasureError, TaskLike
from loopwright.measure.runner import REFERENCE_S, Answers, Runner
from loopwright.runtime import Arg, Artifact, runs_on_cpu
from loopwright.target import Target
from loopwright.time_limit import limited

if TYPE_CHECKING:
    from loopwright.te import ArgId, Dag


#: A value this near to a multiple is taken for it.
_NEAR = 0.25
#: Elements, of all operations and reductions, that are computed of the answer to a set of inputs at
#: the edges of their types, where they are few, and at most; and the most and the fewest elements
#: of an output that are looked at.
_WORK, _MOST_WORK = 1 << 18, 1 << 22
#: Elements that tell whether the terms of a sum cancel.
_FEW_WORK = 1 << 12
_MOST, _FEWEST = 1 << 16, 16
#: The answers to both `SETS`, whether they are exact on set 1, and the effects of rounding.
_Right = tuple[tuple[bytes, bytes], bool, tuple[float, ...]]


class References:
    """Right answers by key; reasons for the lack of a template's are announced once per key."""

    def __init__(
        self,
        task: TaskLike,
        builds: BuildPool,
        runner: Runner,
        announce: Callable[[str], None],
    ) -> None:
        self._task, self._builds, self._runner = task, builds, runner
        self._announce = announce
        self._answers: dict[str, Answers | None] = {}

    def get(self, candidate: Candidate, artifact: Artifact) -> Answers | None:
        """Answers to all sets of inputs; None where there is no reference, which is announced.

        Tasks of one runner that compute the same share the answers of the naive schedule, but not
        those of a template's own reference.
        """
        task, args = self._task, arguments(artifact)
        owner = "" if task.reference is None else repr((task.name, task.args))
        plan = self._runner.plan(args)
        key = f"reference {owner} {candidate.dag.hash} {candidate.arg_ids} {plan}"
        if key not in self._answers:
            self._answers[key] = self._right(key, candidate, args)
        return self._answers[key]

    def _right(self, key: str, c: Candidate, args: Sequence[Arg]) -> Answers | None:
        steps = self._steps(c, args)
        right = self._from_template(args, steps)
        if right is None:
            right = self._from_naive(c, args, steps is not None)
        if right is None:
            return None
        sets, exact, rounding = right
        edges: list[list[KnownElements]] = []
        if self._task.make_inputs is None:
            edges = [self._known(c, args, number) for number in EDGES]
        return Answers(key, sets, exact, rounding or self._cancelled(c, args), edges)

    def _known(
        self, c: Candidate, args: Sequence[Arg], number: int, work: int = _WORK
    ) -> list[KnownElements]:
        from loopwright.te import read_arg_id  # they know tensors

        pairs = list(zip(map(read_arg_id, c.arg_ids), args, strict=True))
        sources = [op for (op, _), arg in pairs if not arg.output]
        inputs = dict(zip(sources, self._runner.input_arrays(args, number), strict=True))
        # Under -fastmath nothing holds of infinities and NaN.
        finite = bool(self._task.target.options.get("fastmath"))
        return [
            _elements(c.dag, inputs, *place, finite=finite, work=work)
            for place, arg in pairs
            if arg.output
        ]

    def _steps(self, candidate: Candidate, args: Sequence[Arg]) -> list[float | None] | None:
        """For each output the power of two of which the exact answer to set 1 is a multiple.

        The result is None where the answer is not exact, an element where its output is rounded.
        """
        from loopwright.te import exactness, read_arg_id  # not at the top: they know tensors

        if not self._runner.plan(args).largest:
            return None
        exact = exactness(candidate.dag)
        if exact is None:
            return None
        places = map(read_arg_id, candidate.arg_ids)
        return [exact.steps[p] for p in places if not candidate.dag.ops[p[0]].is_placeholder]

    def _from_template(
        self, args: Sequence[Arg], steps: Sequence[float | None] | None
    ) -> _Right | None:
        """The answers of the template's NumPy function; None where there is none that fits."""
        if self._task.reference is None:
            return None
        expected = [arg for arg in args if arg.output]
        try:
            results = [self._result(self._runner.input_arrays(args, n), expected) for n in SETS]
        except TimeLimitError as e:
            results = [str(e)]
        problem = next((r for r in results if isinstance(r, str)), None)
        if problem is not None:
            self._announce(
                f"the NumPy reference of {self._task.name} cannot be used ({problem}); "
                "comparing with the naive schedule instead"
            )
            return None
        first, second = (r for r in results if not isinstance(r, str))
        exact = None if steps is None else _snapped(second, steps)
        if exact is not None and not self._equal_in_float32(args, expected, exact):
            exact = None
        sets = _as_bytes(first, expected), _as_bytes(exact or second, expected)
        return sets, exact is not None, ()

    def _result(self, inputs: Sequence[Array], expected: Sequence[Arg]) -> list[Array] | str:
        function = self._task.reference
        assert function is not None
        try:
            answer = limited(REFERENCE_S, "it", function, *inputs)
            parts = answer if isinstance(answer, list | tuple) else [answer]
            arrays = [np.asarray(part) for part in parts]
            return reference_problem(expected, arrays) or arrays
        except KeyboardInterrupt:
            raise
        except TimeLimitError as e:
            return str(e)
        except BaseException as e:  # a function of a user: sys.exit in it does not end the tuning
            return f"it raised {type(e).__name__}: {e}"

    def _equal_in_float32(
        self, args: Sequence[Arg], expected: Sequence[Arg], answer: Sequence[Array]
    ) -> bool:
        """Whether the NumPy function, which computes in them, is accurate on short floats."""
        inputs = self._runner.input_arrays(args, 1)
        if all(a.dtype.name not in dtypes.HALVES for a in inputs):
            return True
        wide = [a.astype(np.float32) if a.dtype.name in dtypes.HALVES else a for a in inputs]
        again = self._result(wide, expected)
        if isinstance(again, str):
            return False
        return _as_bytes(again, expected) == _as_bytes(answer, expected)

    def _from_naive(self, c: Candidate, args: Sequence[Arg], exact: bool) -> _Right | None:
        from loopwright.te import sums_are_read, with_wide_sums  # they know tensors

        right = self._naive_answers(*with_wide_sums(c.dag, c.arg_ids))
        if isinstance(right, MeasureError):
            self._announce(
                f"answers of {self._task.name} cannot be checked: its naive schedule failed "
                f"({right})"
            )
            return None
        other = self._naive_answers(c.dag, c.arg_ids) if sums_are_read(c.dag) else None
        if other is None or isinstance(other, MeasureError):
            return right, exact, ()
        return right, exact, _apart(right, other, [arg for arg in args if arg.output])

    def _cancelled(self, c: Candidate, args: Sequence[Arg]) -> tuple[float, ...]:
        """Effect of rounding on outputs in which the terms of all sums cancel; else 0."""
        length = reduction_length(c.dag)
        close, bounds = Closeness(length, computed_in(c.dag)), []
        outputs = [arg for arg in args if arg.output]
        for known, arg in zip(self._known(c, args, 0, _FEW_WORK), outputs, strict=True):
            bound = known.errors[np.isfinite(known.errors)].max(initial=0.0)
            scale = np.abs(known.values[np.isfinite(known.values)]).max(initial=0.0)
            usual = length * close.allowed(arg.dtype.name, float(scale), 0)
            bounds.append(float(bound) if bound > usual else 0.0)
        return tuple(bounds)

    def _naive_answers(self, dag: Dag, ids: Sequence[ArgId]) -> tuple[bytes, bytes] | MeasureError:
        on_cpu = runs_on_cpu(self._task.target.kind)
        # A schedule without bound loops runs on the CPU.
        target = None if on_cpu else Target("llvm").canonical
        naive = Candidate(dag, [], tuple(ids), "naive", target=target)
        build = self._builds.add(naive, first=True, seconds=REFERENCE_S)
        self._builds.wait([build])
        artifact, answers = build.compiled, []
        if isinstance(artifact, MeasureError):
            return artifact
        for number in SETS:
            run = partial(self._runner.outputs_of, artifact, number)
            answer = self._runner.undisturbed(run)
            if isinstance(answer, MeasureError):
                return answer
            answers.append(answer)
        return answers[0], answers[1]


def _elements(
    dag: Dag, inputs: Mapping[int, Array], op: int, output: int, *, finite: bool, work: int
) -> KnownElements:
    """Right elements of an output: as many as ``work`` allows to compute."""
    from loopwright.te import Elements, TooMuchWorkError, why_in_order

    size = math.prod(dag.ops[op].static_shape)
    terms = math.prod(a.count for a in dag.ops[op].reduce_axes)
    count = min(size, max(_FEWEST, min(_MOST, work // terms)))
    while count:
        places = np.arange(size)
        if count < size:
            drawn = np.random.default_rng(count).integers(0, size, count)
            places = np.sort(np.append(drawn[2:], [0, size - 1]))
        with np.errstate(all="ignore"):
            try:
                elements = Elements(
                    dag, inputs, _MOST_WORK, finite=finite, why_in_order=why_in_order
                )
                right = elements.at(op, output, places)
            except TooMuchWorkError:
                count //= 8
                continue
            error = np.zeros(places.size) if right.error is None else 2.0 * right.error
        values = right.value if right.value.dtype.kind == "f" else right.value.astype(np.int64)
        return KnownElements(places, values, error)
    return KnownElements(np.empty(0, np.int64), np.empty(0), np.empty(0))


def _apart(
    one: Sequence[bytes], other: Sequence[bytes], expected: Sequence[Arg]
) -> tuple[float, ...]:
    """Largest finite difference of two answers, for each output; 0 where they must be equal."""
    most = [0.0] * len(expected)
    for a, b in zip(one, other, strict=True):
        for i, (x, y) in enumerate(zip(split(a, expected), split(b, expected), strict=True)):
            if not dtypes.is_float(x.dtype.name) or not x.size:
                continue
            with np.errstate(all="ignore"):
                difference = np.abs(x.astype(np.float64) - y.astype(np.float64))
            finite = difference[np.isfinite(difference)]
            most[i] = max(most[i], float(finite.max(initial=0.0)))
    return tuple(most)


def _snapped(arrays: Sequence[Array], steps: Sequence[float | None]) -> list[Array] | None:
    """The exact answer from one that may have been computed in another way, an FFT for example.

    Each element is a multiple of the array's step, a power of two; None marks a rounded array.
    Returns None where an element is too far from any multiple.
    """
    exact = []
    for array, step in zip(arrays, steps, strict=True):
        if step is None or array.dtype.kind in "iub":
            exact.append(array)
            continue
        with np.errstate(all="ignore"):
            multiples = array.astype(np.float64) / step
            rounded = np.rint(multiples)
            if not bool((np.abs(multiples - rounded) < _NEAR).all()):
                return None
        exact.append(rounded * step)
    return exact


def _as_bytes(arrays: Sequence[Array], expected: Sequence[Arg]) -> bytes:
    pairs = zip(arrays, expected, strict=True)
    return b"".join(array.astype(arg.dtype).tobytes() for array, arg in pairs)
