"""Accelerators: NVIDIA GPUs and OpenCL, by their files alone, so that nothing heavy is loaded.

A machine without them is fine; one with half of the requirements is told about the other half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from loopwright.inspection.doctor.finding import Finding, SystemFiles, listed, ok, warning

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
    """List the NVIDIA GPUs, and judge whether their driver can be loaded."""
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
        found = f"{listed(gpus)}, without libcuda.so.1"
        return warning(check, found, _BUILT_ONLY, "install NVIDIA's driver")
    if not nodes:
        return ok(check, f"{driver}, without a device (/dev/nvidia0)")
    found = f"{listed(gpus)} ({driver}{f', driver {version[1]}' if version else ''})"
    if not installed("cuda"):
        found += ", without the package cuda-bindings"
        return warning(check, found, _BUILT_ONLY, 'pip install "loopwright[cuda]"')
    return ok(check, f"{found}; the target cuda runs on it")


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
        found = f"the package pyopencl, without a platform in {_VENDORS}"
        remedy = "install the GPU's driver, or PoCL for the CPU (apt-get install pocl-opencl-icd)"
        return warning(check, found, _BUILT_ONLY, remedy)
    if not package:
        return ok(check, f'{listed(described)}, unused: pip install "loopwright[opencl]" for it')
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
