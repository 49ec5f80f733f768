"""The system's C compiler: its flags for a target, its runs, and errors where it is not there."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loopwright.errors import BuildError, TargetError
from loopwright.target import Target, host_cpu

INSTALL = "apt-get install gcc libc6-dev"
#: Same arithmetic as everywhere: integers wrap, nothing traps. Nothing is contracted: the text says
#: ``fma`` where a product and a sum are rounded once, and math functions depend on it.
_FLAGS = (
    "-std=gnu11", "-fPIC", "-fwrapv", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-fopenmp-simd", "-ffp-contract=off", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-w", "-pipe",
)  # fmt: skip
#: For code whose loads or stores stand under conditions. GCC 12 miscompiles masked loads of vector
#: loops: it gives the three loads of an interleaved group one mask, and forms a blend of a load
#: whose mask is constant, which touches the lanes that are off. Without if-conversion there are no
#: masked loads, and such loops stay scalar.
GUARDED = "-fno-tree-loop-if-convert"
#: Prefix of the names of private folders; the process follows.
_FOLDER = "loopwright-cc-"
#: Seconds after which a folder without its process is removed.
_ABANDONED = 600.0
#: Features that LLVM names and compilers have no flag for.
_NO_FLAG = {"cmov", "64bit", "cx8", "fxsr", "x87"}


def find_compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise TargetError(
            f"the target c is not available: there is no C compiler {name!r} on this machine; "
            f"install one ({INSTALL}), or name another with -cc=..."
        )
    return path


@dataclass(frozen=True, slots=True)
class Source:
    """A C file, and properties that its text does not show."""

    text: str
    guarded: bool = False  #: whether loads or stores stand under conditions
    #: Whether functions depend on the rounding of every operation. A C compiler relaxes a whole
    #: file or nothing, so the option ``-fastmath`` has no effect on such a file.
    strict: bool = False


def flags(target: Target, source: Source) -> list[str]:
    options = target.options
    level = f"-O{options['opt_level']}"
    # Level 2 keeps an unrolled loop of vectors rolled, for it is large, without the first flag.
    more = ["-fpeel-loops", "-fno-tree-slp-vectorize"] if options["opt_level"] else []
    if source.guarded and "clang" not in options["cc"]:
        more.append(GUARDED)
    fast = ["-ffast-math"] if options["fastmath"] and not source.strict else []
    return [level, *_FLAGS, *more, *cpu_flags(target), *fast, *shlex.split(options["cflags"])]


def cpu_flags(target: Target) -> list[str]:
    cpu, features = target.options["mcpu"], target.options["mattr"]
    host, host_features = host_cpu()
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    name = "native" if cpu == host else cpu
    names = [f"-{'march' if x86 else 'mcpu'}={name}"] if name not in ("", "generic") else []
    if not x86:
        return names
    implied = set(host_features.split(",")) if cpu == host else set()
    switches = [
        f"-m{'' if feature[0] == '+' else 'no-'}{feature[1:]}"
        for feature in features.split(",")
        if feature and feature not in implied and feature[1:] not in _NO_FLAG
    ]
    return [*names, *switches, f"-mprefer-vector-width={8 * target.vector_bytes}"]


@lru_cache(maxsize=1)
def remove_abandoned() -> None:
    """Remove folders of builders that were killed, once a process: those older than any build is,
    with the number of no process in their names. Not on Windows, where asking whether a process
    is there would send it Ctrl-C."""
    if os.name != "posix":
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):  # another process removes it as well, or it is another user's
            if time.time() - folder.stat().st_mtime > _ABANDONED and not _alive(number):
                shutil.rmtree(folder)


def _alive(number: str) -> bool:
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def compile_c(source: Source, target: Target, what: str = "-c") -> bytes:
    """Compile a file to an object file, or with ``-S`` to assembly, in a private folder. A
    TargetError names what is missing (compiler, headers of the C library, CPU), a BuildError what
    the compiler refuses."""
    compiler = find_compiler(target.options["cc"])
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        out = Path(folder) / "out"
        command = [compiler, *flags(target, source), what, "-x", "c", "-", "-o", str(out)]
        environ = {**os.environ, "LC_ALL": "C", "TMPDIR": folder}
        run = subprocess.run(
            command, input=source.text.encode(), capture_output=True, env=environ, check=False
        )
        if run.returncode == 0:
            return out.read_bytes()
    raise _refusal(target, run.stderr.decode(errors="replace"), run.returncode)


def _refusal(target: Target, output: str, code: int) -> Exception:
    cc, cpu = target.options["cc"], target.options["mcpu"]
    lines = [x for x in output.splitlines() if "error" in x] or output.strip().splitlines()
    first = lines[0] if lines else f"exit status {code}"
    if re.search(r"(fatal error: \S+\.h: No such file|'\S+\.h' file not found)", output):
        return TargetError(f"the target c is not available: {first}; install it ({INSTALL})")
    if re.search(r"(-march|-mcpu)=", first) or "unknown target CPU" in first:
        return TargetError(
            f"{cc} does not know the CPU {cpu!r} ({first}); leave mcpu out for this machine's, "
            "name an older one, or install a newer compiler"
        )
    return BuildError(f"{cc} refused the code: {first}")
