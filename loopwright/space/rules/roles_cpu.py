"""Roles of the loops and operands of a contraction in a kernel of outer products, and the choices
of one structure of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.analysis import OperandUse, StageAnalysis

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_VECTORS = (1, 2, 3, 4, 6)
#: Fewest and most steps of a block of a reduction; the fewest where there are few rows, so that the
#: loaded operand is read along its rows, several of them side by side.
_STEPS, _FEW_ROWS, _FEWEST = (64, 1024), 32, 4
#: Number of even blocks that are enough to choose from; else numbers of blocks, and a divisor of
#: their steps, so that they can be partly unrolled.
_EVEN, _PARTS, _MULTIPLE = 3, (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128), 8


@dataclass(frozen=True, eq=False)
class Roles:
    """Roles of the loops and operands of a contraction in a kernel."""

    out: te.Tensor  # result, elementwise over the reduction, or that itself
    stage: StageAnalysis  # the reduction
    loaded: OperandUse  # operand that is loaded in vectors
    vector: IterVar  # loop along which vectors run
    row: IterVar | None  # loop of the rows of the register tile; None: there is one row
    #: Iterations of the vector loop for which the other operands stand still, where it moves them
    #: in blocks; 0 where it does not.
    group: int = 0

    @property
    def others(self) -> list[IterVar]:
        """Loops of the result beside these two."""
        return [x for x in self.stage.spatial if x is not self.vector and x is not self.row]

    @property
    def turned(self) -> bool:
        """Whether memory of the result runs along the rows of the register tile."""
        return self.vector is not self.stage.spatial[-1]

    @property
    def dimension(self) -> int | None:
        """Dimension of the loaded operand that the vector loop alone indexes, one by one."""
        return dimension_of(self.loaded, self.vector)

    @property
    def rows_dimension(self) -> int | None:
        """Dimension of the other operand that the row loop alone indexes, one by one; None also
        where there are several, or it is the loaded one, of which there is a copy already.
        """
        others = [o for o in self.stage.operands if o is not self.loaded]
        if len(others) != 1 or self.row is None or others[0].tensor is self.loaded.tensor:
            return None
        return dimension_of(others[0], self.row)

    @property
    def vectors(self) -> int:
        """Iterations of the vector loop, those of a group where there are groups."""
        return self.group or self.vector.count

    @property
    def beside(self) -> IterVar | None:
        """Another loop of the result that a task may run, since the loaded operand is the same."""
        still = [x for x in self.others if not self.loaded.access.moves_with(x) and x.count > 1]
        return still[-1] if still and not self.group else None

    @property
    def moves_with_others(self) -> bool:
        """Whether a task needs another part of the loaded operand for each of the other loops."""
        return any(self.loaded.access.moves_with(x) for x in self.others)

    @property
    def side_by_side(self) -> bool:
        """Whether vectors of the loaded operand are contiguous in memory."""
        return self.loaded.strides.get(self.vector) == 1

    @cached_property
    def best(self) -> tuple[int, int]:
        """Register tile with the least cost."""
        return min(self.tiles(), key=self.cost)

    def tiles(self) -> list[tuple[int, int]]:
        """Register tiles, rows and columns: all that fit the registers."""
        dtype = self.stage.tensor.dtype
        fits = registers.fitting(dtype)
        heights = registers.row_tiles(self.row.count, _ROWS) if self.row is not None else [1]
        widths = registers.column_tiles(self.vectors, dtype, _VECTORS)
        return [(r, w) for r in heights for w in widths if fits(r, w)]

    def block_steps(self, reduced: IterVar) -> list[int]:
        """Steps of a block of a reduction: those that divide it evenly, and where these are few,
        those of about equal blocks, of which the last one is shorter.
        """
        count, (low, high) = reduced.count, _STEPS
        if self.row is not None and self.row.count <= _FEW_ROWS:
            low = _FEWEST
        even = [n for n in range(low, min(high, count - 1) + 1) if count % n == 0]
        if len(even) >= _EVEN:
            return even
        near = (-(-count // (n * _MULTIPLE)) * _MULTIPLE for n in _PARTS)
        return sorted({*even, *(n for n in near if low <= n <= min(high, count - 1))})

    def cost(self, tile: tuple[int, int]) -> float:
        """Multiplications and loads of a register tile for each useful multiplication."""
        r, w = tile
        n, m = self.row.count if self.row is not None else 1, self.vectors
        lanes = registers.lanes(self.stage.tensor.dtype)
        vectors = w // lanes
        covered = registers.run_in_tiles(n, r, 1, _IN_FLIGHT // vectors)
        covered *= registers.run_in_tiles(m, w, lanes, _IN_FLIGHT // r * lanes)
        # A multiplication waits some cycles for the one before it in its accumulator; compilers
        # need some registers of their own.
        waiting = max(1.0, _IN_FLIGHT / (r * vectors))
        loads = (r + vectors) / (2 * r * vectors) + 0.5 / r
        crowded = 0.3 if r * vectors > 3 * registers.registers() // 4 else 0.0
        return covered / (n * m) * (waiting + loads + crowded)


#: Accumulators that keep the multipliers of a core busy.
_IN_FLIGHT = 8


def dimension_of(operand: OperandUse, axis: IterVar | None) -> int | None:
    """Dimension of an operand that a loop alone indexes, one by one."""
    for d, index in enumerate(operand.access.dims):
        if index is not None and dict(index.moves) == {axis: 1}:
            return d
    return None


@dataclass(frozen=True, eq=False)
class Plan:
    """Choices of a structure of a contraction."""

    roles: Roles
    packing: str  # place of the copy of the loaded operand: "none", "panel", "task" or "root"
    order: str  # outer loop, "vectors" or "rows"
    place: str  # place of computed operands: "root", "task", or "inline", where they are copied
    blocked: IterVar | None = None  # reduction loop that is run in blocks
    rows_packed: bool = False  # whether the other operand is copied for each block
    alone: bool = False  # whether one thread does all of it, since waking others takes longer

    @property
    def name(self) -> str:
        roles = self.roles
        row = roles.row.name if roles.row is not None else "1"
        packed = "as it is" if self.packing == "none" else f"packed at {self.packing}"
        parts = [f"{row} x {roles.vector.name}", f"{roles.loaded.tensor.name} {packed}"]
        parts += [f"{self.order} outside"]
        if self.place != "inline":
            parts += [f"producers at {self.place}"]
        if self.blocked is not None:
            parts += [f"{self.blocked.name} in blocks"]
        parts += ["rows packed"] if self.rows_packed else []
        return ", ".join(parts + (["one thread"] if self.alone else []))

    @property
    def why(self) -> str:
        roles, loaded = self.roles, self.roles.loaded.tensor.name
        return (
            f"{loaded} alone moves with {roles.vector.name}: vectors along it are used for every "
            f"{roles.row.name if roles.row is not None else 'point'}"
        )
