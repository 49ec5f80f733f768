"""Installation: system, Python, packages, settings, and the compiler with its vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from loopwright.errors import UsageError
from loopwright.inspection.doctor.finding import (
    Finding,
    SystemFiles,
    listed,
    ok,
    problem,
    unknown,
    warning,
)

#: The two distributions that bring the module `xgboost`, see docs/adr/001-xgboost-cpu.md.
XGBOOST = ("xgboost", "xgboost-cpu")
#: The oldest XGBoost that is supported.
_OLDEST_XGBOOST = "2.1"
_TESTED = "Linux"
#: Variables that change times of kernels and are easily forgotten.
_WEIGHTY = re.compile(r"LD_PRELOAD|MALLOC_|GLIBC_TUNABLES")


def system(name: str, release: str, python: str) -> Finding:
    observation = f"Python {python} on {name} {release}"
    if name == _TESTED:
        return ok("system", observation)
    if name == "Windows":
        return problem(
            "system",
            observation,
            "nothing can be tuned; logs are read and applied, kernels are built and run, "
            "multi-threaded ones excepted",
            "tune on Linux or macOS, in WSL for example, and bring the log",
        )
    return warning(
        "system",
        observation,
        f"loopwright is tested on {_TESTED}; threads are not pinned elsewhere, and much of what "
        "disturbs times is not seen",
        f"use {_TESTED} where times count",
    )


def xgboost(installed: Mapping[str, str], system: str = _TESTED) -> Finding:
    wanted = "xgboost-cpu" if system in ("Linux", "Windows") else "xgboost"
    there = [f"{name} {installed[name]}" for name in XGBOOST if name in installed]
    if not there:
        return problem(
            "XGBoost",
            "not installed",
            "the default tuner, xgb, cannot learn; ga, random and grid work",
            f"pip install {wanted}",
        )
    if len(there) == len(XGBOOST):
        return warning(
            "XGBoost",
            f"{listed(there)} are both installed, and are one module: the one installed last won",
            "removing one of them breaks the other",
            f"pip uninstall -y xgboost xgboost-cpu && pip install {wanted}",
        )
    (version,) = (installed[name] for name in XGBOOST if name in installed)
    if _numbers(version) >= _numbers(_OLDEST_XGBOOST):
        return ok("XGBoost", there[0])
    return problem(
        "XGBoost",
        f"{there[0]} is older than {_OLDEST_XGBOOST}",
        "the default tuner, xgb, may fail; ga, random and grid work",
        f"pip install --upgrade {there[0].split()[0]}",
    )


def dependencies(required: Sequence[str], version_of: Callable[[str], str | None]) -> Finding:
    """Compare installed packages with requirements like ``numpy>=1.26``; markers are left out."""
    wanted = [re.fullmatch(r"([\w.-]+)\s*>=\s*([\d.]+)", text.strip()) for text in required]
    pairs = [(match[1], match[2]) for match in wanted if match is not None]
    if not pairs:
        return unknown("packages", "loopwright is not installed as a package, only on the path")
    versions = {name: version_of(name) for name, _ in pairs}
    bad = [
        f"{name} {versions[name] or 'missing'} (at least {least})"
        for name, least in pairs
        if _numbers(versions[name] or "") < _numbers(least)
    ]
    if not bad:
        return ok("packages", ", ".join(f"{name} {version}" for name, version in versions.items()))
    return problem(
        "packages",
        listed(bad),
        "parts of loopwright fail",
        f"pip install --upgrade {' '.join(text.split()[0] for text in bad)}",
    )


def environment(read: Callable[[], object], variables: Mapping[str, str]) -> Finding:
    """Judge variables that change how kernels run; ``read`` reads the settings."""
    shown = ", ".join(f"{name}={value}" for name, value in variables.items())
    try:
        read()
    except UsageError as error:
        text = "nothing can be tuned or built"
        return problem("environment", str(error), text, "mend or unset the variable")
    weighty = [name for name in variables if _WEIGHTY.match(name)]
    if not weighty:
        return ok("environment", shown or "no variable that changes how kernels run")
    return warning(
        "environment",
        shown,
        f"{listed(weighty)} may change where arrays lie and how fast memory is; times hold with "
        "them only",
        "unset them, unless your programs run with them too",
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version, 2 and 1 of ``2.1.0rc1``; none for no version."""
    digits = re.match(r"\d+(\.\d+)*", version)
    text = re.sub(r"(\.0+)+$", "", digits[0]) if digits else ""
    return tuple(map(int, text.split("."))) if text else ()


#: Names by which LLVM calls a CPU that it does not know.
_NAMELESS = re.compile(r"generic|x86-64(-v\d)?$")
#: Bytes of a vector register by the system's name of the instruction set, widest first.
_WIDTHS = (("avx512f", 64), ("avx", 32), ("sse2", 16), ("asimd", 16))
#: Bytes of a vector of Arm's SVE, whose length the CPU chooses.
_SVE_LENGTH = "/proc/sys/abi/sve_default_vector_length"


def compiler(files: SystemFiles) -> list[Finding]:
    try:
        import llvmlite
        from llvmlite import binding
    except (ImportError, OSError) as error:
        return [no_llvm(f"{type(error).__name__}: {error}")]
    from loopwright.target import Target, host_cpu

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
    on = sum(word.startswith("+") for word in features.split(","))
    text = f"llvmlite {llvmlite} with LLVM {version}; target {cpu} with {on} features of the CPU"
    if _NAMELESS.match(cpu):
        return warning(
            "LLVM",
            f"{text}, which is no model of CPU: LLVM does not know this one by name",
            "instructions are used, but ordered for a typical CPU; records carry the vague name",
            "install a newer llvmlite; in a virtual machine, pass the CPU of the host through",
        )
    return ok("LLVM", text)


def vectors(files: SystemFiles, used: int) -> Finding:
    text = files.text("/proc/cpuinfo") or ""
    listing = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    bits = f"the default target uses vectors of {8 * used} bits"
    if listing is None:
        return unknown("vectors", f"{bits}; the system does not list the CPU's instruction sets")
    flags = set(listing[1].split())
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
