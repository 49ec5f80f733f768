"""Devices that kernels are measured on, and locks between processes.

One process at a time times on a device, and one run tunes a task into a log. Both locks are
``flock`` on a small file that holds the process id and the command of its owner, for messages to
the processes that wait or are refused. The system releases them when the owner dies.

Both may lie where other users can write. No link that somebody has placed there is followed, and no
file that is not ours, or has a second name elsewhere, is written: everything is opened relative to
a folder that was opened, and looked at, before.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from loopwright.errors import RunError, TuneError, UsageError
from loopwright.files import LOCKS, flock, is_own, open_flags, read_at, unlock
from loopwright.runtime import Device, check_arch, device, device_of_target, names_of, unlike
from loopwright.target import Target

_CPU = "cpu"
#: The lock of the CPU.
CPU_LOCK = "cpu0"


def check_can_measure() -> None:
    """Refuse systems on which processes cannot be killed with all that they started."""
    if not hasattr(os, "killpg"):
        raise RunError(
            f"candidates are built and timed in groups of processes, which {platform.system()} "
            "cannot kill together; tune on Linux or macOS (on Windows: in WSL), and bring the log: "
            "it is applied here"
        )


def measured_on(target: Target, wanted: str = "") -> tuple[Device, ...]:
    """The devices for candidates: those of ``wanted``, which must be equal, or the first."""
    kind = device_of_target(target.kind) or _CPU
    devices = tuple(device(name) for name in names_of(wanted) or [kind])
    if len(set(devices)) < len(devices):
        raise UsageError(f"device {wanted}: a device is named twice; name each once")
    for one in devices:
        _check(one, kind, target)
    for other in devices[1:]:
        if difference := unlike(devices[0], other):
            raise UsageError(
                f"{devices[0]} and {other} differ ({difference}), so that a time of one says "
                "nothing of the other; tune on each of them with a log of its own"
            )
    return devices


def _check(one: Device, kind: str, target: Target) -> None:
    if one.name != kind:
        raise UsageError(
            f"code for the target {target.kind} runs on devices of type {kind}, and {one} is none; "
            f"choose a target that runs on {one.name}, or leave the device out"
        )
    try:
        one.require()
    except UsageError as error:
        raise UsageError(
            f"{error}. Measuring needs the device; building for {target.kind} alone does not: "
            "loopwright build, or lw.build"
        ) from None
    check_arch(str(target.options.get("arch") or ""), one)
    most, wanted = one.max_threads_per_block, target.options.get("max_threads_per_block")
    if most is not None and isinstance(wanted, int) and wanted > most:
        raise UsageError(
            f"the target {target.kind} allows blocks of {wanted} threads, and {one} takes {most}; "
            f"write {target.kind} -max-threads-per-block={most}"
        )


def lock_names(devices: Sequence[Device]) -> list[str]:
    """Names of locks of devices, for all processes of this machine, in order.

    A device that the host's processor implements takes the lock of the CPU too: each disturbs the
    times of the other.
    """
    names = set()
    for one in devices:
        on_host = one.name == _CPU or bool(one.attribute("is_host_processor"))
        names |= {CPU_LOCK} if on_host else set()
        names |= set() if one.name == _CPU else {one.api.uuid(one.device_id)}
    return sorted(names)


#: Seconds of waiting for a device after which the waiting is announced.
ANNOUNCE_S = 3.0
_POLL_S = 0.02
_FOLDER = open_flags("RDONLY", "DIRECTORY", "NOFOLLOW")
#: Not blocking: a pipe in the place of the file must not stop us.
_FILE = open_flags("RDWR", "CREAT", "NOFOLLOW", "NONBLOCK")
#: TMPDIR is used only where XDG_RUNTIME_DIR names no folder, so that the latter always acts.
_REMEDY = "remove it, or set XDG_RUNTIME_DIR to a folder of your own"

_T = TypeVar("_T")


def _open_private(path: Path) -> int:
    """Open or make the folder of this user's locks; raises a TuneError for a link or another's."""
    with contextlib.suppress(FileExistsError):
        _refused(path, path.mkdir, 0o700)
    folder = _refused(path, os.open, path, _FOLDER)
    try:
        status = os.fstat(folder)
        if not is_own(status):
            raise TuneError(f"{path} belongs to another user; {_REMEDY}")
        if stat.S_IMODE(status.st_mode) & 0o077:  # others could have put files there
            os.fchmod(folder, 0o700)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _refused(path: Path, function: Callable[..., _T], *args: object) -> _T:
    """Call a function of the system; a refusal, except FileExistsError, becomes a TuneError."""
    try:
        return function(*args)
    except FileExistsError:
        raise
    except OSError as e:
        link = e.errno in (errno.ELOOP, errno.ENOTDIR)
        what = "is a link or no folder" if link else f"cannot be used ({e.strerror})"
        raise TuneError(f"the folder of locks {path} {what}; {_REMEDY}") from e


def _open(folder: int, path: Path) -> int:
    """Open or make a file to be locked; a TuneError for a link, or one of somebody else."""
    try:
        fd = os.open(path.name, _FILE, 0o600, dir_fd=folder)
    except OSError as e:
        if e.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise TuneError(f"the lock {path} is a link or no file; remove it") from e
    status = os.fstat(fd)
    problem, remedy = None, "remove it"
    if not stat.S_ISREG(status.st_mode):
        problem = "is no file"
    elif not is_own(status):
        problem = "belongs to another user, whose run may be using it"
        remedy = "choose another log, or remove it when that run has ended"
    elif status.st_nlink > 1:
        problem = "has a second name, which another user may have made"
    if problem is None:
        return fd
    os.close(fd)
    raise TuneError(f"the lock {path} {problem}; {remedy}")


def _holder(fd: int) -> str:
    try:
        data = json.loads(read_at(fd, 4096, 0))
        command = "".join(c if c.isprintable() else "?" for c in data["command"])
        return f"process {int(data['pid'])} ({command})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _sign(fd: int) -> None:
    command = " ".join(getattr(sys, "orig_argv", sys.argv))[:500]
    text = json.dumps({"pid": os.getpid(), "command": command}).encode()
    os.ftruncate(fd, 0)
    os.pwrite(fd, text, 0)


class DeviceLock:
    """Held while kernels are timed, so that two processes never time on one device at once; on
    Windows, which has no such locks, nothing is held.

    ``announce`` is called once with a text when waiting takes longer than `ANNOUNCE_S` seconds.
    Raises a TuneError, also on `acquire` and `try_acquire`, where the folder of locks, or the file,
    is not this user's.

    Example:
        >>> from loopwright.measure import DeviceLock
        >>> lock = DeviceLock("example0")
        >>> print(lock.acquire() >= 0)
        True
        >>> lock.release()
    """

    def __init__(self, device: str = "cpu0", announce: Callable[[str], None] | None = None) -> None:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", device)
        # The folder of this user's locks, the same for all its processes on this machine.
        user = f"-{os.getuid()}" if LOCKS else ""
        folder = Path(tempfile.gettempdir()) / f"loopwright{user}"
        base = os.environ.get("XDG_RUNTIME_DIR")
        if base and os.path.isdir(base) and os.access(base, os.W_OK):
            folder = Path(base) / "loopwright"
        self.path = folder / f"{safe}.lock"
        self._device, self._announce = device, announce
        self._fd: int | None = None
        #: Owner of the awaited lock; empty while this object is not waiting.
        self.holder = ""
        if LOCKS:
            os.close(_open_private(self.path.parent))  # said at once when it cannot be used

    @property
    def held(self) -> bool:
        return self._fd is not None

    def try_acquire(self) -> str:
        """Take the lock if it is free; returns its owner, empty where this object has it now."""
        if self._fd is not None or not LOCKS:
            return ""
        folder = _open_private(self.path.parent)
        try:
            fd = _refused(self.path.parent, _open, folder, self.path)
        finally:
            os.close(folder)
        try:
            holder = "" if flock(fd, wait=False) else _holder(fd)
            if not holder:
                _sign(fd)
                self._fd = fd
        except BaseException:  # a full disk, Ctrl-C: nobody would ever give the lock back
            os.close(fd)
            raise
        if holder:
            os.close(fd)
        return holder

    def acquire(self) -> float:
        """Wait for the lock; returns the seconds waited. Ctrl-C ends the waiting."""
        if self._fd is not None:
            return 0.0
        start, announce = time.monotonic(), self._announce
        try:
            while holder := self.try_acquire():
                self.holder = holder
                if announce is not None and time.monotonic() - start >= ANNOUNCE_S:
                    announce(f"waiting for {self._device}: {holder} is timing on it")
                    announce = None
                time.sleep(_POLL_S)
        finally:
            self.holder = ""
        return time.monotonic() - start

    def release(self) -> None:
        """Give the lock back, where it is held."""
        if self._fd is None:
            return
        # An explicit unlock: a process forked by the user may share this open file.
        unlock(self._fd)
        os.close(self._fd)
        self._fd = None


@contextlib.contextmanager
def lock_log(path: str | os.PathLike[str], task: str = "") -> Iterator[Path]:
    """Refuse a second tuning run on the same log and task; an empty task key means any task.

    The lock is a file beside the log, ``<log>.<task>.lock``, removed at the end. The log itself,
    which need not exist, is not locked: appending to it locks it for an instant.

    Raises:
        TuneError: another run holds it; the text names its process and command.

    Example:
        >>> from loopwright.measure import lock_log
        >>> with lock_log("run.jsonl"):
        ...     print("no other run writes here")
        ...
        no other run writes here
    """
    log = Path(path).resolve()
    tag = f".{hashlib.sha256(task.encode()).hexdigest()[:8]}" if task else ""
    lock = log.with_name(f"{log.name}{tag}.lock")
    if not LOCKS:
        yield lock
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = os.open(lock.parent, _FOLDER)
            stack.callback(os.close, folder)
            fd = _lock_file(folder, lock, log)
        except OSError as e:
            text = f"cannot lock the log {log}: {e.strerror}; is its folder writable?"
            raise TuneError(text) from e
        stack.callback(os.close, fd)
        stack.callback(unlock, fd)
        try:
            yield lock
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock.name, dir_fd=folder)


def _lock_file(folder: int, lock: Path, log: Path) -> int:
    """Lock and sign the file; raises a TuneError where another process has it."""
    while True:
        fd = _open(folder, lock)
        if not flock(fd, wait=False):
            holder = _holder(fd)
            os.close(fd)
            raise TuneError(
                f"the log {log} is in use by {holder}; "
                "wait until it ends, stop it, or choose another log"
            )
        # The former owner may have removed the file between our opening and locking it.
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(lock.name, dir_fd=folder, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(fd)):
                _sign(fd)
                return fd
        os.close(fd)
