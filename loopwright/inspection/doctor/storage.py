"""Places of files: the log, temporary files, locks, built kernels."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

from loopwright.errors import TuneError
from loopwright.inspection.doctor.finding import (
    Finding,
    SystemFiles,
    of_bytes,
    ok,
    problem,
    unknown,
    warning,
)

#: Kinds of file systems that lie on another machine.
_NETWORK = re.compile(
    r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|gpfs|beegfs|sshfs|davfs|ncp|orangefs|panfs|wekafs"
)
#: Less free space than this may end a run; a log of 100 000 records takes some 200 MB.
_LITTLE, _TOO_LITTLE = 1 << 30, 32 << 20


def log_folder(files: SystemFiles, folder: Path) -> Finding:
    check = "log folder"
    try:
        folder = folder.absolute()
    except OSError as error:
        text = f"the present folder is gone ({error.strerror or error})"
        return problem(check, text, "no log can be written", "change to a folder that is there")
    if not os.path.isdir(folder):
        return problem(check, f"{folder} is no folder", "no log can be written", "make it first")
    refused = _lock_refused(folder)
    if refused:
        return problem(check, f"{folder}: {refused}", "no log can be written", "choose another one")
    kind = file_system(files, folder)
    free = _free(folder)
    if kind and _NETWORK.search(kind):
        return warning(
            check,
            f"{folder} is on a network ({kind}), {of_bytes(free)} free",
            "each record waits for the server, and locks may not hold between machines",
            "write the log to a local disk, and copy it afterwards; one run at a time per log",
        )
    found = f"{folder} can be written and locked{f' ({kind})' if kind else ''}"
    return _by_space(check, f"{found}, {of_bytes(free)} free", free)


def temporary_folder(wanted: str = "") -> Finding:
    """Judge the folder of temporary files; ``wanted`` is TMPDIR, empty where it is not set."""
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        return problem(
            "TMPDIR",
            f"no folder for temporary files can be written ({error.strerror or error})",
            "nothing can be tuned: processes that build and time print into such files",
            "set TMPDIR to a folder that can be written, on a disk that is not full",
        )
    try:
        free = _free(Path(folder))
    except OSError as error:
        return unknown("TMPDIR", f"{folder}: {error.strerror or error}")
    if wanted and os.path.realpath(wanted) != os.path.realpath(folder):
        return warning(
            "TMPDIR",
            f"TMPDIR={wanted} cannot be written, so {folder} is used",
            "what was to go there fills another disk",
            "make that folder, or set TMPDIR to one of your own",
        )
    return _by_space("TMPDIR", f"{folder}, {of_bytes(free)} free", free)


def lock_folder() -> Finding:
    from loopwright.measure import DeviceLock

    try:
        path = DeviceLock().path.parent
    except (TuneError, OSError) as error:
        return problem(
            "lock folder",
            str(error),
            "nothing can be timed: runs could not wait for each other",
            "set XDG_RUNTIME_DIR to a folder of your own, the same for all your runs",
        )
    return ok("lock folder", f"{path} is this user's")


def kernel_cache(folder: Path | None) -> Finding:
    """Check whether built kernels can be kept; None for a folder means nowhere."""
    if folder is None:
        return ok("kernel cache", "none: each program compiles its kernels anew")
    above = next((p for p in (folder, *folder.parents) if os.path.exists(p)), folder)
    if os.access(above, os.W_OK | os.X_OK):
        return ok("kernel cache", f"{folder}")
    return warning(
        "kernel cache",
        f"{folder} cannot be written",
        "each program compiles its kernels anew, some 50 ms each",
        "set LOOPWRIGHT_CACHE to a folder of your own",
    )


def file_system(files: SystemFiles, folder: Path) -> str:
    """Type of the file system of an absolute path; empty where the system does not tell."""
    best, kind = "", ""
    place = os.path.realpath(folder)
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        left, separator, right = line.partition(" - ")
        words = left.split()
        if not separator or len(words) < 5 or not right.split():
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4])
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def _lock_refused(folder: Path) -> str:
    import fcntl

    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".loopwright-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        what = "locks (flock) are refused" if error.errno in (errno.ENOLCK, errno.ENOTSUP) else ""
        return f"{what or 'it cannot be written'} ({error.strerror or error})"
    return ""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _by_space(check: str, found: str, free: int) -> Finding:
    if free >= _LITTLE:
        return ok(check, found)
    judge = warning if free >= _TOO_LITTLE else problem
    return judge(
        check,
        found,
        "a run ends where a record or a process's output cannot be written",
        "make room, or set TMPDIR" if check == "TMPDIR" else "make room, or choose another folder",
    )
