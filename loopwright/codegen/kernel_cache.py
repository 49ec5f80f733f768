"""Built kernels kept on disk by `loopwright.runtime.caches`."""

# A file is found by a hash of everything that decides the code: the program, its steps and
# arguments, the target, the settings of the passes, the source of the compiler, of targets and of
# the runtime, and the versions of loopwright, of llvmlite and of a C compiler that is used. So a
# stale entry is never used.

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.env import cache_folder
from loopwright.errors import InternalError, LoopwrightError, UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Const, IterVar, Var
from loopwright.ir.node import Node
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import UNROLL_HINT, For, Func, SplitFunc
from loopwright.lowering import PassContext
from loopwright.records import build_hash, source_hash
from loopwright.runtime import Artifact, FileStore, count_cache
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.te import ArgId
from loopwright.version import __version__

#: Version of the entries' form, a part of the key.
_FORMAT = 1
#: Bytes of all entries; the ones that were used least lately are removed beyond it.
LIMIT = 512 << 20
#: Kinds of target whose compiler is the one that `build_hash` knows, and whose code is bytes.
_KINDS = ("llvm", "c")


class KernelCache:
    """Artifacts of at most ``limit`` bytes in a folder, made for this user at the first write."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.store = FileStore(folder, limit, ".kernel", "kernels")
        self._counts = count_cache(self)

    @property
    def hits(self) -> int:
        return self._counts.hits

    @property
    def misses(self) -> int:
        """Number of look-ups that found no whole artifact; damaged files count."""
        return self._counts.misses

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key; None where there is none that is whole."""
        body = self.store.get(key)
        artifact = None
        if body is not None:
            manifest, _, objects = body.partition(b"\n")
            with suppress(ValueError, LoopwrightError):  # an entry of another version
                artifact = Artifact(json.loads(manifest), objects)
        self._counts.hits += artifact is not None
        self._counts.misses += artifact is None
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact; a failure to write is reported once, and nothing is kept."""
        self.store.put(key, json.dumps(artifact.manifest).encode() + b"\n" + artifact.objects)


def cache_key(
    dag: Mapping[str, Any],
    trace: Sequence[Any],
    arg_ids: Sequence[ArgId],
    target: Target,
    passes: Mapping[str, Any],
    name: str,
    order: Sequence[Any] | None = None,
) -> str | None:
    """The key of a program's code; None where the compiler is not one that a hash describes."""
    # ``dag``, ``trace`` and ``order`` are JSON; ``order`` has the arguments of a call, where sizes
    # are passed among the arrays.
    if target.kind not in _KINDS:
        return None
    facts = [
        *(_FORMAT, __version__, platform.machine(), platform.system(), _sources()),
        build_hash(target.canonical, passes),
        *(dag, trace, list(arg_ids), order, target.canonical, passes, name),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
def _sources() -> str:
    """Hash of what decides code beside the compiler, whose comments `build_hash` leaves out."""
    return source_hash(("target", "runtime"))


def schedule_key(
    s: Schedule,
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str,
    order: Sequence[int | SizeVar] | None,
) -> str | None:
    """The key of a schedule in the current `PassContext`; None where it cannot be kept."""
    try:
        passes = PassContext.current().to_json()
    except UsageError:  # passes and instruments of this process have no hash, and may act
        return None
    numbers = {v: f"s{i}" for i, v in enumerate(s.dag.sizes)}
    passed = None if order is None else [n if isinstance(n, int) else numbers[n] for n in order]
    return cache_key(s.dag.to_json(), s.trace_json(), arg_ids, target, passes, name, passed)


@lru_cache(maxsize=1)
def kernel_cache() -> KernelCache | None:
    """The cache of this user, as ``LOOPWRIGHT_CACHE`` says; None where it is switched off."""
    folder = cache_folder()
    return None if folder is None else KernelCache(folder)


def program_key(f: Func, target: Target, passes: Mapping[str, Any]) -> str:
    """The hash of a lowered function, its target and its pass settings: 16 hexadecimal digits.

    Names of variables and buffers are left out, and so are loops that run once and pragmas that no
    code generator reads. Equal keys mean equal object code by one version of the compiler; unequal
    keys mean nothing, as a compiler may bring two programs to the same instructions.

    Args:
        passes: settings of the `PassContext` that it was lowered in, as its ``to_json`` gives them.
    """
    settings = json.dumps([target.canonical, passes], sort_keys=True)
    parts = ["in two parts"] if isinstance(f, SplitFunc) else []
    writer = _Writer()
    writer.values((f.params, f.outputs, f.sizes, f.body))
    text = "\n".join([f.name, settings, *parts, "".join(writer.parts)])
    # Among a million programs the chance of an error is 1e-8.
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Writer:
    """Writes a function with numbers in place of names."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._numbers: dict[Var | Buffer, int] = {}

    # Any: the fields of nodes hold nodes, tuples of them, buffers and plain values.
    def _value(self, x: Any) -> None:
        if isinstance(x, Var | Buffer):
            self._name(x)
        elif isinstance(x, Const):
            self.parts.append(f"{x.value!r}:{x.dtype} ")
        elif isinstance(x, For) and x.extent == 1 and x.kind in ("serial", "unrolled"):
            self.parts.append("once(")  # what is declared in the loop is gone after it
            self._numbers[x.var] = -1
            self._value(x.body)
            self.parts.append(")")
        elif isinstance(x, For):
            pragmas = tuple(p for p in x.pragmas if p == UNROLL_HINT)
            self.values((x.kind, x.tag, pragmas, x.var, x.extent, x.body))
        elif isinstance(x, Node):
            self.parts.append(f"{type(x).__name__}(")
            for name in x._fields:
                self._value(getattr(x, name))
            self.parts.append(")")
        elif isinstance(x, tuple):
            self.values(x)
        elif x is None or isinstance(x, str | int | float):
            self.parts.append(f"{x!r} ")
        elif isinstance(x, IterVar):
            self.values((x.var, x.extent, x.kind, x.thread_tag))
        else:
            raise InternalError(f"a lowered function holds a {type(x).__name__}, which has no text")

    def values(self, values: tuple[Any, ...]) -> None:
        self.parts.append("(")
        for x in values:
            self._value(x)
        self.parts.append(")")

    def _name(self, x: Var | Buffer) -> None:
        """Write the number of a variable or buffer; at its first use what it is as well."""
        letter = "v" if isinstance(x, Var) else "b"
        number = self._numbers.get(x)
        if number is not None:
            self.parts.append("0 " if number < 0 else f"{letter}{number} ")
            return
        self._numbers[x] = number = len(self._numbers)
        if isinstance(x, Var):
            sign = f":{x.nonnegative}" if isinstance(x, SizeVar) else ""
            self.parts.append(f"v{number}:{x.dtype}{sign} ")
        else:
            self.parts.append(f"b{number}:{x.dtype}:{x.scope}")
            self.values((x.shape, x.strides))
