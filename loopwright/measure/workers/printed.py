"""Output of a worker process, kept in an unnamed file for the text of its failure."""

from __future__ import annotations

import fcntl
import os
import tempfile
from typing import IO

from loopwright.errors import RunError

_TAIL = 2000


class Printed:
    """The printed output of the processes of one worker, one after the other."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        """The file that the process prints to."""
        assert self._file is not None
        return self._file

    @property
    def size(self) -> int:
        """Bytes printed since the last `clear`."""
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size

    def open(self) -> None:
        """Make the file unless it exists; raises a RunError where it has no room or folder."""
        if self._file is not None:
            return
        try:
            self._file = tempfile.TemporaryFile(prefix="loopwright-worker-")  # noqa: SIM115
        except OSError as e:
            raise RunError(
                f"cannot start a {self._role} process: no temporary file for what it prints "
                f"({e.strerror or e}); make room, or set TMPDIR to another folder"
            ) from e
        # A process whose flood was cut off at its limit prints at the start again after `clear`.
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_APPEND)

    def clear(self) -> None:
        """Discard the output."""
        if self.size:
            os.ftruncate(self.file.fileno(), 0)

    def lines(self) -> list[str]:
        """The last lines; none before `open`."""
        if self._file is None:
            return []
        fd = self.file.fileno()
        data = os.pread(fd, _TAIL, max(0, self.size - _TAIL))
        lines = data.replace(b"\0", b"").decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def text(self) -> str:
        """The last lines as the end of a sentence; empty when there are none."""
        joined = " | ".join(self.lines())
        return f"; it had printed: {joined}" if joined else ""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
