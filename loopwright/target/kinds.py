"""The kinds of targets and their options; open for kinds of others (`register_target_kind`).

How code for a kind is compiled stands in `loopwright.codegen.backends`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import TargetError, did_you_mean
from loopwright.target.cpu import check_triple, resolve_cpu
from loopwright.target.gpu import resolve_cuda, resolve_opencl


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind of target: str, int (0 or more), bool, or tuple (of words).

    ``help`` says what it does, and its default. Without ``choices``, as text, all values of the
    type are right, an empty text if it ``may_be_empty``.

    Example:
        >>> greeting = lw.target.Option(str, "how to greet; default hello", choices=("hello", "hi"))
        >>> print(greeting.help)
        how to greet; default hello
    """

    type: type
    help: str
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False


Options = Mapping[str, Option]
#: Values of options by name, as JSON has them.
OptionValues = dict[str, Any]

_CPU: Options = {
    "mcpu": Option(str, "CPU name as LLVM knows it; default, and 'native', the host's"),
    "mattr": Option(
        str,
        "feature string such as '+avx2,-avx512f'; default the host's, or none with mcpu",
        may_be_empty=True,
    ),
    "num_threads": Option(int, "threads of parallel loops; 0 = all usable cores"),
    "prefer_vector_width": Option(
        int, "widest vector in bits; 0 = the widest the CPU has", ("0", "128", "256", "512")
    ),
    "l1_cache_bytes": Option(int, "first data cache, for cost models; default, and 0, the host's"),
    "l2_cache_bytes": Option(int, "second cache, likewise"),
    "l3_cache_bytes": Option(int, "cache that all cores share, likewise"),
    "cache_line_bytes": Option(int, "line of these caches, likewise"),
}
#: Options of TVM's strings that are checked and leave nothing behind, but a device a key.
_WITHOUT_EFFECT: Options = {
    "device": Option(str, "as TVM writes it: a family, the first of the keys, such as arm_cpu"),
    "link_params": Option(bool, "as TVM writes it; false", choices=("0", "false", "False")),
    "mtriple": Option(
        str, "architecture and system, such as x86_64-linux-gnu: this machine's and no other"
    ),
}
_CPU_DEFAULTS: Mapping[str, Any] = {"num_threads": 0, "prefer_vector_width": 0}
#: The options of ``llvm``.
OPTIONS: Options = {
    **_CPU,
    "fastmath": Option(bool, "let LLVM reassociate and ignore NaN; default false (contract only)"),
    "loop_vectorize": Option(bool, "LLVM's own loop vectoriser; default false"),
    "loop_unroll": Option(bool, "LLVM's own loop unrolling; default false"),
}
_C_OPTIONS: Options = {
    **_CPU,
    "cc": Option(
        str, "compiler, a name or a path; default the first of gcc, clang, cc that is there"
    ),
    "opt_level": Option(int, "0 to 3: -O0 to -O3; default 2", ("0", "1", "2", "3")),
    "cflags": Option(
        str, "more flags for the compiler, such as '-mtune=intel -g'", may_be_empty=True
    ),
    "fastmath": Option(bool, "-ffast-math: reassociate and ignore NaN; default false"),
}
#: TVM's other spellings of options.
_GPU_ALIASES: Mapping[str, str] = {
    "max_num_threads": "max_threads_per_block",
    "max_shared_memory": "max_shared_memory_per_block",
    "warp_size": "thread_warp_size",
}
#: Limits of a device; resolved when the target is made (`loopwright.target.gpu`).
_GPU_OPTIONS: Options = {
    "max_threads_per_block": Option(int, "threads of a block; default the device's"),
    "max_shared_memory_per_block": Option(
        int, "bytes of shared memory of a block, dynamic one included; default the device's"
    ),
    "max_local_memory_per_thread": Option(int, "bytes of local buffers of a thread"),
    "max_vthread": Option(int, "virtual threads of one loop; default 8"),
    "max_vector_bytes": Option(int, "bytes that a thread reads or writes at once; default 16"),
    "thread_warp_size": Option(int, "threads that run in lockstep; 1 where none do"),
    "multi_processor_count": Option(int, "processors that run blocks; default the device's"),
    "libs": Option(tuple, "as TVM writes it: libraries to call; has no effect"),
    "device": Option(str, "as TVM writes it: a name of the device; has no effect"),
    "mtriple": Option(str, "as TVM writes it; has no effect"),
    "max_function_args": Option(int, "as TVM writes it; has no effect"),
}
_CUDA_OPTIONS: Options = {
    **_GPU_OPTIONS,
    "arch": Option(str, "architecture, such as sm_90; default the first device's, else sm_90"),
    "registers_per_block": Option(int, "registers of a processor; default by architecture"),
    "max_spill_bytes": Option(
        int, "bytes of registers that a thread may spill to memory; default any number"
    ),
    "fast_math": Option(bool, "--use_fast_math: approximate division and functions; false"),
}
#: Options of every kind; they stand in a canonical form only where they are given.
COMMON: Options = {
    "keys": Option(tuple, "words that name families of targets, such as 'cpu'; default by kind"),
    "model": Option(str, "name of the machine, for records of a machine that has no CPU name"),
}
#: Compilers that ``c`` looks for, in this order.
_COMPILERS = ("gcc", "clang", "cc")


def _no_resolution(options: OptionValues) -> None:
    """All options have values already."""


def _resolve_llvm(options: OptionValues) -> None:
    options.pop("link_params", None)
    check_triple(options.pop("mtriple", ""))
    resolve_cpu(options)


def _resolve_c(options: OptionValues) -> None:
    _resolve_llvm(options)
    if "cc" not in options:
        there = (name for name in _COMPILERS if shutil.which(name))
        options["cc"] = next(there, _COMPILERS[0])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of target.

    Attributes:
        name: first word of a target string.
        keys: families it belongs to.
        options, defaults: its options, `COMMON` aside, and values of those that are not given.
        aliases: other spellings of options.
        resolve: fills in the options whose values depend on the machine, and refuses bad ones by a
            TargetError.
        is_host: whether its code runs on a CPU and may call that of other targets.

    Example:
        >>> print(lw.target.Kind("toy", ("cpu",)).name, lw.target.KINDS["llvm"].keys)
        toy ('cpu',)
    """

    name: str
    keys: tuple[str, ...]
    options: Options = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    resolve: Callable[[OptionValues], None] = _no_resolution
    is_host: bool = False


KINDS: dict[str, Kind] = {
    "llvm": Kind(
        "llvm",
        ("cpu",),
        {**OPTIONS, **_WITHOUT_EFFECT},
        {**_CPU_DEFAULTS, "fastmath": False, "loop_vectorize": False, "loop_unroll": False},
        resolve=_resolve_llvm,
        is_host=True,
    ),
    "c": Kind(
        "c",
        ("cpu",),
        {**_C_OPTIONS, **_WITHOUT_EFFECT},
        {**_CPU_DEFAULTS, "opt_level": 2, "cflags": "", "fastmath": False},
        {"march": "mcpu"},
        resolve=_resolve_c,
        is_host=True,
    ),
    "interp": Kind("interp", ("cpu",)),
    "opencl": Kind("opencl", ("opencl", "gpu"), _GPU_OPTIONS, {}, _GPU_ALIASES, resolve_opencl),
    "cuda": Kind(
        "cuda", ("cuda", "gpu"), _CUDA_OPTIONS, {"fast_math": False}, _GPU_ALIASES, resolve_cuda
    ),
}


def register_target_kind(kind: Kind) -> None:
    """Enter a kind of target; TargetError where another kind has its name.

    Example:
        >>> lw.target.register_target_kind(lw.target.Kind("toy", ("cpu",)))
        >>> print(lw.Target("toy").keys)
        ('cpu',)
        >>> lw.target.unregister_target_kind("toy")
    """
    if KINDS.setdefault(kind.name, kind) is not kind:
        raise TargetError(f"there is a target {kind.name!r} already")


def unregister_target_kind(name: str) -> None:
    """Take a kind of target away; nothing happens where there is none of that name."""
    KINDS.pop(name, None)


def kind_of(name: object) -> Kind:
    """The kind of that name; an error lists all kinds and names the nearest."""
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    if name in ("hip", "rocm"):
        raise TargetError(
            f"the target {name} is not built for: no compiler of AMD's is driven here; of a "
            "program for cuda get_source('hip'), or --emit hip, writes the text"
        )
    raise TargetError(
        f"unknown target {name!r}{did_you_mean(str(name), KINDS)}; known: {', '.join(KINDS)}"
    )


def option(kind: Kind, name: str, value: object) -> tuple[str, str | int | tuple[str, ...]]:
    key = str(name).replace("-", "_")
    key = kind.aliases.get(key, key)
    options = {**kind.options, **COMMON}
    if key not in options:
        raise TargetError(
            f"unknown target option {key!r} of {kind.name!r}{did_you_mean(key, options)}; "
            f"known: {', '.join(options)}"
        )
    return key, _value(key, options[key], value)


def _value(key: str, option: Option, value: object) -> str | int | tuple[str, ...]:
    """A value of an option; numbers and conditions may come as text."""
    want, text = option.type, str(value)
    if option.choices and text not in option.choices:
        *most, last = option.choices
        raise TargetError(
            f"target option {key}: expected {', '.join(most)} or {last}, got {value!r}"
        )
    if want is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if want is int and re.fullmatch("[0-9]+", text):
        return int(text)
    if want is str and isinstance(value, str) and (value or option.may_be_empty):
        return value
    words = value.split(",") if isinstance(value, str) else value
    if (
        want is tuple
        and isinstance(words, list | tuple)
        and words
        and all(isinstance(w, str) and w for w in words)
    ):
        return tuple(words)
    expected = {
        int: "a number, 0 or more", bool: "true or false", str: "text", tuple: "words with commas",
    }  # fmt: skip
    raise TargetError(f"target option {key}: expected {expected[want]}, got {value!r}")
