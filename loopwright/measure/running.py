"""The parent's side of running: what a runner is asked, in which order, with which deadlines.

One candidate is one `load_and_race` (link, warm-up, one run), then `sample` for contenders, then
`check` when it would become the best. Each is a request of its own with a deadline of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from loopwright.measure.building import Built
from loopwright.measure.check import Array, make_input
from loopwright.measure.options import (
    CLEAR_RATIO,
    DROP_RATIO,
    SAMPLES_S,
    WINDOW_S,
    WINDOWS,
    LocalRunner,
)
from loopwright.measure.process import Failure, Reply, Worker, take
from loopwright.measure.result import ErrorKind, MeasureError

#: Seconds to make the input data, and to run the naive schedule once.
PREPARE_S = 120.0
REFERENCE_S = 120.0
_SLACK_S = 0.25  # linking and the messages: not the kernel's fault
_KINDS = {"timeout": ErrorKind.RUN_TIMEOUT, "memory": ErrorKind.MEMORY}


class Race(NamedTuple):
    """A warm-up and one run, both in seconds; ``seconds`` is what the request took."""

    warm: float
    first: float
    dropped: bool
    seconds: float


class Samples(NamedTuple):
    """Seconds per call of each sample."""

    times: tuple[float, ...]
    seconds: float


class Checked(NamedTuple):
    """The numeric check; ``error`` when the answer is wrong."""

    max_error: float | None
    error: MeasureError | None
    seconds: float


class RunSession:
    """A runner process and what it has been given.

    Args:
        option: limits and plan.
        pump: waits for the runner while it lets the builders work; called until it has an answer.
        inputs: gives the input data of these arguments; None where seeded random data will do.
        worker: the process of another session to be used; None: a process of its own.
        owner: whose input data it is, where equal arguments of another session may get other data.
    """

    def __init__(
        self,
        option: LocalRunner,
        pump: Callable[[Sequence[Worker]], None],
        inputs: Callable[[list[dict[str, Any]]], list[Array] | None] = lambda args: None,
        worker: Worker | None = None,
        owner: str = "",
    ) -> None:
        self.option = option
        self._owner = owner
        self._inputs = inputs
        self.worker = worker or Worker("runner", option.memory_limit)
        self._pump = pump

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self.worker.start()

    def reset(self) -> None:
        """Kill the process if it is in the middle of something."""
        if self.worker.busy:
            self.worker.kill()
        self.worker.outcome = None

    def close(self) -> None:
        """End the process."""
        self.worker.close()

    def load_and_race(
        self, built: Built, incumbent: float | None, *, slot: int = 0, race: bool = True
    ) -> Race | MeasureError:
        """Link a candidate into ``slot``, run it once to warm up and once on the clock.

        Args:
            built: the artifact.
            incumbent: best time so far in seconds.
            slot: where later requests find it; slot 0 starts a new candidate.
            race: drop it when it is more than twice as slow as the incumbent.
        """
        if slot == 0:
            self.worker.refresh()
        self.worker.start()
        problem = self._prepare(built)
        if problem is not None:
            return problem
        limit = self.option.limit(incumbent)
        drop = DROP_RATIO * incumbent if race and incumbent is not None else None
        header = {
            "op": "race",
            "slot": slot,
            "manifest": built.manifest,
            "drop": drop,
            "flush": self.option.enable_cpu_cache_flush,
        }
        reply = self._ask(header, built.objects, limit + _SLACK_S)
        if isinstance(reply, Failure):
            return self._failed(reply, limit)
        if not reply.header["ok"]:
            return self._refused(reply)
        warm, first = reply.header["warm"], reply.header["first"]
        dropped = drop is not None and first > drop
        return Race(warm, first, dropped, reply.seconds)

    def sample(
        self,
        race: Race,
        *,
        slot: int = 0,
        windows: int = WINDOWS,
        window_s: float = WINDOW_S,
        incumbent: float | None = None,
        spent: float = 0.0,
    ) -> Samples | MeasureError:
        """Time what is in ``slot``.

        Args:
            race: its first runs.
            slot: see `load_and_race`.
            windows: samples, when the plan is windows of time.
            window_s: seconds of such a window.
            incumbent: best time so far in seconds; two windows are enough to see that the candidate
                is more than 10 % behind it.
            spent: seconds of the timeout that it has used up already.

        Returns:
            At least one sample: where the limit leaves no time for any, the run of the race.
        """
        left = self.option.timeout - spent
        header: dict[str, Any] = {
            "op": "sample",
            "slot": slot,
            "first": race.first,
            "budget": 0.8 * left,
            "flush": self.option.enable_cpu_cache_flush,
        }
        if self.option.windows:
            clear = None if incumbent is None else CLEAR_RATIO * incumbent
            header |= {"windows": windows, "window_s": window_s, "enough": SAMPLES_S}
            header["clear"] = clear
        else:
            header["counts"] = self.option.counts
        reply = self._ask(header, b"", max(left, 1.0) + _SLACK_S, restart=False)
        if isinstance(reply, Failure):
            return self._failed(reply, self.option.timeout)
        if not reply.header["ok"]:
            return self._refused(reply)
        times = tuple(reply.header["times"]) or (race.first,)
        return Samples(times, reply.seconds)

    def check(
        self, key: str, reference: bytes, length: int, limit: float, *, slot: int = 0
    ) -> Checked:
        """Run what is in ``slot`` on fresh data and compare its outputs with the reference.

        Args:
            key: names the reference; its bytes are sent once per process.
            reference: the outputs one after the other, row-major.
            length: see `loopwright.measure.check.reduction_length`.
            limit: seconds for the run.
            slot: see `load_and_race`.
        """
        payload = b"" if key in self.worker.known else reference
        header = {"op": "check", "slot": slot, "key": key, "length": length}
        # Moving and comparing the data takes time too: about a second for 200 MB.
        seconds = limit + 1.0 + len(reference) / 2e8
        reply = self._ask(header, payload, seconds, restart=False)
        if isinstance(reply, Failure):
            return Checked(None, self._failed(reply, limit), reply.seconds)
        self.worker.known.add(key)
        error = None if reply.header["ok"] else self._refused(reply)
        return Checked(reply.header.get("max_error"), error, reply.seconds)

    def outputs_of(self, built: Built) -> bytes | MeasureError:
        """Run an artifact once on the input data; returns its outputs one after the other."""
        self.worker.start()
        problem = self._prepare(built)
        if problem is not None:
            return problem
        header = {"op": "outputs", "manifest": built.manifest}
        reply = self._ask(header, built.objects, REFERENCE_S)
        if isinstance(reply, Failure):
            return self._failed(reply, REFERENCE_S)
        return reply.payload if reply.header["ok"] else self._refused(reply)

    def input_arrays(self, args: list[dict[str, Any]]) -> list[Array]:
        """The input data that the runner has for these arguments."""
        given = self._inputs(args)
        if given is not None:
            return given
        seed = self.option.seed
        return [
            make_input(a["shape"], a["dtype"], seed, i)
            for i, a in enumerate(args)
            if not a["output"]
        ]

    def _prepare(self, built: Built) -> MeasureError | None:
        """Have the runner make the data of these arguments unless it has them."""
        args = arguments(built.manifest)
        key = f"data {self._owner} {json.dumps(args, sort_keys=True)}"
        if key in self.worker.known:
            return None
        self.worker.known.clear()  # the references go with the former data
        header = {"op": "prepare", "args": args, "seed": self.option.seed}
        given = self._inputs(args)
        payload = b"".join(a.tobytes() for a in given) if given is not None else b""
        reply = self._ask(header, payload, PREPARE_S)
        if isinstance(reply, Failure):
            return self._failed(reply, PREPARE_S)
        if not reply.header["ok"]:
            return self._refused(reply)
        self.worker.known.add(key)
        return None

    def _ask(
        self, header: dict[str, Any], payload: bytes, seconds: float, *, restart: bool = True
    ) -> Reply | Failure:
        self.worker.submit(header, payload, seconds=seconds, restart=restart)
        while self.worker.outcome is None:
            self._pump([self.worker])
        return take(self.worker)

    def _failed(self, failure: Failure, limit: float) -> MeasureError:
        kind = _KINDS.get(failure.how, ErrorKind.RUN_CRASH)
        if kind == ErrorKind.RUN_TIMEOUT:
            text = (
                f"it ran longer than {limit:.3g} s and was killed (limit: max(1 s, 20 x the best "
                f"time so far), at most the runner's timeout of {self.option.timeout:.3g} s)"
            )
            return MeasureError(kind, text)
        return MeasureError(kind, failure.text)

    def _refused(self, reply: Reply) -> MeasureError:
        if reply.header.get("tainted"):
            self.worker.kill()  # its memory can no longer be trusted
            self.worker.start()
        return MeasureError(reply.header["kind"], reply.header["text"])


def arguments(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the entry function of a manifest."""
    for function in manifest["functions"]:
        if function["name"] == manifest["entry"]:
            args: list[dict[str, Any]] = function["args"]
            return args
    raise KeyError(f"manifest without its entry {manifest['entry']!r}")


def outputs(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Those arguments of the entry function that it writes."""
    return [a for a in arguments(manifest) if a["output"]]
