"""`Function`: a compiled function as a Python callable, with all its checks before it runs.

A call checks every argument first (count, type, dtype, shape, layout, writability, overlap), then
runs the machine code with the interpreter's lock released. Calls from several threads are safe:
each has a workspace of its own. After some calls a `FastCall` does the same for plain arrays in
compiled code; arguments that it refuses are checked here, for the message.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import env
from loopwright.errors import ArgumentError, OutOfMemoryError, RunError
from loopwright.runtime import pool
from loopwright.runtime.arrays.device import buffer_of
from loopwright.runtime.arrays.host import aligned_bytes
from loopwright.runtime.artifacts.kinds import Timer
from loopwright.runtime.artifacts.manifest import FunctionSpec, evaluate
from loopwright.runtime.kernels import fastcall
from loopwright.runtime.kernels.argument import Arg, ArgumentChecks
from loopwright.runtime.kernels.image import Image
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.kernels.timer import native_timer

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
# Workspaces that are kept for the next call; more threads than this allocate each time.
_KEEP = 4
_NO_MEMORY = 1
# Calls before a `FastCall` is made, whose code costs some milliseconds once a process.
_WARM = 32


class BoundCall(KernelCall):
    """A function with checked arguments and a workspace, ready to be called any number of times.

    It keeps the arrays and the code alive, and works on the memory that the arrays had when they
    were bound: their elements count at each call. Several threads may call it at once; then all but
    one take a workspace of the function's.

    Attributes:
        entry: address of the machine code, ``int32_t f(void **args, void *workspace)``.
        pointers: the array of argument addresses.
        workspace: address of the workspace, None where the function needs none. One thread at a
            time may use it.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> a, b = np.zeros(4, "float32"), np.empty(4, "float32")
        >>> call = f.bind(a, b)
        >>> call()
        >>> print(b)
        [1. 1. 1. 1.]
    """

    __slots__ = ("_fast", "_held", "_left", "_own", "entry", "function", "pointers", "workspace")
    function: Function

    def __init__(
        self,
        function: Function,
        held: Sequence[npt.NDArray[Any]],
        addresses: Sequence[int],
        space: npt.NDArray[np.uint8] | None,
    ) -> None:
        self.function = function
        self._held = ([*held], space, [*map(buffer_of, held)])
        self.entry = function.address
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self.workspace = None if space is None else int(space.ctypes.data)
        self._own = [self.workspace]  # empty while a call has it
        self._fast: fastcall.FastCall = fastcall.refuse
        self._left = _WARM

    def __call__(self) -> None:
        """Run the function on the bound arrays; RunError where it reported a failure."""
        code = self._fast()
        if code is None:
            return
        if code is not False:
            raise failure(self.function, code)
        self._run_slowly()
        left = self._left = self._left - 1
        if left == 0:
            self._make_fast()

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that it works on, in the order of the arguments."""
        return tuple(self._held[0])

    def hold(self, place: int, array: npt.NDArray[Any]) -> None:
        """Keep another array, whose address is in `pointers` now; the caller holds its buffer."""
        self._held[0][place], self._held[2][place] = array, None

    def time(self, number: int) -> float:
        """Seconds of `number` calls, by a loop in compiled code or the artifact's own timer."""
        timer = self.function.timer
        if timer is not None:
            return timer(self.run, number)
        took = native_timer().time(self.entry, self.pointers, self.workspace, number)
        if took < 0:
            raise failure(self.function, ctypes.c_int32(took & 0xFFFFFFFF).value)
        return float(took) * 1e-9

    @property
    def workspace_bytes(self) -> int:
        """Bytes that its workspace has at least; 0 where it needs none."""
        return self.function.workspace_bytes

    def use_workspace(self, space: npt.NDArray[np.uint8]) -> None:
        """Use other memory, of at least `workspace_bytes` and aligned to 64, as the workspace.

        No thread may be in a call. Later calls use it. Calls that never run at the same time may
        share it.
        """
        if self.workspace == space.ctypes.data:
            return
        self._held = (self._held[0], space, self._held[2])
        self.workspace = int(space.ctypes.data)
        self._own = [self.workspace]
        self._fast, self._left = fastcall.refuse, _WARM

    def run(self) -> None:
        """Run the function once; the same as calling this."""
        self()

    def _run_slowly(self) -> None:
        """Run through ``ctypes``, with a workspace that no other thread uses at the time."""
        try:
            workspace = self._own.pop()
        except IndexError:
            self.function._run_reentrant(self.pointers)
            return
        try:
            self.function._run(self.pointers, workspace)
        finally:
            self._own.append(workspace)

    def _make_fast(self) -> None:
        """Prepare a call in compiled code, with the workspace."""
        try:
            workspace = self._own.pop()
        except IndexError:
            self._left = 1  # another thread has the workspace: after the next call then
            return
        fast = fastcall.bound_call(self.function._kernel(workspace, (self._held,)), self.pointers)
        if fast is None:
            self._own.append(workspace)
            return
        self._fast = fast

    def __repr__(self) -> str:
        arrays = zip(self.args, self.pointers, strict=False)
        bound = ", ".join(f"{arg} at {address or 0:#x}" for arg, address in arrays)
        return f"<BoundCall {self.name}({bound})>"


class Function(Kernel):
    """A compiled function; call it with one array per argument, outputs included, in order.

    Arrays may be NumPy arrays, `NDArray`, or anything with ``__dlpack__`` in host memory; outputs
    are written in place. Nothing runs unless every argument is right. Where no output has elements
    (a size is 0) there is nothing to compute: the arguments are checked, and nothing runs.

    ``values`` are sizes that the code takes after the arrays, ``workspace_bytes`` the bytes of the
    workspace of a call, ``parallel_workspace_bytes`` those of each further thread of its parallel
    loops. ``spec`` has numbers for all sizes.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> kernel = f.get_function("add_one")
        >>> b = np.empty(4, "float32")
        >>> kernel(np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
        >>> print([(x.name, x.shape, x.output) for x in kernel.args])
        [('A', (4,), False), ('B', (4,), True)]
    """

    _image: Image

    def __init__(self, image: Image, spec: FunctionSpec, values: Sequence[int] = ()) -> None:
        self.name = spec.name
        self.values = list(values)
        self.args = tuple(map(Arg.of, spec.args))
        self.workspace_bytes = evaluate(spec.workspace_bytes, {})
        self.parallel_workspace_bytes = evaluate(spec.parallel_workspace_bytes, {})
        self._image = image
        self._free: list[tuple[npt.NDArray[np.uint8], int]] = []
        self._native: ctypes._CFunctionType | None = None
        self._address = 0
        self._array_type = ctypes.c_void_p * (len(self.args) + len(self.values))
        self._fast: fastcall.FastCall = fastcall.refuse
        self._left = _WARM
        self._checks = ArgumentChecks(self.name, self.args)

    @property
    def address(self) -> int:
        """Address of the machine code; links it first if need be."""
        if self._native is None:
            self._address = self._image.address(self.name)
            self._native = _SIGNATURE(self._address)
        return self._address

    @property
    def timer(self) -> Timer | None:
        """The function's own timer; None where the loop in compiled code times it (`time_call`)."""
        return self._image.kind.timer

    def __call__(self, *args: object) -> None:
        """Check the arguments, then run.

        ArgumentError, with function, position, name, expected and actual value, where one is not
        acceptable, RunError where the workspace is over the limit: nothing ran. RunError, too,
        where the function failed.
        """
        code = self._fast(*args)
        if code is None:
            return
        if code is not False:
            raise failure(self, code)
        held, addresses = self._checks.check(args)
        if self._checks.idle:
            return
        if self._native is None:
            _ = self.address
        self._run_reentrant(self._array_type(*addresses, *self.values))
        del held  # views of arrays from DLPack had to live until here
        left = self._left = self._left - 1
        if left == 0:
            self._fast = self._fast_call() or fastcall.refuse

    def bind(self, *args: object) -> BoundCall:
        """Check the arguments now and return a `BoundCall`, which runs without checking again.

        It takes no arguments, and less time. ArgumentError as when called, or where no output has
        elements; RunError where the workspace is over the limit.
        """
        held, addresses = self._checks.check(args)
        if self._checks.idle:
            raise ArgumentError(f"{self.name}: no output has elements; there is nothing to run")
        self._check_limit()
        space = _allocate(self) if self.workspace_bytes else None
        return BoundCall(self, held, [*addresses, *self.values], space)

    def bound(self, held: Sequence[npt.NDArray[Any]], space: npt.NDArray[np.uint8]) -> BoundCall:
        """A call on checked arrays, in a workspace that is large enough."""
        addresses = [int(x.ctypes.data) for x in held]
        return BoundCall(self, held, addresses, space if self.workspace_bytes else None)

    def _run_reentrant(self, pointers: ctypes.Array[ctypes.c_void_p]) -> None:
        """Run on these addresses, with a workspace that no concurrent call uses."""
        if not self.workspace_bytes and not self.parallel_workspace_bytes:
            self._run(pointers, None)
            return
        self._check_limit()
        space = self._take_workspace()
        try:
            self._run(pointers, space[1] if space else None)
        finally:
            if space and len(self._free) < _KEEP:
                self._free.append(space)

    def _run(self, pointers: ctypes.Array[ctypes.c_void_p], workspace: int | None) -> None:
        assert self._native is not None
        code = self._native(pointers, workspace)
        if code:
            raise failure(self, code)

    def _fast_call(self) -> fastcall.FastCall | None:
        """The call that checks and runs in compiled code; None where that is not possible."""
        # The workspace has to stay within the limit for any number of threads.
        threads = self._image.num_threads or env.MAX_THREADS
        fits = self._total_workspace(threads) <= workspace_limit()
        if not fits or not all(arg.nbytes for arg in self.args):
            return None
        space = self._take_workspace()
        address, owners = (space[1], (space,)) if space else (None, ())
        kernel = self._kernel(address, owners)
        return fastcall.checked_call(kernel, self.args, self._checks.pairs, self.values)

    def _kernel(self, workspace: int | None, owners: tuple[object, ...]) -> fastcall.NativeCode:
        code, owners = self._image.fastcall_code, (self._image, *owners)
        return fastcall.NativeCode(self.name, self.address, workspace, owners, code)

    def _take_workspace(self) -> tuple[npt.NDArray[np.uint8], int] | None:
        if not self.workspace_bytes:
            return None
        try:
            return self._free.pop()
        except IndexError:
            space = _allocate(self)
            return space, int(space.ctypes.data)

    def _total_workspace(self, threads: int) -> int:
        return self.workspace_bytes + (threads - 1) * self.parallel_workspace_bytes

    def _check_limit(self) -> None:
        threads = self._image.num_threads or pool.get_num_threads()
        total = self._total_workspace(threads)
        if total > workspace_limit():
            raise OutOfMemoryError(
                f"{self.name} needs {total} bytes of workspace on {threads} threads, over the "
                f"limit of {workspace_limit()}; use smaller tiles, fewer threads, or raise "
                "LOOPWRIGHT_WORKSPACE_LIMIT"
            )

    def __repr__(self) -> str:
        return f"<Function {self.name}({', '.join(str(arg) for arg in self.args)})>"


def _allocate(function: Function) -> npt.NDArray[np.uint8]:
    try:
        return aligned_bytes(function.workspace_bytes)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{function.name}: no memory for a workspace of {function.workspace_bytes} bytes"
        ) from error


@lru_cache(maxsize=1)
def workspace_limit() -> int:
    """Limit in bytes of one call's workspace on all threads: the setting, or half of memory."""
    limit = env.settings().workspace_limit
    return env.total_memory() // 2 if limit is None else limit


def failure(function: Function, code: int) -> Exception:
    """The error of a function that returned `code` in this thread; Ctrl-C is raised."""
    complaint = function._image.complaint(code)
    interruption = pool.interruption()
    if interruption is not None:
        raise interruption
    if complaint is not None:
        return complaint
    if code == _NO_MEMORY:
        return OutOfMemoryError(
            f"{function.name}: a thread got no memory for its workspace of "
            f"{function.parallel_workspace_bytes} bytes; use smaller tiles or fewer threads"
        )
    return RunError(f"{function.name} failed with code {code}")
