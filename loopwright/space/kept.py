"""Default schedules kept on disk: the trace that the analytical model chose for an expression.

It is found by a hash of everything that decides the choice, before any structure is derived: the
expression, the target and its machine, the rules of users, and the source of what derives and
replays. So a stale one is never used.
"""

from __future__ import annotations

import dis
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import numpy as np

from loopwright.cost import device_of, machine_of
from loopwright.env import cache_folder
from loopwright.records import Json, canonical_json, source_hash
from loopwright.runtime import FileStore, content_key, count_cache
from loopwright.space.registry import SpaceRule
from loopwright.target import Target
from loopwright.te import ArgId
from loopwright.version import __version__

#: Version of the entries' form, a part of the key.
_FORMAT = 1
#: Bytes of all entries, some 10 000 of them.
LIMIT = 64 << 20
#: The packages whose source decides which trace is the default, and what it replays to.
_DECIDING = ("ir", "te", "schedule", "target", "task", "cost", "space")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


class KeptDefaults:
    """Traces of default schedules, of at most ``limit`` bytes, in a folder."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.store = FileStore(folder, limit, ".default", "default schedules")
        self._counts = count_cache(self)

    def get(self, key: str) -> list[Json] | None:
        """The trace of a key, as JSON; None where there is none that is whole."""
        body = self.store.get(key)
        trace = None
        if body is not None:
            with suppress(ValueError, RecursionError):  # not written by this program
                trace = json.loads(body)
        self._counts.hits += trace is not None
        self._counts.misses += trace is None
        return trace

    def put(self, key: str, trace: Sequence[Json]) -> None:
        """Keep a trace; a failure to write is reported once, and nothing is kept."""
        self.store.put(key, json.dumps(trace).encode())


@lru_cache(maxsize=1)
def kept_defaults() -> KeptDefaults | None:
    """The traces of this user, as ``LOOPWRIGHT_CACHE`` says; None where it is switched off."""
    folder = cache_folder()
    return None if folder is None else KeptDefaults(folder)


def key_of(
    dag_hash: str, arg_ids: Sequence[ArgId], target: Target, rules: Sequence[SpaceRule]
) -> str | None:
    """The key of a default schedule; None where it cannot be told what a rule does.

    ``rules`` are all that are asked, in their order.
    """
    machine = device_of(target) if "gpu" in target.keys else machine_of(target)
    try:
        asked = [text for rule in rules for text in _of_rule(rule)]
    except (_Opaque, RecursionError, ValueError):  # the last by a cell that is empty
        return None
    return content_key(
        *(_FORMAT, __version__, platform.python_version(), np.__version__, _sources()),
        *(dag_hash, json.dumps(arg_ids), canonical_json(target.canonical), repr(machine)),
        *asked,
    )


@lru_cache(maxsize=1)
def _sources() -> str:
    return source_hash(_DECIDING)


# What a rule of a user does is known by its bytecode, and that of the functions that it calls, with
# the values that these read: an edit of a helper, or another value of a constant, is another rule.


class _Opaque(Exception):
    """Raised for a value of which it cannot be told what it does."""


def _of_rule(rule: SpaceRule) -> Iterator[str]:
    yield f"{rule.name} {rule.priority} {rule.stops} {rule.one_result} {rule.scope}"
    yield from _of(rule.function, frozenset())


def _of(x: object, callers: frozenset[int]) -> Iterator[str]:
    """Texts of a value that a rule reads; ``callers`` are ids of functions that are looked at."""
    if isinstance(x, _PLAIN):
        yield f"{type(x).__name__} {x!r}"
    elif isinstance(x, list | tuple):
        yield f"{type(x).__name__} {len(x)}"
        for part in x:
            yield from _of(part, callers)
    elif isinstance(x, set | frozenset):
        yield from sorted(" ".join(_of(part, callers)) for part in x)
    elif isinstance(x, dict):
        yield from _of(list(x.items()), callers)
    elif isinstance(x, partial):
        yield from _of([x.func, x.args, x.keywords], callers)
    elif isinstance(x, ModuleType) and _is_library(x.__name__):
        yield x.__name__
    elif _is_library(getattr(x, "__module__", None)) and "<locals>" not in _name(x):
        yield f"{getattr(x, '__module__', None)} {_name(x)}"
    elif isinstance(x, CodeType):
        yield from _of([x.co_code, x.co_names, x.co_varnames, x.co_consts], callers)
        yield from _of([x.co_flags, x.co_exceptiontable], callers)
    elif not isinstance(x, FunctionType):
        raise _Opaque
    elif id(x) not in callers:
        cells = [cell.cell_contents for cell in x.__closure__ or ()]
        read = [x.__globals__.get(name) for name in _globals(x.__code__)]
        parts = [x.__code__, x.__defaults__, x.__kwdefaults__, cells, read]
        yield from _of(parts, callers | {id(x)})


def _is_library(module: object) -> bool:
    """Whether a module is the same wherever the versions, and the source of loopwright, are."""
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root in ("loopwright", "numpy") or root in sys.stdlib_module_names


def _name(x: object) -> str:
    name = getattr(x, "__qualname__", None)  # of functions and classes
    if not isinstance(name, str):
        raise _Opaque
    return name


def _globals(code: CodeType) -> Iterator[str]:
    """Names of the values outside of it that code reads, that of inner functions too."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and not _is_library(instruction.argval):
            raise _Opaque
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)
