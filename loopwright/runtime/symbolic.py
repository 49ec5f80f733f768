"""`SymbolicFunction`: one compiled function that serves every size.

A call finds the sizes, checks that the shapes agree, and runs the function for these sizes: a
`Function` with concrete shapes and workspace on the same code, kept for the next call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, SizesSpec
from loopwright.runtime.artifacts.size_formulas import evaluate, text
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.function import DeviceCall, DeviceFunction
from loopwright.runtime.devices.image import DeviceImage
from loopwright.runtime.function import BoundCall, Function
from loopwright.runtime.image import Image
from loopwright.runtime.ndarray import host_array
from loopwright.runtime.sizes import CallSizes

# Sizes whose functions, with their workspaces, are kept for the next call.
_KEEP = 8


class SymbolicArg(NamedTuple):
    """An array among the arguments; an extent is an int, or text such as ``"n + 1"``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]
    output: bool

    @classmethod
    def of(cls, spec: ArgSpec) -> SymbolicArg:
        shape = tuple(n if isinstance(n, int) else text(n) for n in spec.shape)
        return cls(spec.name, shape, np.dtype(dtypes.check(spec.dtype)), spec.output)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


class SymbolicFunction:
    """A compiled function of symbolic sizes; call it with arrays of any shapes that fit.

    ``args`` are its arrays, in order.
    """

    def __init__(self, image: Image | DeviceImage, spec: FunctionSpec, sizes: SizesSpec) -> None:
        self.name = spec.name
        self._image, self._spec = image, spec
        self._sizes = CallSizes(sizes, spec.args)
        self.args = tuple(map(SymbolicArg.of, spec.args))
        self._order = sizes.order
        self._decided_by_shapes = all(isinstance(k, int) for k in sizes.order)
        self._by_shapes: dict[object, Function | DeviceFunction] = {}
        self._kept: OrderedDict[tuple[int, ...], Function | DeviceFunction] = OrderedDict()

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the size variables."""
        return self._sizes.names

    @property
    def order(self) -> tuple[int | str, ...]:
        """Arguments of a call: arrays by number, and names of sizes that are passed."""
        return self._order

    @property
    def address(self) -> int:
        """Address of the machine code, linked if need be; UsageError for device kernels."""
        if isinstance(self._image, DeviceImage):
            raise UsageError(f"{self.name} runs on {self.device}: its kernels have no address")
        return self._image.address(self.name)

    @property
    def device(self) -> Device:
        return Device(self._image.kind.device)

    @property
    def signature(self) -> tuple[str, ...]:
        """The arguments as text, in order."""
        return tuple(f"{k}: int" if isinstance(k, str) else str(self.args[k]) for k in self._order)

    def __call__(self, *args: object) -> None:
        """Find the sizes, check the arguments, then run; errors as of `Function`."""
        shapes = self._shapes_of(args)
        function = self._by_shapes.get(shapes)
        if function is not None:
            function(*args)
            return
        function, arrays = self.resolve(args)
        if len(self._by_shapes) >= _KEEP:
            self._by_shapes.clear()
        if shapes is not None:
            self._by_shapes[shapes] = function
        function(*arrays)

    def _shapes_of(self, args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Shapes of the arguments, where these alone determine the concrete function."""
        if not self._decided_by_shapes:
            return None
        try:
            return tuple([tuple(a.shape) for a in args])
        except (AttributeError, TypeError):  # something is no array, or one of another library
            return None

    def bind(self, *args: object) -> BoundCall | DeviceCall:
        """Check the arguments now and return a call that runs without checking again."""
        function, arrays = self.resolve(args)
        return function.bind(*arrays)

    def at(self, **values: int) -> Function | DeviceFunction:
        """The function for given sizes; ArgumentError where one is missing, unknown or small."""
        if set(values) != set(self.sizes):
            raise ArgumentError(
                f"{self.name}: the sizes are {', '.join(self.sizes)}; got {', '.join(values)}"
            )
        return self._at(self._sizes.check(self.name, values))

    def resolve(self, args: Sequence[object]) -> tuple[Function | DeviceFunction, list[object]]:
        """The function for the sizes of these arguments, and the arrays that it takes."""
        if len(args) != len(self._order):
            raise ArgumentError(
                f"{self.name} takes {len(self._order)} arguments ({', '.join(self.signature)}), "
                f"got {len(args)}"
            )
        arrays = [a for k, a in zip(self._order, args, strict=True) if not isinstance(k, str)]
        given = {k: a for k, a in zip(self._order, args, strict=True) if isinstance(k, str)}
        shapes = [self._shape(k, a) for k, a in enumerate(arrays)]
        return self._at(self._sizes.bind(self.name, shapes, given)), arrays

    def _shape(self, k: int, array: object) -> tuple[int, ...]:
        shape = getattr(array, "shape", None)
        if shape is not None:
            return tuple(int(n) for n in shape)
        name = self.args[k].name
        try:
            return host_array(array).shape
        except ArgumentError as error:
            raise ArgumentError(f"{self.name}: argument {k} ({name!r}): {error}") from None

    def _at(self, values: Mapping[str, int]) -> Function | DeviceFunction:
        key = tuple(values[n] for n in self.sizes)
        if key not in self._kept:
            if len(self._kept) >= _KEEP:
                self._kept.popitem(last=False)
            self._kept[key] = _concrete(self._image, self._concrete(values), key)
        return self._kept[key]

    def _concrete(self, values: Mapping[str, int]) -> FunctionSpec:
        """The manifest entry for given sizes."""
        spec = self._spec
        args = [replace(a, shape=tuple(evaluate(n, values) for n in a.shape)) for a in spec.args]
        workspaces = (spec.workspace_bytes, spec.parallel_workspace_bytes)
        own, parallel = (evaluate(n, values) for n in workspaces)
        if min(own, parallel) < 0:
            raise UsageError(
                f"{self.name}: its manifest gives a workspace of {min(own, parallel)} bytes; build "
                "the program again"
            )
        return replace(
            spec, args=tuple(args), workspace_bytes=own, parallel_workspace_bytes=parallel
        )

    def __repr__(self) -> str:
        return f"<SymbolicFunction {self.name}({', '.join(self.signature)})>"


def function_of(
    image: Image | DeviceImage, spec: FunctionSpec
) -> Function | DeviceFunction | SymbolicFunction:
    if spec.sizes is not None:
        return SymbolicFunction(image, spec, spec.sizes)
    return _concrete(image, spec, ())


def _concrete(
    image: Image | DeviceImage, spec: FunctionSpec, values: Sequence[int]
) -> Function | DeviceFunction:
    """A function with numbers for all sizes, of the CPU or of a device."""
    if isinstance(image, DeviceImage):
        return DeviceFunction(image, spec, values)
    return Function(image, spec, values)
