"""What a manifest says of a function's sizes: names, extents and requirements as JSON.

``["+", "n", 1]`` is an expression; the runtime evaluates it without any of the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright.errors import BuildError
from loopwright.ir.printer import print_expr
from loopwright.ir.sizes import Sizes, SizeVar, size_json
from loopwright.ir.stmt import Func
from loopwright.te.dag import Dag


class SizeManifest:
    """The size variables of one function under unique names."""

    def __init__(self, variables: Sequence[SizeVar]) -> None:
        self.names: dict[Any, str] = {}
        for v in variables:
            name, n = v.name, 1
            while name in self.names.values():
                name, n = f"{v.name}_{n}", n + 1
            self.names[v] = name

    def json(self, e: Any) -> Any:
        """An extent or a number of bytes."""
        return size_json(e, self.names)

    def fields(
        self, f: Func, dag: Dag | None, order: Sequence[int | SizeVar] | None
    ) -> dict[str, Any]:
        """The entries of a function that has sizes.

        Args:
            f: the function.
            dag: its program, whose extents a call checks; None where there is none.
            order: arguments of a call: indices of arrays, and sizes that are passed; None for the
                arrays alone.

        Raises:
            BuildError: a size is neither told by an array nor passed.
        """
        given = list(order) if order is not None else list(range(len(f.params)))
        passed = {v for v in given if isinstance(v, SizeVar)}
        told = {v for p in f.params for n in p.shape for v in _told_by(n)}
        for v in f.sizes:
            if v not in told | passed:
                raise BuildError(
                    f"build: no dimension of an argument tells the size {v.name!r}; pass it as an "
                    f"argument: build(s, [{v.name}, ...])"
                )
        extents = [
            n for op in (dag.ops if dag else ()) for n in op.extents if not isinstance(n, int)
        ]
        return {
            "sizes": [[self.names[v], v.dtype, v.nonnegative] for v in f.sizes],
            "extents": [[self.json(e), print_expr(e)] for e in dict.fromkeys(extents)],
            "order": [self.names[v] if isinstance(v, SizeVar) else v for v in given],
        }


def _told_by(n: Any) -> list[Any]:
    """The size variable that a dimension determines: the only one in a linear expression."""
    form = Sizes().of(n)
    if isinstance(form, int) or len(form.terms) != 1:
        return []
    return [v for v in form.terms if isinstance(v, SizeVar)]
