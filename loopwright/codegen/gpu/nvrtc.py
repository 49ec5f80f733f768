"""NVRTC: CUDA C++ to machine code, and resources of kernels. Needs neither a GPU nor a driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from loopwright.errors import BuildError, TargetError
from loopwright.extras import install
from loopwright.runtime import KernelResources

INSTALL = install("cuda")
#: Nothing is contracted: the text says ``fma`` where a product and a sum are rounded once.
_FLAGS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


@dataclass(frozen=True)
class Compiled:
    image: bytes  #: machine code, or PTX
    log: str  #: messages of the compiler


def compile_cubin(source: str, name: str, arch: str, fast_math: bool = False) -> Compiled:
    """Compile CUDA C++ for one architecture, such as ``sm_90``; with ``fast_math`` division, roots
    and functions are approximate, and denormals become zero."""
    return _compile(source, name, arch, fast_math, "CUBIN")


def compile_ptx(source: str, name: str, arch: str, fast_math: bool = False) -> str:
    """The PTX of a source; arguments as of `compile_cubin`."""
    virtual = arch.replace("sm_", "compute_")
    return _compile(source, name, virtual, fast_math, "PTX").image.decode().rstrip("\0")


def _compile(source: str, name: str, arch: str, fast_math: bool, kind: str) -> Compiled:
    nvrtc = _load()
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        fast = ["--use_fast_math"] if fast_math else []
        flags = [x.encode() for x in (f"--gpu-architecture={arch}", *fast, *_FLAGS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _bytes(nvrtc, "ProgramLog", program).decode(errors="replace").rstrip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            lines = [line.strip() for line in log.splitlines()]
            first = next((x for x in lines if "error" in x.lower()), lines[0] if lines else "")
            raise BuildError(f"cuda: NVRTC refuses {name!r}: {first or status.name}")
        return Compiled(_bytes(nvrtc, kind, program), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bytes(nvrtc: ModuleType, what: str, program: object) -> bytes:
    """Output of NVRTC, which one of its functions copies into memory of ours."""
    size = _checked(getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    assert isinstance(size, int)
    # It is written into bytes, which nobody else may have: CPython has one object for all that are
    # equal and of one byte, as an empty log is.
    room = bytes(max(size, 2))
    _checked(getattr(nvrtc, f"nvrtcGet{what}")(program, room))
    return room[:size]


def _load() -> ModuleType:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise TargetError(
            f"the target cuda is not available: {error}; install it: {INSTALL}"
        ) from None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise TargetError(
            f"the target cuda is not available: NVRTC does not load ({first}); install it: "
            f"{INSTALL}"
        ) from None
    module: ModuleType = nvrtc
    return module


def _checked(answer: Sequence[object]) -> object:
    status, *rest = answer
    if int(status) != 0:  # type: ignore[call-overload]
        raise BuildError(f"cuda: NVRTC failed with {status}")
    return rest[0] if rest else None


def resources(log: str) -> dict[str, KernelResources]:
    """Resources of each kernel, from the log of ``--ptxas-options=-v``."""
    out: dict[str, KernelResources] = {}
    _, *parts = _ENTRY.split(log)  # names of kernels, each with the part that is about it
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        stack, used = _STACK.search(text), _USED.search(text)
        rest = used[2] if used else ""
        shared, constants = _SHARED.search(rest), _CONSTANT.findall(rest)
        out[name] = KernelResources(
            registers=int(used[1]) if used else None,
            spill_bytes=int(stack[2]) + int(stack[3]) if stack else None,
            shared_bytes=int(shared[1]) if shared else 0,
            local_bytes=int(stack[1]) if stack else None,
            constant_bytes=sum(map(int, constants)) if constants else None,
        )
    return out
