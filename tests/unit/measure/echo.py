"""A worker of another kind: tells its environment, and does what the name of a request says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from loopwright.measure.workers.protocol import Message, Reply
from loopwright.measure.workers.worker import main


@dataclass(frozen=True, kw_only=True)
class EchoRequest(Message):
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EchoReply(Reply):
    values: tuple[str | None, ...]


def write_everywhere() -> None:
    """What a thread might do that a candidate has left behind."""
    time.sleep(0.1)
    for fd in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(fd, b"later")


class Echo:
    def answer(self, request: Message) -> EchoReply:
        assert isinstance(request, EchoRequest)
        match request.names:
            case ["write later"]:
                threading.Thread(target=write_everywhere, daemon=True).start()
            case ["drop", name]:
                Path(name).write_text("a drawing")
                return EchoReply(values=(os.getcwd(),))
            case ["drop and crash", name]:
                Path(name).write_text("a drawing")
                os.kill(os.getpid(), signal.SIGSEGV)
            case ["child"]:
                return EchoReply(values=(str(subprocess.Popen(["sleep", "100"]).pid),))
        return EchoReply(values=tuple(map(os.environ.get, request.names)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda name: Echo()))
