"""What primitives use a loop for, so that others leave it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Why a loop is in use. A primitive that notes something of its own about a loop (`LoopNote`) does
#: so as ``"note"``.
UseKind = Literal["mark", "pragma", "prefetch", "tensorize", "note", "attached"]


@dataclass(frozen=True, slots=True)
class Use:
    """Something that a loop is used for, so that it cannot be taken apart.

    Attributes:
        kind: what sort of use.
        step: the step since which it is so; None where the state does not keep it.
        text: words for messages: ``is already vectorized (step 3)``; see `says`.
        stage: of ``"attached"``, the id of the stage that is computed or stored there.
        primitive: of ``"attached"``, the primitive that put it there.
    """

    kind: UseKind
    step: int | None
    text: str
    stage: int | str = -1
    primitive: str = ""

    def says(self, loop: str) -> str:
        """A sentence about the loop of this name."""
        name = f"loop {loop!r}"
        return f"{self.text} {name}" if self.kind == "attached" else f"{name} {self.text}"


@dataclass(frozen=True, slots=True)
class LoopNote:
    """What a primitive notes about a loop, for whoever lowers it.

    A primitive subclasses it with fields of its own; ``text`` says in messages what the loop is
    used for: ``loop 'C.i' <text>``.
    """

    loop: str
    step: int
    text: str

    def needs(self, stage: int | str, loop: str) -> bool:
        """Whether a loop of another stage has to stay as it is for it."""
        return False
