"""Waiting for several workers at once: the only place where the parent blocks."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterable, Sequence

from loopwright.measure.workers.process import Worker

_SLICE_S = 0.1  # a worker whose descendant keeps the pipe open is seen dead within this


def wait_any(workers: Iterable[Worker], seconds: float | None = None) -> list[Worker]:
    """Wait, for at most ``seconds``, until a busy worker has an outcome; returns all that have one.

    Idle workers are ignored unless they carry an outcome that was not taken.
    """
    watched = list(workers)
    end = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        done = [w for w in watched if w.outcome is not None]
        busy = [w for w in watched if w.busy]
        if done or not busy or time.monotonic() >= end:
            return done
        _wait_once(busy, end)


def _wait_once(busy: Sequence[Worker], end: float) -> None:
    """Wait a moment for events of busy workers, and handle them."""
    poller = select.poll()
    owners = {fd: w for w in busy for fd in w.register(poller)}
    until = min([end, *(w.deadline for w in busy)])
    pause = max(0.0, min(until - time.monotonic(), _SLICE_S))
    for fd, _ in poller.poll(pause * 1000 + 1):
        if owners[fd].busy:
            owners[fd].event(fd)
    for w in busy:
        w.check()
