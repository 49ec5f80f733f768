"""Locks between processes: one timing at a time per device, one tuning run per task and log.

Both are ``flock`` on a small file that holds the process id and the command of its owner, so that
whoever waits or is refused can be told by whom. The system releases them when the owner dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loopwright.errors import TuneError

#: Seconds of waiting for a device after which the waiting is announced.
ANNOUNCE_S = 3.0
_POLL_S = 0.02


def _command() -> str:
    argv = getattr(sys, "orig_argv", sys.argv)
    return " ".join(argv)[:500]


def _private_dir() -> Path:
    """A directory of this user alone, the same for all its processes on this machine."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base) and os.access(base, os.W_OK):
        path = Path(base) / "loopwright"
    else:
        path = Path(tempfile.gettempdir()) / f"loopwright-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise TuneError(f"{path} belongs to another user; remove it or set TMPDIR")
    return path


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _holder(path: Path) -> str:
    """``process 12 (command)``, or a general word when the file says nothing readable."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return f"process {int(data['pid'])} ({data['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(fd: int) -> None:
    text = json.dumps({"pid": os.getpid(), "command": _command()}).encode()
    os.ftruncate(fd, 0)
    os.pwrite(fd, text, 0)


class DeviceLock:
    """Held while kernels are timed, so that two processes never time on one device at once.

    Args:
        device: name of the device, such as ``"cpu0"``.
        announce: called once with a text when waiting takes longer than `ANNOUNCE_S` seconds.
    """

    def __init__(self, device: str = "cpu0", announce: Callable[[str], None] | None = None) -> None:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", device)
        self.path = _private_dir() / f"{safe}.lock"
        self._device, self._announce = device, announce
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._fd is not None

    def acquire(self) -> float:
        """Wait for the lock; returns the seconds waited. Ctrl-C ends the waiting."""
        if self._fd is not None:
            return 0.0
        start = time.monotonic()
        fd = _open(self.path)
        try:
            self._wait(fd)
            _sign(fd)
        except BaseException:  # Ctrl-C too must not leave the file open
            os.close(fd)
            raise
        self._fd = fd
        return time.monotonic() - start

    def _wait(self, fd: int) -> None:
        """Return with the lock; say once that it takes long."""
        start = time.monotonic()
        announce = self._announce
        while not _try(fd):
            if announce is not None and time.monotonic() - start >= ANNOUNCE_S:
                announce(f"waiting for {self._device}: {_holder(self.path)} is timing on it")
                announce = None
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        if self._fd is None:
            return
        # An explicit unlock: a process forked by the user may share this open file.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
        self._fd = None


@contextmanager
def lock_log(path: str | os.PathLike[str], task: str = "") -> Iterator[Path]:
    """Refuse a second tuning run on the same log and task.

    The lock is a file beside the log, ``<log>.<task>.lock``, removed at the end. The log itself is
    not locked: appending to it locks it for an instant.

    Args:
        path: the log; it need not exist.
        task: key of the task; empty: one run per log whatever the task.

    Raises:
        TuneError: another run holds it; the text names its process and command.
    """
    log = Path(path).resolve()
    tag = f".{hashlib.sha256(task.encode()).hexdigest()[:8]}" if task else ""
    lock = log.with_name(f"{log.name}{tag}.lock")
    try:
        fd = _lock_file(lock)
    except OSError as e:
        raise TuneError(f"cannot lock the log {log}: {e.strerror}; is its folder writable?") from e
    if fd is None:
        raise TuneError(
            f"the log {log} is in use by {_holder(lock)}; "
            "wait until it ends, stop it, or choose another log"
        )
    try:
        yield lock
    finally:
        lock.unlink(missing_ok=True)
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _lock_file(lock: Path) -> int | None:
    """Lock and sign the file; None when somebody has it."""
    while True:
        fd = _open(lock)
        if not _try(fd):
            os.close(fd)
            return None
        # The former owner may have removed the file between our opening and locking it.
        if _same_file(fd, lock):
            _sign(fd)
            return fd
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return stat.S_ISREG(there.st_mode) and (there.st_dev, there.st_ino) == (
        mine.st_dev,
        mine.st_ino,
    )
