"""Environment variables, and the facts about this machine for records; imports no LLVM.

Only `settings()` reads ``LOOPWRIGHT_*``.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.errors import UsageError

MAX_THREADS = 1023
_SPIN = 2000
_POOLS = ("auto", "futex", "pthread")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: Instruction sets worth a line in a record: they decide which kernels a CPU can run, and how fast.
_ISA = frozenset(
    {"sse4_2", "avx", "fma", "f16c", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq"}
    | {"avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
    | {"asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"}
)
#: Environment variables that change how kernels run, or how memory is laid out under them.
_VARIABLES = re.compile(
    r"(LOOPWRIGHT|TVM|OMP|GOMP|KMP|MALLOC)_|(MKL|OPENBLAS)_NUM_THREADS$|GLIBC_TUNABLES$|LD_PRELOAD$"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings from the environment, each from the variable ``LOOPWRIGHT_`` and its name."""

    #: Threads of a parallel loop, the caller included; None: all usable cores. ``TVM_NUM_THREADS``
    #: counts if ``LOOPWRIGHT_NUM_THREADS`` is unset; ``OMP_NUM_THREADS`` is not read, since it is
    #: often set for other libraries.
    num_threads: int | None = None
    #: Number of looks for work of an idle thread of the pool before it sleeps, with one pause
    #: instruction (10 to 50 ns) between two; 0, which sleeps at once, is best on a shared machine.
    #: After a sleep that work ended within a millisecond, a thread looks for one more millisecond.
    #: ``TVM_THREAD_POOL_SPIN_COUNT`` counts if it is unset. ``TVM_BIND_THREADS`` is not read, since
    #: no thread is bound unless `config_threadpool` asks.
    spin: int = _SPIN
    #: Bytes of workspace of one kernel call, all threads together, with an optional K, M, G or T;
    #: None: half of the memory.
    workspace_limit: int | None = None
    #: Sleep of the pool's threads: ``futex`` (Linux on x86-64 and aarch64), ``pthread`` (any POSIX
    #: system), or ``auto`` (futex where it exists).
    pool: str = "auto"
    #: Check programs after every pass of lowering.
    verify: bool = False
    #: Folder of kernels, of default schedules, and of programs that a device's driver compiled; 0
    #: keeps nothing. Empty (unset, or 1): see `cache_folder`.
    cache: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        threads = _integer(environ, num_threads_variable(environ), 1, MAX_THREADS)
        spins = _first_set(environ, "LOOPWRIGHT_SPIN", "TVM_THREAD_POOL_SPIN_COUNT")
        spin = _integer(environ, spins, 0, 1_000_000_000)
        pool = environ.get("LOOPWRIGHT_POOL", "").strip() or "auto"
        if pool not in _POOLS:
            raise UsageError(f"LOOPWRIGHT_POOL={pool!r} is not one of {', '.join(_POOLS)}")
        return cls(
            num_threads=threads,
            spin=_SPIN if spin is None else spin,
            workspace_limit=_size(environ, "LOOPWRIGHT_WORKSPACE_LIMIT"),
            pool=pool,
            verify=bool(_integer(environ, "LOOPWRIGHT_VERIFY", 0, 1)),
            cache=environ.get("LOOPWRIGHT_CACHE", "").strip().removeprefix("1"),
        )


def num_threads_variable(environ: Mapping[str, str]) -> str:
    return _first_set(environ, "LOOPWRIGHT_NUM_THREADS", "TVM_NUM_THREADS")


def _first_set(environ: Mapping[str, str], name: str, otherwise: str) -> str:
    set_ = [n for n in (name, otherwise) if environ.get(n, "").strip()]
    return set_[0] if set_ else name


def _integer(environ: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise UsageError(f"{name}={text!r} is not a whole number from {low} to {high}")
    return int(text)


def _size(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if not match:
        raise UsageError(f"{name}={text!r} is not a size; write bytes, or a number and K, M, G, T")
    return int(match[1]) * _UNITS[match[2].upper()]


@lru_cache(maxsize=1)
def settings() -> Settings:
    return Settings.from_environ(os.environ)


def cache_folder() -> Path | None:
    """The folder of built kernels: ``LOOPWRIGHT_CACHE``, else below ``XDG_CACHE_HOME``, by default
    ``~/.cache``; None: nowhere."""
    chosen = settings().cache
    if chosen:
        return None if chosen == "0" else Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "loopwright" / "kernels" if os.path.isabs(base) else None


def total_memory() -> int:
    """Bytes of memory of this machine; 4 GiB where the system does not tell."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import ctypes

    status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its own size, then the memory's
    system = getattr(ctypes, "windll", None)
    tells = system is not None and system.kernel32.GlobalMemoryStatusEx(status)
    return status[1] if tells else 4 << 30


def load_average() -> float | None:
    """Programs that ran or waited to in the last minute; None where the system does not tell."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the CPUs that the calling thread may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@lru_cache(maxsize=1)
def cpu_info() -> tuple[str, tuple[str, ...]]:
    """Model name of the CPU, and its instruction sets that matter to kernels, sorted."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    fields = dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", text.partition("\n\n")[0], re.MULTILINE))
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return model.strip(), tuple(sorted(_ISA.intersection(flags)))


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """All feature flags of the CPU by the system's names; empty where unknown."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    return frozenset(flags[1].split() if flags else ())


@lru_cache(maxsize=16)
def version(distribution: str) -> str:
    """Version of an installed distribution, ``"not installed"`` without one; imports nothing."""
    from importlib import metadata  # 20 ms: most runs never ask

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """The facts that a measurement depends on, for JSON; equal on one machine with one
    installation."""
    model, isa = cpu_info()
    return {
        "cpu": model,
        "arch": platform.machine(),
        "isa": list(isa),
        "cores": len(usable_cpus()),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "loopwright": version("loopwright"),
        "llvmlite": version("llvmlite"),
        "numpy": version("numpy"),
    }


def surroundings(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Other facts that may explain a time: the present state of this machine, for JSON.

    Unlike `machine` it changes from run to run, and lacks unknown facts.
    """
    environ = os.environ if environ is None else environ
    frequency = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    khz, load = _first_line(frequency / "scaling_cur_freq"), load_average()
    facts = {
        "git": _revision(Path(__file__).parent.parent),
        "load": None if load is None else round(load, 2),
        "governor": _first_line(frequency / "scaling_governor"),
        "mhz": int(khz) // 1000 if khz.isdecimal() else None,
        "variables": {n: environ[n][:200] for n in sorted(environ) if _VARIABLES.match(n)},
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def _revision(root: Path) -> str:
    git = root / ".git"
    pointer = _first_line(git).removeprefix("gitdir: ")
    git = root / pointer if pointer else git
    head = _first_line(git / "HEAD")
    if not head.startswith("ref: "):
        return head
    shared = git / (_first_line(git / "commondir") or ".")
    name = head.removeprefix("ref: ")
    packed = (line.split() for line in _lines(shared / "packed-refs"))
    from_pack = (words[0] for words in packed if words[1:] == [name])
    return _first_line(shared / name) or next(from_pack, "")


def _first_line(path: Path) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
