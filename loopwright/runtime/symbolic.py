"""`SymbolicFunction`: one compiled function that serves every size.

A call finds the sizes, checks that the shapes agree, and runs the function for these sizes: a
`Function` with concrete shapes and workspace on the same code, kept for the next call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime.function import Call, Function
from loopwright.runtime.image import Image
from loopwright.runtime.ndarray import host_array
from loopwright.runtime.sizes import ManifestSizes, evaluate, text

# Sizes whose functions, with their workspaces, are kept for the next call.
_KEEP = 8


class SymbolicArg(NamedTuple):
    """An array among the arguments; an extent is an int, or text such as ``"n + 1"``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]
    output: bool

    @classmethod
    def from_manifest(cls, entry: Mapping[str, Any]) -> SymbolicArg:
        """Read one entry of the manifest's ``args``."""
        shape = tuple(n if isinstance(n, int) else text(n) for n in entry["shape"])
        dtype = np.dtype(dtypes.check(entry["dtype"]))
        return cls(str(entry["name"]), shape, dtype, bool(entry["output"]))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


class SymbolicFunction:
    """A compiled function of symbolic sizes; call it with arrays of any shapes that fit.

    Attributes:
        name: the function's name.
        sizes: names of its size variables.
        signature: its arguments as text, in order.
        args: its arrays, in order.
    """

    def __init__(self, image: Image, entry: Mapping[str, Any]) -> None:
        self.name = str(entry["name"])
        self._image, self._entry = image, entry
        self._sizes = ManifestSizes(entry)
        self.args = tuple(map(SymbolicArg.from_manifest, entry["args"]))
        self._order = list(entry["order"])
        self._kept: OrderedDict[tuple[int, ...], Function] = OrderedDict()

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the size variables."""
        return self._sizes.names

    @property
    def address(self) -> int:
        """Address of the machine code; links it first if need be."""
        return self._image.address(self.name)

    @property
    def signature(self) -> tuple[str, ...]:
        """The arguments as text, in order."""
        return tuple(f"{k}: int" if isinstance(k, str) else str(self.args[k]) for k in self._order)

    def __call__(self, *args: Any) -> None:
        """Find the sizes, check the arguments, then run.

        Raises:
            ArgumentError: an argument is not acceptable, or shapes disagree; nothing ran.
            RunError: the workspace is over the limit (nothing ran), or the function failed.
        """
        function, arrays = self.resolve(args)
        function(*arrays)

    def bind(self, *args: Any) -> Call:
        """Check the arguments now and return a `Call` that runs without checking again.

        Raises:
            ArgumentError: as when called.
            RunError: the workspace is over the limit.
        """
        function, arrays = self.resolve(args)
        return function.bind(*arrays)

    def at(self, **values: int) -> Function:
        """The function for given sizes.

        Raises:
            ArgumentError: a size is missing or unknown, or gives an extent below 1.
        """
        if set(values) != set(self.sizes):
            raise ArgumentError(
                f"{self.name}: the sizes are {', '.join(self.sizes)}; got {', '.join(values)}"
            )
        return self._at(self._sizes.check(self.name, values))

    def resolve(self, args: Sequence[Any]) -> tuple[Function, list[Any]]:
        """The function for the sizes of these arguments, and the arrays that it takes.

        Raises:
            ArgumentError: shapes disagree, or an argument is missing.
        """
        if len(args) != len(self._order):
            raise ArgumentError(
                f"{self.name} takes {len(self._order)} arguments ({', '.join(self.signature)}), "
                f"got {len(args)}"
            )
        arrays = [a for k, a in zip(self._order, args, strict=True) if not isinstance(k, str)]
        given = {k: a for k, a in zip(self._order, args, strict=True) if isinstance(k, str)}
        shapes = [self._shape(k, a) for k, a in enumerate(arrays)]
        return self._at(self._sizes.bind(self.name, shapes, given)), arrays

    def _shape(self, k: int, array: Any) -> tuple[int, ...]:
        shape = getattr(array, "shape", None)
        if isinstance(array, np.ndarray) or shape is not None:
            return tuple(int(n) for n in array.shape)
        name = self._entry["args"][k]["name"]
        try:
            return host_array(array).shape
        except ArgumentError as error:
            raise ArgumentError(f"{self.name}: argument {k} ({name!r}): {error}") from None

    def _at(self, values: Mapping[str, int]) -> Function:
        key = tuple(values[n] for n in self.sizes)
        if key not in self._kept:
            if len(self._kept) >= _KEEP:
                self._kept.popitem(last=False)
            self._kept[key] = Function(self._image, self._concrete(values), key)
        return self._kept[key]

    def _concrete(self, values: Mapping[str, int]) -> dict[str, Any]:
        """The manifest's entry for given sizes."""
        args = [
            {**a, "shape": [evaluate(e, values) for e in a["shape"]]} for a in self._entry["args"]
        ]
        sizes = {
            n: evaluate(self._entry[n], values)
            for n in ("workspace_bytes", "parallel_workspace_bytes")
        }
        return {**self._entry, **sizes, "args": args}

    def __repr__(self) -> str:
        return f"<SymbolicFunction {self.name}({', '.join(self.signature)})>"


def make_function(image: Image, entry: Mapping[str, Any]) -> Function | SymbolicFunction:
    """The function of an entry of a manifest."""
    return SymbolicFunction(image, entry) if entry.get("sizes") else Function(image, entry)
