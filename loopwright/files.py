"""Output files named by the user, replaced whole or not at all, by renaming; what of files only
POSIX has.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from typing import BinaryIO, NamedTuple

from loopwright.errors import LoopwrightError, RunError, UsageError

#: Extension of an incomplete file; those of killed processes stay.
PARTIAL = ".partial"
#: Bytes of both ends of a file by which its kind is seen.
_END = 1 << 16
#: Whether the system locks files by ``flock``: Windows does not, so that there one process at a
#: time may write a log, or time kernels.
LOCKS = find_spec("fcntl") is not None


def flock(file: int, wait: bool = True) -> bool:
    """Lock an open file, where the system can; False where another holds it and ``wait`` is not
    set."""
    if LOCKS:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def unlock(file: int) -> None:
    if LOCKS:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def open_flags(*names: str) -> int:
    """The flags of ``os.open`` of these names, as far as the system has them; bytes stay as they
    are."""
    return reduce(or_, (getattr(os, f"O_{name}", 0) for name in (*names, "BINARY")))


def read_at(file: int, length: int, offset: int) -> bytes:
    """Read bytes of an open file; where the system has no ``pread``, the position moves."""
    if hasattr(os, "pread"):
        return os.pread(file, length, offset)
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, length)


def is_own(status: os.stat_result) -> bool:
    """Whether a file is this user's; a system whose files have no owners' numbers is trusted."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


class FileKind(NamedTuple):
    #: A name for messages, such as ``a report``.
    name: str
    #: Whether a file is one, from its bytes; of a large file from those of both ends.
    is_one: Callable[[bytes], bool]


def marked(mark: bytes) -> Callable[[bytes], bool]:
    return lambda data: mark in data[:4096]


class Output(NamedTuple):
    path: Path
    data: bytes
    kind: FileKind


def write(
    *outputs: Output, force: bool | None = False, error: type[LoopwrightError] = RunError
) -> None:
    """Replace all files or none: empty ones, those of the same kind by content, or with ``force``
    any; with None the message does not offer that. ``error`` is raised where the system refuses."""
    places = [_place(o.path, o.kind, force, error) for o in outputs]
    first = outputs[0].path
    try:
        _replace([(place, o.data) for place, o in zip(places, outputs, strict=True)])
    except OSError as exc:
        raise _not_written(first, exc, error) from exc


def check(
    *places: tuple[Path, FileKind],
    force: bool | None = False,
    error: type[LoopwrightError] = RunError,
) -> None:
    """Refuse outputs before work is done for them, as `write` would."""
    for path, kind in places:
        _place(path, kind, force, error)


def _place(path: Path, kind: FileKind, force: bool | None, error: type[LoopwrightError]) -> Path:
    try:
        return destination(path, kind, force=force)
    except OSError as exc:
        raise _not_written(path, exc, error) from exc


def _not_written(path: Path, exc: OSError, error: type[LoopwrightError]) -> LoopwrightError:
    return error(f"cannot write {path}: {exc.strerror or exc}")


def destination(path: Path, kind: FileKind, *, force: bool | None = False) -> Path:
    """The file that is written for a path: itself, or the target of a link; a file of another kind
    is a `UsageError`, another obstacle an `OSError`."""
    target = Path(os.path.realpath(path))  # of a circle of links, too, which is refused below
    try:
        mode = path.stat().st_mode  # not of the target: a pipe behind /dev/stdout has no path
    except FileNotFoundError as exc:
        if target.parent.is_dir():
            return target
        folder = str(target.parent if path.is_symlink() else path.parent)
        text = f"{exc.strerror}: there is no folder {folder!r}; make it first"
        raise OSError(exc.errno, text) from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise OSError(errno.EINVAL, f"it is {what}; name a file")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    there = b""
    if not force:
        with target.open("rb") as file:  # a small file, or the beginning and the end of a large one
            there = file.read(_END)
            file.seek(max(len(there), target.stat().st_size - _END))
            there += file.read(_END)
    if there and not kind.is_one(there):
        hint = "" if force is None else ", or replace it with --force (force=True)"
        raise UsageError(
            f"cannot write {path}: a file is there that is not {kind.name} of loopwright; "
            f"name another one, remove that{hint}"
        )
    return target


@contextmanager
def replaced(path: Path, mode: int | None = None, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of one, which is no link, when the block ends without an
    error.

    ``mode`` None: permissions of the old file, or of new files. A cache need not be ``durable``.
    """
    partial: list[Path] = []
    try:
        with _beside(path, partial, mode, durable) as file:
            yield file
        os.replace(partial[0], path)
    except BaseException:
        _remove(partial)
        raise


@contextmanager
def _beside(
    path: Path, partial: list[Path], mode: int | None = None, durable: bool = True
) -> Iterator[BinaryIO]:
    short = os.fsdecode(os.fsencode(path.name)[:200])  # a name has 255 bytes at most
    number, name = tempfile.mkstemp(PARTIAL, f".{short}.", path.parent)
    partial.append(Path(name))
    with open(number, "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(number, _mode(path) if mode is None else mode)
        yield file
        if durable:
            file.flush()
            os.fsync(number)


def _mode(path: Path) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _replace(places: Sequence[tuple[Path, bytes]]) -> None:
    """Replace all files or none. A reader sees each in its old or its new state."""
    partial: list[Path] = []
    renamed: list[tuple[Path, Path | None]] = []
    try:
        fresh = [_stage(path, data, partial) for path, data in places]
        # Copies are written while nothing is changed yet: restoring must not need space.
        old = [_stage(p, p.read_bytes(), partial) if p.exists() else None for p, _ in places[:-1]]
        for (path, _), new, before in zip(places, fresh, [*old, None], strict=True):
            os.replace(new, path)
            renamed.append((path, before))
    except BaseException:
        for path, before in renamed[: len(places) - 1]:
            if before is None:  # there was no file
                path.unlink()
            else:
                os.replace(before, path)
        raise
    finally:
        _remove(partial)


def _stage(path: Path, data: bytes, partial: list[Path]) -> Path:
    with _beside(path, partial) as file:
        file.write(data)
    return partial[-1]


def _remove(partial: Sequence[Path]) -> None:
    for name in partial:
        name.unlink(missing_ok=True)
