"""Which stream of each device is a thread's current one."""

from __future__ import annotations

import threading

from loopwright.runtime.devices.interface import Stream


class CurrentStreams(threading.local):
    """The streams that were made current, a table for each thread.

    Attributes:
        by_device: the stream by number of the device; None, or none: the default one.
    """

    def __init__(self) -> None:
        self.by_device: dict[int, Stream | None] = {}
