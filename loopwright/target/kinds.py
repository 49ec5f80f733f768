"""The kinds of targets and their options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from loopwright.errors import TargetError, did_you_mean

#: Option name -> (type, what it does).
Options = dict[str, tuple[type, str]]

_CPU: Options = {
    "mcpu": (str, "CPU name as LLVM knows it; default, and 'native', the host's"),
    "mattr": (
        str,
        "feature string such as '+avx2,-avx512f'; default the host's, or none with mcpu",
    ),
    "num_threads": (int, "threads of parallel loops; 0 = all usable cores"),
    "prefer_vector_width": (int, "widest vector in bits; 0 = the widest the CPU has"),
}
_CPU_DEFAULTS: dict[str, Any] = {"num_threads": 0, "prefer_vector_width": 0}
#: The options of ``llvm``.
OPTIONS: Options = {
    **_CPU,
    "fastmath": (bool, "let LLVM reassociate and ignore NaN; default false (contract only)"),
    "loop_vectorize": (bool, "LLVM's own loop vectoriser; default false"),
    "loop_unroll": (bool, "LLVM's own loop unrolling; default false"),
}
_C_OPTIONS: Options = {
    **_CPU,
    "cc": (str, "compiler, a name or a path; default the first of gcc, clang, cc that is there"),
    "opt_level": (int, "0 to 3: -O0 to -O3; default 2"),
    "cflags": (str, "more flags for the compiler, such as '-mtune=intel -g'"),
    "fastmath": (bool, "-ffast-math: reassociate and ignore NaN; default false"),
}
#: Options of every kind; they stand in a canonical form only where they are given.
COMMON: Options = {
    "keys": (tuple, "words that name families of targets, such as 'cpu'; default by kind"),
    "model": (str, "name of the machine, for records of a machine that has no CPU name"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of target.

    Attributes:
        name: as a target string begins.
        keys: families it belongs to.
        options: its options, `COMMON` aside.
        defaults: values of options that are not given; ``mcpu``, ``mattr`` and ``cc`` are found.
        aliases: other spellings of options.
    """

    name: str
    keys: tuple[str, ...]
    options: Options
    defaults: dict[str, Any]
    aliases: dict[str, str]


KINDS: dict[str, Kind] = {
    "llvm": Kind(
        "llvm",
        ("cpu",),
        OPTIONS,
        {**_CPU_DEFAULTS, "fastmath": False, "loop_vectorize": False, "loop_unroll": False},
        {},
    ),
    "c": Kind(
        "c",
        ("cpu",),
        _C_OPTIONS,
        {**_CPU_DEFAULTS, "opt_level": 2, "cflags": "", "fastmath": False},
        {"march": "mcpu"},
    ),
    "interp": Kind("interp", ("cpu",), {}, {}, {}),
}


def kind_of(name: object) -> Kind:
    """The kind of that name.

    Raises:
        TargetError: there is none; the nearest is named, and all that there are.
    """
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    raise TargetError(
        f"unknown target {name!r}{did_you_mean(str(name), KINDS)}; known: {', '.join(KINDS)}"
    )


def option(kind: Kind, name: str, value: Any) -> tuple[str, Any]:
    """The name and value of an option as they are stored.

    Raises:
        TargetError: the kind has no such option, or the value is not one of it.
    """
    key = str(name).replace("-", "_")
    key = kind.aliases.get(key, key)
    known = {**kind.options, **COMMON}
    if key not in known:
        owner = "" if kind.name == "llvm" else f" of {kind.name!r}"
        raise TargetError(
            f"unknown target option {key!r}{owner}{did_you_mean(key, known)}; "
            f"known: {', '.join(known)}"
        )
    want, text = known[key][0], str(value)
    if key == "prefer_vector_width" and text not in ("0", "128", "256", "512"):
        raise TargetError(f"target option {key}: expected 0, 128, 256 or 512, got {value!r}")
    if key == "opt_level" and text not in ("0", "1", "2", "3"):
        raise TargetError(f"target option {key}: expected 0, 1, 2 or 3, got {value!r}")
    if want is bool and text.lower() in ("true", "false", "1", "0"):
        return key, text.lower() in ("true", "1")
    if want is int and re.fullmatch("[0-9]+", text):
        return key, int(text)
    if want is str and isinstance(value, str) and (value or key in ("mattr", "cflags")):
        return key, value
    if want is tuple and (words := _words(value)):
        return key, words
    kinds = {
        int: "a number, 0 or more", bool: "true or false", str: "text", tuple: "words with commas",
    }  # fmt: skip
    raise TargetError(f"target option {key}: expected {kinds[want]}, got {value!r}")


def _words(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    good = isinstance(words, list | tuple) and all(isinstance(w, str) and w for w in words)
    return tuple(words) if good else ()
