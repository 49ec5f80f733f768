"""`SymbolicFunction`: one compiled function that serves every size.

A call finds the sizes, checks that the shapes agree, and runs the function for these sizes: a
`Function` with concrete shapes and workspace on the same code, kept for the next call.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.artifacts.manifest import (
    ArgSpec,
    FunctionSpec,
    SizeFormula,
    SizesSpec,
    evaluate,
    linear,
    text,
)
from loopwright.runtime.caches import RuntimeCache
from loopwright.runtime.kernels.device_function import DeviceFunction
from loopwright.runtime.kernels.function import Function
from loopwright.runtime.kernels.image import DeviceImage, Image
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.ndarray import host_array

#: Largest extent that compiled code computes with.
MAX_EXTENT = 1 << 30
_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}

# Sizes whose functions, with their workspaces, are kept for the next call.
_KEEP = 8


class CallSizes:
    """Finds and checks the sizes of calls of one function.

    ``names`` are the size variables, in the order in which code takes them.
    """

    def __init__(self, spec: SizesSpec, args: Sequence[ArgSpec]) -> None:
        self._spec, self._args = spec, args
        self._outputs = [k for k, a in enumerate(args) if a.output]
        self.names = tuple(name for name, _, _ in spec.variables)

    def bind(
        self, who: str, shapes: Sequence[tuple[int, ...]], arguments: Mapping[str, object]
    ) -> Mapping[str, int]:
        """Values of all sizes from shapes and from ``arguments``; a conflict is an ArgumentError.

        An extent may be 0 only where no output has elements: then nothing has to run.
        """
        # The value of each size, and the argument or dimension that determined it.
        sizes = {n: (self._passed(who, n, v), "the argument") for n, v in arguments.items()}
        for k, (shape, arg) in enumerate(zip(shapes, self._args, strict=True)):
            if len(shape) != len(arg.shape):
                raise ArgumentError(
                    f"{who}: argument {k} ({arg.name!r}): expected {len(arg.shape)} dimensions "
                    f"[{', '.join(map(text, arg.shape))}], got shape {tuple(shape)}"
                )
            for d, (e, n) in enumerate(zip(arg.shape, shape, strict=True)):
                self._determine(who, f"dimension {d} of argument {k} ({arg.name!r})", e, n, sizes)
        values = {n: sizes[n][0] for n in self.names}
        dims = ((k, arg, d) for k, arg in enumerate(self._args) for d in range(len(arg.shape)))
        for k, arg, d in dims:
            e, n = arg.shape[d], shapes[k][d]
            want = evaluate(e, values)
            if n != want:
                raise ArgumentError(
                    f"{who}: dimension {d} of argument {k} ({arg.name!r}) is {n}, expected "
                    f"{text(e)}{'' if isinstance(e, int) else f' = {want}'}{_with(values)}"
                )
        idle = bool(self._outputs) and all(0 in shapes[k] for k in self._outputs)
        return self.check(who, values, idle)

    def _passed(self, who: str, name: str, value: object) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise TypeError
            return operator.index(value)
        except TypeError:
            raise ArgumentError(f"{who}: the size {name!r} is an int, got {value!r}") from None

    def _determine(
        self, who: str, by: str, e: SizeFormula, n: int, sizes: dict[str, tuple[int, str]]
    ) -> None:
        """Enter the size that an extent determines; it must agree with an earlier value."""
        form = linear(e)
        if form is None:
            return
        name, factor, const = form
        if (n - const) % factor:
            raise ArgumentError(f"{who}: {by} is {n}, which {text(e)} never is")
        value = (n - const) // factor
        old, earlier = sizes.setdefault(name, (value, by))
        if old != value:
            raise ArgumentError(
                f"{who}: {by} is {n}, so {name} is {value}, but {earlier} says that {name} is {old}"
            )

    def check(self, who: str, values: Mapping[str, int], idle: bool = False) -> Mapping[str, int]:
        """The values, if they are in range and every extent is positive, else ArgumentError.

        ``idle``: nothing will run, so extents may be 0, and no read can miss.
        """
        for name, dtype, nonnegative in self._spec.variables:
            lo, hi = _LIMITS[dtype]
            if not (0 if nonnegative else lo) <= values[name] <= hi:
                what = "a size that is not negative" if nonnegative else dtype
                raise ArgumentError(f"{who}: {name} = {values[name]} is not {what}")
        for e, shown in self._spec.extents:
            n = evaluate(e, values)
            if not (0 if idle else 1) <= n <= MAX_EXTENT:
                zero = " (0 is served where no output has elements)" if n == 0 else ""
                raise ArgumentError(
                    f"{who}: the extent {shown} is {n}{_with(values)}; extents are 1 to "
                    f"{MAX_EXTENT}{zero}"
                )
        for e, shown in self._spec.requires:
            if not idle and evaluate(e, values) < 0:
                raise ArgumentError(f"{who}: {shown}{_with(values)}")
        return values


def _with(values: Mapping[str, int]) -> str:
    shown = ", ".join(f"{n} = {v}" for n, v in values.items())
    return f" with {shown}" if shown else ""


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


class SymbolicFunction(Kernel):
    """A compiled function of symbolic sizes; call it with arrays of any shapes that fit.

    ``args`` are its arrays, in order.
    """

    _image: Image | DeviceImage

    def __init__(self, image: Image | DeviceImage, spec: FunctionSpec, sizes: SizesSpec) -> None:
        self.name = spec.name
        self._image, self._spec = image, spec
        self._sizes = CallSizes(sizes, spec.args)
        self.args = tuple(map(SymbolicArg.of, spec.args))
        self._order = sizes.order
        self._decided_by_shapes = all(isinstance(k, int) for k in sizes.order)
        self._by_shapes: dict[object, Kernel] = {}
        self._kept: RuntimeCache[Kernel] = RuntimeCache(
            _KEEP, counted=False
        )  # one "byte" a function

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the size variables."""
        return self._sizes.names

    @property
    def order(self) -> tuple[int | str, ...]:
        return self._order

    @property
    def address(self) -> int:
        """Address of the machine code, linked if need be; UsageError for device kernels."""
        if isinstance(self._image, DeviceImage):
            raise UsageError(f"{self.name} runs on {self.device}: its kernels have no address")
        return self._image.address(self.name)

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

    def bind(self, *args: object) -> KernelCall:
        """Check the arguments now and return a call that runs without checking again."""
        function, arrays = self.resolve(args)
        return function.bind(*arrays)

    def at(self, **values: int) -> Kernel:
        """The function for given sizes; ArgumentError where one is missing, unknown or small."""
        if set(values) != set(self.sizes):
            raise ArgumentError(
                f"{self.name}: the sizes are {', '.join(self.sizes)}; got {', '.join(values)}"
            )
        return self._at(self._sizes.check(self.name, values))

    def resolve(self, args: Sequence[object]) -> tuple[Kernel, list[object]]:
        """The function for the sizes of these arguments, and the arrays that it takes."""
        if len(args) != len(self._order):
            raise ArgumentError(
                f"{self.name} takes {len(self._order)} arguments ({', '.join(self.signature)}), "
                f"got {len(args)}"
            )
        arrays = [a for k, a in zip(self._order, args, strict=True) if not isinstance(k, str)]
        sizes = {k: a for k, a in zip(self._order, args, strict=True) if isinstance(k, str)}
        shapes = [self._shape(k, a) for k, a in enumerate(arrays)]
        return self._at(self._sizes.bind(self.name, shapes, sizes)), arrays

    def _shape(self, k: int, array: object) -> tuple[int, ...]:
        shape = getattr(array, "shape", None)
        if shape is not None:
            return tuple(int(n) for n in shape)
        name = self.args[k].name
        try:
            return host_array(array).shape
        except ArgumentError as error:
            raise ArgumentError(f"{self.name}: argument {k} ({name!r}): {error}") from None

    def _at(self, values: Mapping[str, int]) -> Kernel:
        key = tuple(values[n] for n in self.sizes)
        kernel = self._kept.get(key)
        if kernel is None:
            kernel = _concrete(self._image, self._concrete(values), key)
            self._kept.put(key, kernel, nbytes=1)
        return kernel

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


def function_of(image: Image | DeviceImage, spec: FunctionSpec) -> Kernel:
    if spec.sizes is not None:
        return SymbolicFunction(image, spec, spec.sizes)
    return _concrete(image, spec, ())


def _concrete(image: Image | DeviceImage, spec: FunctionSpec, values: Sequence[int]) -> Kernel:
    """A function with numbers for all sizes, of the CPU or of a device."""
    if isinstance(image, DeviceImage):
        return DeviceFunction(image, spec, values)
    return Function(image, spec, values)
