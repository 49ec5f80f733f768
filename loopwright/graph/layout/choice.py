"""The layouts that were chosen for a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.errors import GraphError
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.structural import structural_hash
from loopwright.graph.layout.layouts import Layout
from loopwright.graph.layout.places import Places


@dataclass(frozen=True)
class LayoutChoice:
    """A layout for each convolution and pool of a module, and for what joins several of them.

    Attributes:
        layouts: of the places of the module, in the order of its calls.
        operators: what they are, such as ``nn.conv``.
        module: the hash of the module.
        cost: what kernels and transforms between layouts are expected to take in a run, in
            ``unit``; None where nothing was priced.
        converted: the same for the layouts that `ConvertLayout` gives.
        unit: ``"seconds"`` where it was measured, ``"cycles"`` by the analytical model.
        exact: whether no other layouts cost less by the same prices for certain.

    Example:
        >>> x = lw.graph.var("x", (1, 8, 6, 6))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.max_pool(x, pool_size=2))
        >>> print(lw.graph.LayoutChoice.of(module, ["NCHW8c"]))
        1 NCHW8c
    """

    layouts: tuple[Layout, ...]
    operators: tuple[str, ...]
    module: str
    cost: float | None = None
    converted: float | None = None
    unit: str = "seconds"
    exact: bool = False

    @staticmethod
    def of(module: IRModule, names: Sequence[str]) -> LayoutChoice:
        """Layouts of one's own for a module, which is as `AlterOpLayout` gets it.

        Raises:
            GraphError: there are more or fewer than places, or a name is no layout.
        """
        places = Places.of(module[MAIN], infer_types(module))
        if len(names) != len(places.anchors):
            raise GraphError(f"{len(names)} layouts for {len(places.anchors)} places of the module")
        layouts = tuple(Layout(n) for n in names)
        return LayoutChoice(layouts, places.operators, structural_hash(module))

    def fits(self, module: IRModule) -> bool:
        """Whether it is of a module."""
        return structural_hash(module) == self.module

    def __str__(self) -> str:
        counted = Counter(layout.name for layout in self.layouts)
        told = ", ".join(f"{n} {name}" for name, n in sorted(counted.items())) or "no layouts"
        if self.cost is None or self.converted is None:
            return told
        if self.unit == "cycles":
            return f"{told}: {self.cost:.3g} cycles, {self.converted:.3g} by ConvertLayout"
        ours, theirs = self.cost * 1e3, self.converted * 1e3
        return f"{told}: {ours:.3f} ms expected, {theirs:.3f} ms by ConvertLayout"
