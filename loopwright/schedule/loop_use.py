"""Uses of loops by primitives, so that other primitives leave such loops alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Why a loop is in use. A primitive that notes something of its own about a loop (`LoopNote`) does
#: so as ``"note"``.
UseKind = Literal["mark", "pragma", "prefetch", "tensorize", "note", "attached"]


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a loop, which therefore cannot be taken apart."""

    kind: UseKind
    #: Step since which it is so; None where the state does not keep it.
    step: int | None
    #: Words for messages: ``is already vectorized (step 3)``; see `says`.
    text: str
    #: For ``"attached"``: the stage that is computed or stored there.
    stage: int | str = -1
    #: For ``"attached"``: the primitive that put it there.
    primitive: str = ""

    def says(self, loop: str) -> str:
        name = f"loop {loop!r}"
        return f"{self.text} {name}" if self.kind == "attached" else f"{name} {self.text}"


@dataclass(frozen=True, slots=True)
class LoopNote:
    """Note of a primitive about a loop, for lowering.

    A primitive subclasses it with fields of its own; ``text`` says in messages what the loop is
    used for: ``loop 'C.i' <text>``.
    """

    loop: str
    step: int
    text: str

    def needs(self, stage: int | str, loop: str) -> bool:
        """Whether a loop of another stage has to stay as it is for it."""
        return False
