"""A worker of another kind, which tells its environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from loopwright.measure.workers.protocol import Message, Reply
from loopwright.measure.workers.worker import main


@dataclass(frozen=True, kw_only=True)
class EchoRequest(Message):
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EchoReply(Reply):
    values: tuple[str | None, ...]


class Echo:
    def answer(self, request: Message) -> EchoReply:
        assert isinstance(request, EchoRequest)
        return EchoReply(values=tuple(map(os.environ.get, request.names)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda name: Echo()))
