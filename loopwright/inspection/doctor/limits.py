"""Limits of control groups (CPU time, memory) and of the shell (ulimit)."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from loopwright.errors import TuneError
from loopwright.files import flock
from loopwright.inspection.doctor.finding import (
    Finding,
    SystemFiles,
    listed,
    of_bytes,
    ok,
    problem,
    unknown,
    warning,
)
from loopwright.presenting import counted

_ROOT = "/sys/fs/cgroup"
#: Version 1 writes "no limit" as a number near 2**63.
_NO_LIMIT = 1 << 60
#: With less, builders and the runner are ended for want of memory: what the runner may need at
#: least, and each builder.
_RUNNER, _BUILDER = 3 << 29, 256 << 20


def cpu_time(files: SystemFiles, cpus: int) -> Finding:
    if not files.exists(_ROOT):
        return unknown("CPU time", f"there is no {_ROOT}, so limits of a container are not known")
    quotas = [quota for folder in _groups(files, "cpu") if (quota := _quota(files, folder))]
    if not quotas:
        return ok("CPU time", "no limit by a control group")
    allowed, period = min(quotas)
    observation = f"a control group allows {allowed:.3g} CPUs ({cpus} may be used)"
    if allowed >= cpus:
        return ok("CPU time", observation)
    statistics = [_statistics(files, f"{group}/cpu.stat") for group in _groups(files, "cpu")]
    throttled = sum(counters.get("nr_throttled", 0) for counters in statistics)
    before = f"; processes have been stopped for that {throttled} times" if throttled else ""
    return warning(
        "CPU time",
        observation + before,
        f"once the share of {1e3 * period:.3g} ms is used up, all threads stand still until the "
        "next: times jump",
        # Compilers use the limit up, too.
        f"raise the limit (docker run --cpus), or tune with --threads {n} --parallel {n}"
        if (n := int(allowed))
        else "raise the limit to a CPU at least (docker run --cpus): no kernel stays below it",
    )


def memory(files: SystemFiles, builders: int) -> Finding:
    """Judge the memory of the machine and its limit by a control group, for so many builders."""
    info = {
        name.removesuffix(":"): int(size) << 10
        for name, size, unit in map(str.split, _lines(files, "/proc/meminfo", 3))
        if size.isdecimal() and unit == "kB"
    }
    folders: dict[str, int] = {}
    for folder in _groups(files, "memory"):
        sizes = [files.number(f"{folder}/{n}") for n in ("memory.max", "memory.limit_in_bytes")]
        if present := [n for n in sizes if n is not None and 0 < n < _NO_LIMIT]:
            folders[folder] = min(present)
    limits = [*folders.values()]
    total, free = info.get("MemTotal"), info.get("MemAvailable")
    if total is None and not limits:
        return unknown("memory", "the system does not tell")
    most = min([*limits, *([] if total is None else [total])])
    observation = f"{of_bytes(most)} may be used"
    if limits and (total is None or min(limits) < total):
        observation += " (limit of a control group)"
    if free is not None:
        observation += f", {of_bytes(free)} are free on the machine"
    left = min((limit - _used(files, folder) for folder, limit in folders.items()), default=most)
    if left < most:
        observation += f", {of_bytes(max(0, left))} in the control group"
    needed = _RUNNER + builders * _BUILDER
    if min(left, left if free is None else free) >= needed:
        return ok("memory", observation)
    return warning(
        "memory",
        f"{observation}; {counted(builders, 'builder')} and the runner may need {of_bytes(needed)}",
        "builders and kernels may be ended for want of memory; such candidates count as failed",
        "end other programs, raise the limit of the container, or compile in one process: "
        "--parallel 1, in Python LocalBuilder(n_parallel=1)",
    )


def _groups(files: SystemFiles, controller: str) -> Iterator[str]:
    """Folders of this process's control groups, its own first; in a container only the top."""
    # In a container the path may be that of the host, which is not there: the top is its own group.
    for line in (files.text("/proc/self/cgroup") or "0::/").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        bases = (f"{_ROOT}/{names}", f"{_ROOT}/{controller}") if names else (_ROOT,)
        base = next((b for b in bases if files.exists(b)), "")
        path_of_group = PurePosixPath(path or "/")
        for group in (path_of_group, *path_of_group.parents) if base else ():
            yield f"{base}{group}".rstrip("/")


def _quota(files: SystemFiles, folder: str) -> tuple[float, float] | None:
    """CPUs that a group may keep busy, and the seconds of a period; None for no limit."""
    quota, _, period = files.line(f"{folder}/cpu.max").partition(" ")
    if not quota:
        quota = files.line(f"{folder}/cpu.cfs_quota_us")
        period = files.line(f"{folder}/cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return int(quota) / int(period), int(period) * 1e-6


def _used(files: SystemFiles, folder: str) -> int:
    """Bytes that a group uses, without those that the system reclaims when needed."""
    names = ("memory.current", "memory.usage_in_bytes")
    used = max(files.number(f"{folder}/{name}") or 0 for name in names)
    statistics = _statistics(files, f"{folder}/memory.stat")
    cache = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
    return max(0, used - cache)


def _statistics(files: SystemFiles, path: str) -> dict[str, int]:
    lines = map(str.split, _lines(files, path, 2))
    return {name: int(count) for name, count in lines if count.isdecimal()}


def _lines(files: SystemFiles, path: str, words: int) -> list[str]:
    lines = (files.text(path) or "").splitlines()
    return [line for line in lines if len(line.split()) == words]


#: Name in Python's `resource`, what a shell calls it, what it limits, whether it counts bytes, and
#: the least that a run needs.
_LIMITS = (
    ("RLIMIT_CPU", "-t", "seconds of CPU time", False, 1 << 30),
    ("RLIMIT_AS", "-v", "of address space", True, 16 << 30),
    ("RLIMIT_DATA", "-d", "of data", True, 4 << 30),
    ("RLIMIT_FSIZE", "-f", "in a file", True, 1 << 30),
    ("RLIMIT_NOFILE", "-n", "open files", False, 256),
    ("RLIMIT_NPROC", "-u", "processes and threads of this user", False, 256),
)
#: Limits to ask for, where a system grants no unlimited number.
_COUNTS = {"RLIMIT_NOFILE": 4096, "RLIMIT_NPROC": 4096}


def user_limits(limits: Mapping[str, int | None]) -> list[Finding]:
    """Judge limits of this process, by names of Python's `resource`; None: no limit."""
    if not limits:
        return [unknown("ulimit", "the system has no such limits, or does not tell")]
    low = [
        (
            f"{of_bytes(value) if is_bytes else value} {what} (ulimit {letter})",
            f"ulimit {letter} {_COUNTS.get(name, 'unlimited')}",
        )
        for name, letter, what, is_bytes, least in _LIMITS
        if (value := limits.get(name)) is not None and value < least
    ]
    within = ok("ulimit", "no limit that a run would hit")
    if low:
        commands = "; ".join(command for _, command in low)
        within = warning(
            "ulimit",
            f"only {listed([text for text, _ in low])}",
            "a run, or its builders, may be ended or refused in the middle",
            f"raise it before the start: {commands} (or ask whoever runs the machine)",
        )
    if "RLIMIT_MEMLOCK" not in limits:
        return [within, unknown("memory lock", "the system does not tell")]
    value = limits["RLIMIT_MEMLOCK"]
    amount = "any amount" if value is None else of_bytes(value)
    text = f"{amount} may be locked (ulimit -l); kernels for the CPU lock none"
    return [within, ok("memory lock", text)]


def present_limits() -> dict[str, int | None]:
    try:
        import resource
    except ImportError:  # a system that has none
        return {}
    names = [name for name, *_ in _LIMITS] + ["RLIMIT_MEMLOCK"]
    soft_limits: dict[str, int | None] = {}
    for name in names:
        if (which := getattr(resource, name, None)) is not None:
            soft = resource.getrlimit(which)[0]
            soft_limits[name] = None if soft == resource.RLIM_INFINITY else soft
    return soft_limits


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
    observation = f"{folder} can be written and locked{f' ({kind})' if kind else ''}"
    return _by_space(check, f"{observation}, {of_bytes(free)} free", free)


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
    if folder is None:
        return ok("kernel cache", "none: each program schedules and compiles its kernels anew")
    above = next((p for p in (folder, *folder.parents) if os.path.exists(p)), folder)
    if os.access(above, os.W_OK | os.X_OK):
        return ok("kernel cache", f"{folder}")
    return warning(
        "kernel cache",
        f"{folder} cannot be written",
        "each program schedules and compiles its kernels anew, some 400 ms each",
        "set LOOPWRIGHT_CACHE to a folder of your own",
    )


def file_system(files: SystemFiles, folder: Path) -> str:
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
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".loopwright-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
            flock(file.fileno(), wait=False)
    except OSError as error:
        what = "locks (flock) are refused" if error.errno in (errno.ENOLCK, errno.ENOTSUP) else ""
        return f"{what or 'it cannot be written'} ({error.strerror or error})"
    return ""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _by_space(check: str, observation: str, free: int) -> Finding:
    if free >= _LITTLE:
        return ok(check, observation)
    judge = warning if free >= _TOO_LITTLE else problem
    return judge(
        check,
        observation,
        "a run ends where a record or a process's output cannot be written",
        "make room, or set TMPDIR" if check == "TMPDIR" else "make room, or choose another folder",
    )
