"""The check of one kernel in a runner: it must compute the right outputs and touch nothing else.

First on poisoned outputs, the arrays against the end of their pages; then, against the start, on
the outputs just filled and on other inputs; once more when a few elements have changed; and on
inputs at the edges of their types, on outputs that hold something else. So a kernel is detected
that works only once, that adds to old outputs, that touches other memory, that is right on ordinary
numbers alone, or that looks at its outputs to see whether there is anything left to do. The last
kind shows in the times too: called again and again on equal inputs, as when it was timed, it is far
faster than here.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from loopwright import runtime
from loopwright.measure.comparison import OTHER_PATTERN, Array, Closeness, Comparison, KnownElements
from loopwright.measure.inputs import EDGES
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    KernelArrays,
    LoadedKernel,
    prepared,
    same_bytes,
)
from loopwright.measure.workers.protocol import CheckReply, CheckRequest
from loopwright.runtime import KernelCall, Side

#: A call that does its work may take this many times what one took when it was timed, and this many
#: seconds more: caches are cold, and threads asleep. Beyond it is timed again.
IMPLAUSIBLE = 3.0
SLACK_S = 10e-6
#: Calls on poisoned outputs before a kernel is suspected: of the first ones some are slow.
_ATTEMPTS = 5
#: The last element of an array.
_LAST = 1.0
_AT_EDGES = {
    "mixed": "with zeros and limits among them",
    "special": "with infinities and NaN among them",
    "one sign": "that are large and of one sign",
}


class KnownAnswers(NamedTuple):
    sets: tuple[Sequence[Array], Sequence[Array]]  # the outputs for each set of `SETS`
    #: Known elements of each output, for each set of `EDGES`; empty: these are not run.
    edges: Sequence[Sequence[KnownElements]]


class _Wrong(Exception):
    """The kernel is wrong, for the reason in the text."""


class Checkup:
    """One check of a kernel in ``memory``, with the inputs of the arrays that it was timed on.

    ``close`` is the required accuracy; only the answer to set 1 may have to be equal.
    """

    def __init__(
        self,
        kernel: LoadedKernel,
        data: KernelArrays,
        memory: ArgumentMemory,
        answers: KnownAnswers,
        close: Closeness,
    ) -> None:
        self._kernel, self._data, self._memory = kernel, data, memory
        self._answers, self._close = answers, close
        self._max_error = 0.0
        self._tainted = False

    def reply(self, request: CheckRequest) -> CheckReply:
        problem: str | None = None
        times: tuple[float, ...] = ()
        try:
            with self._kernel.pinned():
                self._run("end", 0)
                self._run("start", 1)
                took = self._change_a_little(self._memory, 0, _LAST)
                for number, known in zip(EDGES, self._answers.edges, strict=False):
                    self._run_at_edges(number, known)
                if request.seconds is not None:
                    times = self._retimed(request, request.seconds, took)
        except _Wrong as wrong:
            problem = str(wrong)
        return CheckReply(
            max_error=self._max_error, problem=problem, tainted=self._tainted, times=times
        )

    def _run(self, side: Side, number: int) -> None:
        """Run on a set of inputs: set 0 on poisoned outputs, set 1 on the former answer."""
        memory, data = self._memory, self._data
        former = memory.results() if number else []
        memory.place(side)
        memory.fill(data.inputs(number))
        for output, old in zip(memory.outputs, former, strict=bool(number)):
            memory.write(output, old)
        self._kernel.checked(memory).run()
        again = "called again on the outputs it had filled, with other inputs: " if number else ""
        self._judge(memory, number, again)

    def _run_at_edges(self, number: int, known: Sequence[KnownElements]) -> None:
        memory, inputs = self._memory, self._data.inputs(number)
        memory.fill_inputs(inputs)
        memory.poison_outputs(OTHER_PATTERN)
        self._kernel.checked(memory).run()
        result = memory.judge_known(inputs, known)
        self._decide(memory, result, f"on inputs {_AT_EDGES[EDGES[number]]}: ")

    def _call(self, memory: ArgumentMemory) -> KernelCall:
        if memory is self._memory:
            return self._kernel.checked(memory)
        return self._kernel.bound(memory)

    def _judge(self, memory: ArgumentMemory, number: int, when: str, guarded: bool = True) -> None:
        """Compare the contents of arrays with the answer to a set of inputs; raises _Wrong."""
        close = self._close if number == 1 else self._close._replace(exact=False)
        result = memory.judge(self._data.inputs(number), self._answers.sets[number], close)
        self._decide(memory, result, when, guarded)

    def _decide(
        self, memory: ArgumentMemory, result: Comparison, when: str, guarded: bool = True
    ) -> None:
        outside = memory.written_outside() if guarded else None
        self._max_error = max(self._max_error, result.max_error)
        self._tainted = self._tainted or outside is not None
        problems = [text for text in (outside, result.problem) if text is not None]
        if problems:
            raise _Wrong(when + "; ".join(problems))

    # -- does it skip its work? ------------------------------------------------------------------

    def _retimed(self, request: CheckRequest, timed: float, took: float) -> tuple[float, ...]:
        """Samples that replace the former ones, where these are implausibly short."""
        limit = IMPLAUSIBLE * timed + SLACK_S
        if took <= limit or self._quickest() <= limit:
            return ()
        times = self._alternated(request)
        return times if statistics.median(times) > limit else ()

    def _quickest(self) -> float:
        """The shortest of some calls on poisoned outputs, in seconds."""
        memory = self._memory
        call = self._call(memory)
        memory.fill_inputs(self._data.inputs(1))
        prepared(call)
        times = []
        for _ in range(_ATTEMPTS):
            memory.poison_outputs()
            times.append(runtime.time_call(call, 1))
        self._judge(memory, 1, "called several times: ")
        return min(times)

    def _alternated(self, request: CheckRequest) -> tuple[float, ...]:
        """Time calls whose inputs change from one to the next, as a user's do; then
        compare again.
        """
        data = self._data
        data.restore()
        other = data.memory.beside()
        other.fill_inputs(data.inputs(1))
        memories = (data.memory, other)
        calls = [self._kernel.bound(memory) for memory in memories]
        for call in calls:
            prepared(call)
        times = []
        for _ in range(request.windows):
            seconds, number = 0.0, 0
            while seconds < request.window_s or number % 2:
                if request.flush:
                    self._kernel.flush(memories[number % 2])
                seconds += runtime.time_call(calls[number % 2], 1)
                number += 1
            times.append(seconds / number)
        for number, memory in enumerate(memories):
            memory.poison_outputs()
            calls[number].run()
            self._judge(memory, number, "after it had been timed: ", guarded=False)
        for part in (0.0, 0.5, _LAST):
            data.restore()
            self._kernel.run()
            self._change_a_little(data.memory, 1, part)
        return tuple(times)

    def _change_a_little(self, memory: ArgumentMemory, other: int, part: float) -> float:
        """Seconds of a call on poisoned outputs, which must do as much as one on filled outputs.

        One element of each input is changed to that of the set ``other``, at the relative place
        ``part``: 0 for the first, 1 for the last. The outputs of ``memory`` must hold the answer to
        its inputs; the kernel is wrong if its answer depends on them.
        """
        call = self._call(memory)
        for number, new in zip(memory.inputs, self._data.inputs(other), strict=True):
            if new.size:
                memory.set_element(number, int(part * (new.size - 1)), new)
        call.run()
        stale = memory.results()
        memory.poison_outputs()
        seconds = runtime.time_call(call, 1)
        if not all(map(same_bytes, stale, memory.results())):
            raise _Wrong(
                "it skips its work: called again after one element of each input had changed, it "
                "gave another answer than on fresh outputs"
            )
        return seconds
