"""CPUs and their frequency, the layout of memory, and accelerators, by the system's files alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from loopwright.extras import install
from loopwright.inspection.doctor.finding import (
    Finding,
    SystemFiles,
    listed,
    numbers_in,
    ok,
    unknown,
    warning,
)
from loopwright.presenting import counted

_CPU = "/sys/devices/system/cpu"


def affinity(
    files: SystemFiles,
    cpus: Sequence[int],
    threads: int,
    variable: str = "LOOPWRIGHT_NUM_THREADS",
) -> Finding:
    """Report the number of usable CPUs, and of a kernel's threads, as ``variable`` sets them."""
    online = numbers_in(files.line(f"{_CPU}/online"))
    used = f"a kernel uses {counted(threads, 'thread')}"
    if threads > len(cpus):
        return warning(
            "CPUs",
            f"{len(cpus)} may be used, and {used} ({variable})",
            "threads take turns on a CPU, and the others wait for them",
            f"unset {variable}, or set it to {len(cpus)} at most",
        )
    if threads < len(cpus):
        used += f" ({variable})"
    if not online:
        text = f"{len(cpus)} may be used, and {used}; the system does not list all of them"
        return unknown("CPUs", text)
    if len(cpus) >= len(online):
        return ok("CPUs", f"all {len(cpus)} may be used, and {used}")
    why = "taskset, or a cgroup's cpuset"
    return ok("CPUs", f"{len(cpus)} of {len(online)} may be used ({why}), and {used}")


def siblings(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    cores = set()
    for n in cpus:
        topology = f"{_CPU}/cpu{n}/topology"
        lists = [files.line(f"{topology}/{x}") for x in ("core_cpus_list", "thread_siblings_list")]
        cores.add(frozenset(numbers_in(next(filter(None, lists), ""))))
    if frozenset() in cores:
        return unknown("SMT", "the system does not tell which CPUs share a core")
    guest = "hypervisor" in (files.text("/proc/cpuinfo") or "").split()
    if len(cores) == len(cpus):
        doubt = ", as far as a virtual machine can tell" if guest else ""
        return ok("SMT", f"each CPU that may be used is a core of its own{doubt}")
    first = ",".join(map(str, sorted(min(core.intersection(cpus)) for core in cores)))
    return warning(
        "SMT",
        f"{len(cpus)} CPUs are {len(cores)} cores, whose threads share their arithmetic units",
        "kernels that keep the vector units busy gain nothing from the second thread of a core, "
        "and their times vary more",
        f"try one thread a core as well: taskset -c {first} before the command. (--threads takes "
        "the first CPUs, which may share a core)",
    )


#: Drivers whose governor ``powersave`` still lets the CPU itself go to full speed under load.
_SELF_GOVERNED = ("intel_pstate", "amd-pstate-epp")


def governor(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    names = Counter(files.line(f"{_CPU}/cpu{n}/cpufreq/scaling_governor") for n in cpus)
    names.pop("", None)
    if not names:
        return unknown(
            "CPU governor", "the system does not tell (usual in virtual machines and containers)"
        )
    driver = files.line(f"{_CPU}/cpu{cpus[0]}/cpufreq/scaling_driver")
    observation = ", ".join(sorted(names)) + (f" (driver {driver})" if driver else "")
    calm = {"performance"} | ({"powersave"} if driver in _SELF_GOVERNED else set())
    if set(names) <= calm:
        return ok("CPU governor", observation)
    return warning(
        "CPU governor",
        observation,
        "the clock rises only after some milliseconds of work, so that short kernels look slow "
        "and times vary",
        "sudo cpupower frequency-set -g performance",
    )


def turbo(files: SystemFiles) -> Finding:
    no_turbo = files.number(f"{_CPU}/intel_pstate/no_turbo")
    boost = files.number(f"{_CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return unknown("turbo", "the system does not tell (usual in virtual machines, and on Arm)")
    if no_turbo == 1 or boost == 0:
        return ok("turbo", "off: the clock is steady, and slower than in use with it")
    return ok(
        "turbo",
        "on: the clock depends on heat and on how many cores work; a run watches a reference "
        "kernel for that, and compares the best in turns",
    )


_HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
#: Bytes of a line of the cache, at whose multiples arrays should begin.
_LINE = 64


def huge_pages(files: SystemFiles) -> Finding:
    chosen = re.search(r"\[(\w+)\]", files.line(_HUGE))
    if chosen is None:
        return unknown("huge pages", f"there is no {_HUGE}")
    if chosen[1] == "never":
        return warning(
            "huge pages",
            "never: each 4 KiB of an array is a page of its own",
            "kernels on arrays of many MB lose time looking up pages",
            f"echo madvise | sudo tee {_HUGE}",
        )
    asks = ", and NumPy asks for them" if chosen[1] == "madvise" else ""
    return ok("huge pages", f"{chosen[1]}: large arrays get them{asks}")


def alignment(addresses: Sequence[int]) -> Finding:
    off = {address % _LINE for address in addresses} - {0}
    if not off:
        return ok("array alignment", f"NumPy's arrays begin at multiples of {_LINE} bytes here")
    return warning(
        "array alignment",
        f"NumPy's arrays begin up to {max(off)} bytes behind a multiple of {_LINE}",
        "kernels are timed on aligned arrays; called with such ones, some take 1.2 to 1.7 times "
        "as long",
        "allocate by loopwright.nd.empty or nd.array; np.from_dlpack(a) views one in NumPy",
    )


def numpy_addresses() -> list[int]:
    import numpy as np

    arrays = [np.empty(1 << power, dtype=np.uint8) for power in range(12, 25, 2)]
    return [array.ctypes.data for array in arrays]


#: Folders in which the dynamic linker looks, beside those of its cache and LD_LIBRARY_PATH.
_FOLDERS = ("/lib64", "/usr/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/cuda/lib64")
_MULTIARCH = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_VENDORS = "/etc/OpenCL/vendors"
#: A folder for each GPU that NVIDIA's driver knows.
_NVIDIA = "/proc/driver/nvidia/gpus"
#: Device of GPUs under Windows (WSL), where they have none of their own.
_WSL = "dxg"
_BUILT_ONLY = "kernels for it are built, and cannot run"


def is_installed(package: str) -> bool:
    """Whether a package could be imported; it is not."""
    return find_spec(package) is not None


def nvidia(
    files: SystemFiles,
    environ: Mapping[str, str],
    installed: Callable[[str], bool] = is_installed,
) -> Finding:
    driver = library(files, environ, "libcuda.so.1")
    devices = files.names("/dev")
    nodes = [n for n in devices if re.fullmatch(r"nvidia\d+", n)]
    if driver and _WSL in devices:
        nodes.append(_WSL)
    gpus = []
    for name in files.names(_NVIDIA):
        facts = files.text(f"{_NVIDIA}/{name}/information") or ""
        model = re.search(r"^Model:\s*(\S.*)$", facts, re.M)
        gpus.append(model[1].strip() if model else name)
    gpus = gpus or nodes
    version = re.search(
        r"Kernel Module.*?\s(\d+\.[\d.]+)", files.line("/proc/driver/nvidia/version")
    )
    check = "GPU (NVIDIA)"
    if not driver and not gpus:
        return ok(check, "absent; the target cuda builds kernels, which run elsewhere")
    if not driver:
        observation = f"{listed(gpus)}, without libcuda.so.1"
        return warning(check, observation, _BUILT_ONLY, "install NVIDIA's driver")
    if not nodes:
        return ok(check, f"{driver}, without a device (/dev/nvidia0)")
    observation = f"{listed(gpus)} ({driver}{f', driver {version[1]}' if version else ''})"
    if not installed("cuda"):
        observation += ", without the package cuda-bindings"
        return warning(check, observation, _BUILT_ONLY, install("cuda"))
    return ok(check, f"{observation}; the target cuda runs on it")


def opencl(
    files: SystemFiles,
    environ: Mapping[str, str],
    installed: Callable[[str], bool] = is_installed,
) -> Finding:
    loader = library(files, environ, "libOpenCL.so.1")
    platforms = [name for name in files.names(_VENDORS) if name.endswith(".icd")]
    described = [f"{name} -> {files.line(f'{_VENDORS}/{name}')}" for name in platforms]
    check, package = "OpenCL", installed("pyopencl")
    if not platforms and not package:
        return ok(check, "absent; the target opencl builds kernels, which run elsewhere")
    if not platforms:
        observation = f"the package pyopencl, without a platform in {_VENDORS}"
        remedy = "install the GPU's driver, or PoCL for the CPU (apt-get install pocl-opencl-icd)"
        return warning(check, observation, _BUILT_ONLY, remedy)
    if not package:
        return ok(check, f"{listed(described)}, unused: {install('opencl')} for it")
    return ok(check, f"{listed(described)} ({loader or 'pyopencl'}); the target opencl runs on it")


def library(files: SystemFiles, environ: Mapping[str, str], name: str) -> str:
    """Path or name of a library for the dynamic linker; empty where it would not find it."""
    chosen = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in (*chosen, *_FOLDERS, *_MULTIARCH):
        if files.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    # The linker's cache is a table of names and paths that end with a zero byte.
    cache = files.data("/etc/ld.so.cache") or b""
    entry = re.search(rb"(/[^\0]*/" + re.escape(name.encode()) + rb")\0", cache)
    path = entry[1].decode("utf-8", "replace") if entry else ""
    return path if path and files.exists(path) else ""
