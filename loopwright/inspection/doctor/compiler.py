"""Compiler: LLVM, its name for this CPU, and the width of its vectors."""

from __future__ import annotations

import re

from loopwright.inspection.doctor.finding import Finding, ok, problem, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles

#: Names by which LLVM calls a CPU that it does not know.
_NAMELESS = re.compile(r"generic|x86-64(-v\d)?$")
#: Bytes of a vector register by the system's name of the instruction set, widest first.
_WIDTHS = (("avx512f", 64), ("avx", 32), ("sse2", 16), ("asimd", 16))
#: Bytes of a vector of Arm's SVE, whose length the CPU chooses.
_SVE_LENGTH = "/proc/sys/abi/sve_default_vector_length"


def compiler(files: SystemFiles) -> list[Finding]:
    """Judge LLVM as this Python finds it, and the vectors of the default target."""
    try:
        import llvmlite
        from llvmlite import binding
    except (ImportError, OSError) as error:
        return [no_llvm(f"{type(error).__name__}: {error}")]
    from loopwright.target import Target
    from loopwright.target.cpu import host_cpu

    version = ".".join(map(str, binding.llvm_version_info))
    name, features = host_cpu()
    return [
        llvm(llvmlite.__version__, version, name, features),
        vectors(files, Target("llvm").vector_bytes),
    ]


def no_llvm(why: str) -> Finding:
    return problem(
        "LLVM",
        f"llvmlite cannot be imported ({why})",
        "nothing can be compiled",
        "pip install --force-reinstall llvmlite",
    )


def llvm(llvmlite: str, version: str, cpu: str, features: str) -> Finding:
    """Judge the version of LLVM, its name for this CPU, and features such as ``+avx2,-sse4a``."""
    on = sum(word.startswith("+") for word in features.split(","))
    found = f"llvmlite {llvmlite} with LLVM {version}; target {cpu} with {on} features of the CPU"
    if _NAMELESS.match(cpu):
        return warning(
            "LLVM",
            f"{found}, which is no model of CPU: LLVM does not know this one by name",
            "instructions are used, but ordered for a typical CPU; records carry the vague name",
            "install a newer llvmlite; in a virtual machine, pass the CPU of the host through",
        )
    return ok("LLVM", found)


def vectors(files: SystemFiles, used: int) -> Finding:
    """Compare the vectors of the CPU with those of the default target, of ``used`` bytes."""
    text = files.text("/proc/cpuinfo") or ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    bits = f"the default target uses vectors of {8 * used} bits"
    if found is None:
        return unknown("vectors", f"{bits}; the system does not list the CPU's instruction sets")
    flags = set(found[1].split())
    name, width = next(((n, w) for n, w in _WIDTHS if n in flags), ("none known", used))
    sve = files.number(_SVE_LENGTH) or 0
    if "sve" in flags and sve > used:
        return ok("vectors", f"{bits}; those of SVE, of {8 * sve} bits here, are not used yet")
    if used >= width:
        return ok("vectors", f"{bits}, and the CPU has no wider ones ({name})")
    return warning(
        "vectors",
        f"{bits}; the CPU has {name} with {8 * width} bits",
        f"up to {width // used} times fewer operations a second",
        "install a newer llvmlite; in a virtual machine or a sandbox, see whether the system lets "
        "programs use these registers",
    )
