"""Accelerators: NVIDIA GPUs and OpenCL, by their files alone, so that nothing heavy is loaded.

There is no target for them yet, so nothing that is found here costs anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from loopwright.inspection.doctor.finding import Finding, listed, ok
from loopwright.inspection.doctor.system_files import SystemFiles

#: Folders in which the dynamic linker looks, beside those of its cache and LD_LIBRARY_PATH.
_FOLDERS = ("/lib64", "/usr/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/cuda/lib64")
_MULTIARCH = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_VENDORS = "/etc/OpenCL/vendors"
#: How a GPU is reached under Windows (WSL), where it has no device of its own.
_WSL = "dxg"
_UNUSED = "kernels are built for the CPU alone"


def nvidia(files: SystemFiles, environ: Mapping[str, str]) -> Finding:
    """Say which NVIDIA GPUs there are, and whether their driver can be loaded.

    Args:
        files: of the system.
        environ: variables of the environment.
    """
    driver = library(files, environ, "libcuda.so.1")
    devices = files.names("/dev")
    nodes = [n for n in devices if re.fullmatch(r"nvidia\d+", n)]
    if driver and _WSL in devices:
        nodes.append(_WSL)
    gpus = _gpu_names(files) or nodes
    version = re.search(
        r"Kernel Module.*?\s(\d+\.[\d.]+)", files.line("/proc/driver/nvidia/version")
    )
    if not driver and not gpus:
        return ok("GPU (NVIDIA)", f"absent; {_UNUSED}")
    if driver and nodes:
        with_version = f", driver {version[1]}" if version else ""
        return ok("GPU (NVIDIA)", f"{listed(gpus)} ({driver}{with_version}); {_UNUSED}")
    if driver:
        return ok("GPU (NVIDIA)", f"{driver}, without a device (/dev/nvidia0); {_UNUSED}")
    return ok("GPU (NVIDIA)", f"{listed(gpus)}, without libcuda.so.1; {_UNUSED}")


def opencl(files: SystemFiles, environ: Mapping[str, str]) -> Finding:
    """Say which platforms of OpenCL are registered.

    Args:
        files: of the system.
        environ: variables of the environment.
    """
    loader = library(files, environ, "libOpenCL.so.1")
    platforms = [name for name in files.names(_VENDORS) if name.endswith(".icd")]
    described = [f"{name} -> {files.line(f'{_VENDORS}/{name}')}" for name in platforms]
    if loader and platforms:
        return ok("OpenCL", f"{loader} with {listed(described)}; {_UNUSED}")
    if not loader and not platforms:
        return ok("OpenCL", f"absent; {_UNUSED}")
    if loader:
        return ok("OpenCL", f"{loader}, without a platform in {_VENDORS}; {_UNUSED}")
    return ok("OpenCL", f"{listed(described)}, without libOpenCL.so.1; {_UNUSED}")


def library(files: SystemFiles, environ: Mapping[str, str], name: str) -> str:
    """Where the dynamic linker would find a library, or its name; empty where it would not.

    Args:
        files: of the system.
        environ: variables of the environment.
        name: of the library, such as ``libcuda.so.1``.
    """
    chosen = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in (*chosen, *_FOLDERS, *_MULTIARCH):
        if files.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    # The linker's cache is a table of names and paths that end with a zero byte.
    cache = files.data("/etc/ld.so.cache") or b""
    found = re.search(rb"(/[^\0]*/" + re.escape(name.encode()) + rb")\0", cache)
    path = found[1].decode("utf-8", "replace") if found else ""
    return path if path and files.exists(path) else ""


def _gpu_names(files: SystemFiles) -> list[str]:
    """Models of the GPUs that NVIDIA's driver knows."""
    folder = "/proc/driver/nvidia/gpus"
    found: list[str] = []
    for name in files.names(folder):
        model = re.search(
            r"^Model:\s*(\S.*)$", files.text(f"{folder}/{name}/information") or "", re.M
        )
        found += [model[1].strip()] if model else [name]
    return found
