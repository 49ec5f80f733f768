"""Verbs of the command line in a process that looks like one of another system: ``python
tests/other_system.py Windows '[["workloads"], ["records", "list", "a.jsonl"]]'``.

What that system lacks is taken away: modules, functions and constants. How its files and processes
behave cannot be shown here.
"""

import builtins
import io
import json
import mmap
import os
import platform
import re
import select
import signal
import sys
import tempfile
import time
from contextlib import suppress

# Other libraries look at the system when they are imported, and shall find the one that is there.
import click  # noqa: F401
import joblib  # noqa: F401
import llvmlite.binding  # noqa: F401
import rich.live
import rich.progress  # noqa: F401
import scipy.optimize
import scipy.stats  # noqa: F401
import xgboost  # noqa: F401

with suppress(ImportError):
    import pyopencl  # noqa: F401

POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
#: Names that are missing on each system, of the modules below.
MISSING = {
    "Windows": {
        os: r"sched_\w+|posix_fa\w+|fork\w*|get(uid|euid|gid|pgid|sid|loadavg)|set(sid|uid|pgid)"
        r"|killpg|wait(id|3|4)|pread\w*|pwrite\w*|fch\w+|memfd_create|mkfifo|sysconf|uname|nice"
        r"|set_blocking|O_(CLOEXEC|NOFOLLOW|DIRECTORY|NONBLOCK|TMPFILE)|W(EXITED|STOPPED|NOWAIT)"
        r"|P_\w+",
        signal: r"SIG(KILL|HUP|ALRM|STOP|CONT|QUIT|USR1|USR2|PIPE|CHLD|XFSZ|XCPU|BUS)|\w+timer"
        r"|alarm|ITIMER_\w+|pthread_\w+",
        select: r"poll|epoll|POLL\w+",
        mmap: r"(MAP|MADV|PROT)_\w+",
        time: r"pthread_getcpuclockid|clock_gettime",
    },
    "Darwin": {
        os: r"sched_\w+|posix_fa\w+|waitid|memfd_create|O_TMPFILE",
        mmap: r"MADV_HUGEPAGE",
        time: r"pthread_getcpuclockid",
    },
}


def pretend(system: str) -> None:
    if system == "Windows":
        sys.modules.update(dict.fromkeys(POSIX_MODULES))
    for module, names in MISSING[system].items():
        for name in filter(re.compile(names).fullmatch, dir(module)):
            delattr(module, name)
    tempfile._O_TMPFILE_WORKS = False
    platform.system = lambda: system
    os.stat, io.open = _without_proc(os.stat), _without_proc(io.open)
    builtins.open = io.open
    # The clock of timed loops is a number that code is compiled for; that of this system stays.
    from loopwright.runtime.kernels.timer import native_timer

    native_timer()
    sys.platform = {"Windows": "win32", "Darwin": "darwin"}[system]


def _without_proc(function):
    def call(path, *args, **kwargs):
        if not isinstance(path, int) and os.fsdecode(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **kwargs)

    return call


def main() -> None:
    pretend(sys.argv[1])
    from loopwright.cli import main as run

    codes = []
    for words in json.loads(sys.argv[2]):
        print("==", *words, flush=True)
        codes.append(run(words))
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
