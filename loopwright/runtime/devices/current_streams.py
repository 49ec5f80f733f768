"""The current stream of each device, by thread."""

from __future__ import annotations

import threading

from loopwright.runtime.devices.interface import Stream


class CurrentStreams(threading.local):
    """The streams that were made current, a table for each thread.

    ``by_device`` has them by number of the device; None, or no entry: the default one.
    """

    def __init__(self) -> None:
        self.by_device: dict[int, Stream | None] = {}
