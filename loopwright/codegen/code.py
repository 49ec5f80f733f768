"""`Code`: what code generators give for a lowered function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loopwright.codegen.workspace import Bytes, kept_offsets, larger
from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Func
from loopwright.runtime.artifacts.kinds import Link

#: A text of a program, or a function that writes it when somebody asks.
SourceText = str | Callable[[], str]


@dataclass(frozen=True, slots=True)
class CodePart:
    """One of the two functions in the code of a `loopwright.ir.stmt.SplitFunc`.

    Attributes:
        func: the function.
        workspace_bytes: bytes that its caller provides.
        parallel_workspace_bytes: bytes of each worker of the pool, or more.
    """

    func: Func
    workspace_bytes: Bytes = 0
    parallel_workspace_bytes: Bytes = 0


def whole_workspace(kept: Sequence[Buffer], parts: Sequence[CodePart]) -> Bytes:
    """Bytes of workspace of a function that calls its parts: the buffers between them, then room
    for either."""
    first, second = (part.workspace_bytes for part in parts)
    return larger(first, second) + kept_offsets(kept)[-1]


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled function.

    Attributes:
        objects: contents of the artifact: an object file, or its counterpart of the target.
        sources: texts by kind of source, the one that people ask for first.
        workspace_bytes: bytes that a caller provides.
        parallel_workspace_bytes: bytes of each worker of the pool.
        uses_pool: whether `lw_parallel_launch` must be bound when linking.
        checks: messages of the checks in it, by number.
        triple: LLVM's name of the machine whose code it is; empty for code of no machine.
        packed: names of the packed functions that it calls.
        link: links it in the process that compiled it, where that is less work than starting from
            ``objects``; None: as any artifact of its kind.
        parts: the two parts of a split function, which can be called beside the whole; empty for
            others, and where the target compiles the whole alone.
    """

    objects: bytes
    sources: Mapping[str, SourceText]
    workspace_bytes: Bytes = 0
    parallel_workspace_bytes: Bytes = 0
    uses_pool: bool = False
    checks: tuple[str, ...] = ()
    triple: str = ""
    packed: tuple[str, ...] = ()
    link: Link | None = None
    parts: tuple[CodePart, ...] = ()

    def source(self, kind: str) -> str:
        """The text of one kind, written now if need be.

        Raises:
            KeyError: there is none of that kind.
        """
        text = self.sources[kind]
        return text if isinstance(text, str) else text()
