"""Base of all executors of models: inputs and outputs by name or position, as of TVM's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from loopwright.errors import ArgumentError, UsageError, did_you_mean
from loopwright.executors.callees import Callee, copied, in_one_piece, seconds_of, sequence
from loopwright.executors.places import PlacedProgram
from loopwright.executors.program import Array
from loopwright.runtime import (
    BenchmarkResult,
    BoundCall,
    Extent,
    NDArray,
    Taken,
    aligned_bytes,
    array,
    buffer_of,
    check_options,
    extent,
    sampled,
)


class Lent(NamedTuple):
    """Memory of a caller's array that is an input or an output; ``buffer`` keeps it alive."""

    extent: Extent
    buffer: memoryview | None


class Executor:
    """A model, ready to run: inputs are set, `run` runs it, outputs are got.

    One thread at a time may use an executor. Arrays of the caller's that it reads or writes without
    a copy are kept alive. One that it writes shares no bytes with an input, a constant, or another
    output; to feed outputs back, let two executors of a model write each other's inputs.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (2,))))
        >>> executor = lw.graph.compile(module, "llvm").executor()
        >>> print(isinstance(executor, lw.executors.Executor), executor.get_input_info()[0])
        True {'x': (2,)}
    """

    _parallel = False  # steps may run at one time: each call has a workspace of its own
    _apart = False  # each value has memory of its own, in place of a part of one piece
    _groups: tuple[range, ...] = ()  # steps that run in parallel, as of `sequence`

    def _begin(self, placed: PlacedProgram) -> None:
        program, self._placed = placed.program, placed
        self.inputs, self.outputs = program.input_values, program.output_values
        self._alone = program.outputs_alone
        self._input_places = {v.name: n for n, v in enumerate(self.inputs)}
        self._output_places = {v.name: n for n, v in enumerate(self.outputs)}
        self._lent_inputs: dict[int, Lent] = {}
        self._lent_outputs: dict[int, Lent] = {}
        self._pool: Any = None
        if not self._apart:
            what = "values between its kernels"
            self._pool = placed.place.memory(program, what, program.pool_bytes)
        self._arrays = [self._array(n) for n in range(len(program.values))]
        self._calls: list[Any] = [None] * len(placed.callees)
        self._buffers: Any = None
        self._workspace = aligned_bytes(0)
        self._use(placed, range(len(placed.callees)))

    @classmethod
    def _over(cls, placed: PlacedProgram) -> Self:
        """An executor of a program that is prepared."""
        executor = cls.__new__(cls)
        executor._begin(placed)
        return executor

    def _array(self, number: int) -> Any:
        """The array of a value; new memory where none is planned for it."""
        placed, program = self._placed, self._placed.program
        v, place = program.values[number], placed.homes.get(number, placed.place)
        if v.kind == "constant":
            return placed.weights.get(number, placed.constants[number])
        if v.kind == "input":
            return place.zeros(program, v)
        if not self._apart:
            return place.cut(self._pool, v, v.offset)
        memory = place.memory(program, f"its value {v.name!r}", v.nbytes)
        if isinstance(memory, np.ndarray) and number in program.outputs:
            memory.fill(0)  # what a caller gets before the first run
        return place.cut(memory, v, 0)

    def _use(self, placed: PlacedProgram, steps: Sequence[int]) -> None:
        """Take the weights and kernels of a program that is prepared; bind these steps again."""
        if not self._parallel:
            workspace = placed.place.workspace
            self._buffers = workspace(placed.program, placed.callees, self._buffers)
        self._placed = placed
        for n, v in enumerate(placed.program.values):
            if v.kind == "constant":
                self._arrays[n] = self._array(n)
        self._bind_again(steps)

    def _bound(self, callee: Callee) -> Any:
        """A call on the arrays as they are now."""
        place = self._placed.homes.get(callee.rest[-1], self._placed.place)
        arrays = [self._arrays[n] for n in callee.rest]
        return place.bind(callee, arrays, self._buffers)

    def _bind_again(self, steps: Sequence[int]) -> None:
        bound = [self._bound(self._placed.callees[n]) for n in steps]
        for n, call in zip(steps, bound, strict=True):
            self._calls[n] = call
        self._share_workspace()
        self._calls_changed()

    def _calls_changed(self) -> None:
        self._sequence: Callable[[], None] | None = None
        self._slots: dict[int, list[tuple[BoundCall, int]]] = {}  # of values, as of `_slots_of`

    def _share_workspace(self, others: Sequence[Any] = ()) -> None:
        """Let steps and ``others``, which never run together, share one (cached) workspace."""
        if self._parallel:
            return
        steps = [c for n, c in enumerate(self._calls) if not any(n in g for g in self._groups)]
        calls = [c for c in (*steps, *others) if isinstance(c, BoundCall) and c.workspace_bytes]
        most = max((call.workspace_bytes for call in calls), default=0)
        if most > len(self._workspace):
            self._workspace = aligned_bytes(most)
        for call in calls:
            call.use_workspace(self._workspace)

    def _replace(self, number: int, elements: Any) -> None:
        """Use another array for a value, without a copy; where that is refused, nothing changes."""
        if self._point(number, elements):
            self._arrays[number] = elements
            for call, slot in self._slots[number]:
                call.hold(slot, elements)
            return
        steps = enumerate(self._placed.program.steps)
        before, self._arrays[number] = self._arrays[number], elements
        try:
            self._bind_again([n for n, step in steps if number in step.args])
        except ArgumentError:
            self._arrays[number] = before
            raise

    def _run(self) -> None:
        """Run the model on its inputs as they are."""
        run = self._sequence
        if run is None:
            run = self._sequence = sequence(self._calls, self._groups)
        run()

    def _point(self, number: int, elements: Any) -> bool:
        """Let calls use other memory for a value, whose array is of its shape and dtype; whether
        they can, else they are to be bound anew.
        """
        if number not in self._slots:
            self._slots[number] = self._slots_of(number)
        slots = self._slots[number]
        if not slots or not elements.size:
            return False
        flags = elements.flags
        if not (flags.c_contiguous and flags.aligned):
            return False
        address = extent(elements).begin
        for call, slot in slots:
            call.pointers[slot] = address
        return True

    def _slots_of(self, number: int) -> list[tuple[BoundCall, int]]:
        """Calls that take a value, with its place there; none where not all are compiled code."""
        if not in_one_piece(self._calls):
            return []
        return [
            (call, slot)
            for callee, call in zip(self._placed.callees, self._calls, strict=True)
            if number in callee.rest
            for n, slot in zip(callee.rest, callee.slots, strict=True)
            if n == number
        ]

    def _call(self, inputs: Sequence[Any]) -> list[Array]:
        """Run on arrays in order, and return copies of the outputs; for an executor that nobody
        uses otherwise, since its calls keep the addresses of arrays that were read in place.
        """
        program, place = self._placed.program, self._placed.place
        held: list[object] = []
        for n, v, x in zip(program.inputs, self.inputs, inputs, strict=True):
            elements = place.fitted(v, x)
            held += [elements, buffer_of(elements)]
            if n in program.outputs or not self._point(n, elements):
                np.copyto(self._arrays[n], elements)
                self._point(n, self._arrays[n])
        self._run()
        return [self._arrays[n].copy() for n in program.outputs]

    def _check_idle(self) -> None:
        """Raise an error where a run is in progress."""

    def sync(self) -> None:
        """Wait until all runs that were started are done, and all work in a device's current
        stream; on the host it returns at once. RunError where something failed.
        """
        self._placed.place.sync()

    def get_num_inputs(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    def get_input_index(self, name: str) -> int:
        """Position of an input; -1 where no input has the name."""
        return self._input_places.get(name, -1)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the dtypes of the inputs by name."""
        return {v.name: v.shape for v in self.inputs}, {v.name: v.dtype for v in self.inputs}

    def set_input(
        self, key: str | int | None = None, value: object = None, /, **named: object
    ) -> None:
        """Copy arrays into inputs; one that `set_input_zero_copy` bound is released, not written.

        ``key`` is the name of an input, or its place, and ``value`` its array; further inputs go by
        name. The first two are positional, so that inputs may have these names. ArgumentError
        where there is no such input, or an array has another shape or dtype: no input was changed.
        """
        values: dict[str | int, object] = {name: x for name, x in named.items()}
        if key is not None:
            values[key] = value
        places = [_place(k, self._input_places, "input") for k in values]
        pairs = zip(places, values.values(), strict=True)
        fitted = self._placed.place.fitted
        fitting = [fitted(self.inputs[n], x) for n, x in pairs]
        self._check_idle()
        for n, elements in zip(places, fitting, strict=True):
            number = self._placed.program.inputs[n]
            if n in self._lent_inputs:
                self._replace(number, self._array(number))
                del self._lent_inputs[n]
            copied(elements, self._arrays[number])

    def set_input_zero_copy(self, key: str | int, value: object) -> None:
        """Use an array of the caller's as an input; the model reads its elements at each run.
        ArgumentError, too, where it is not contiguous, or shares bytes with what the model writes.
        """
        place = _place(key, self._input_places, "input")
        v = self.inputs[place]
        elements = self._placed.place.lent(v, value)
        self._check_idle()
        lent = Lent(extent(elements), buffer_of(elements))
        for n, other in self._lent_outputs.items():
            if lent.extent.meets(other.extent):
                raise _overlap(f"input {v.name!r}", f"output {self.outputs[n].name!r}")
        self._replace(self._placed.program.inputs[place], elements)
        self._lent_inputs[place] = lent

    def get_input(self, key: str | int) -> NDArray:
        """A copy of an input, as it is now."""
        place = _place(key, self._input_places, "input")
        return duplicate(self._arrays[self._placed.program.inputs[place]])

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return len(self.outputs)

    def get_output_index(self, name: str) -> int:
        """Position of an output; -1 where no output has the name."""
        return self._output_places.get(name, -1)

    def get_output_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the dtypes of the outputs by name."""
        return {v.name: v.shape for v in self.outputs}, {v.name: v.dtype for v in self.outputs}

    def set_output_zero_copy(self, index: str | int, value: object) -> None:
        """Let the model write an output, by name or position, into an array of the caller's.

        ArgumentError where there is no such output, or the array does not fit, is read-only, or
        shares bytes with an input, a constant or another output.
        """
        place = _place(index, self._output_places, "output")
        if not self._alone[place]:
            raise ArgumentError(
                f"output {self.outputs[place].name!r} is an input, a constant, or another output, "
                "too; get a copy of it"
            )
        elements = self._placed.place.lent(self.outputs[place], value)
        if isinstance(elements, np.ndarray) and not elements.flags.writeable:
            raise ArgumentError(f"the array for output {index!r} cannot be written")
        self._check_idle()
        lent = Lent(extent(elements), buffer_of(elements))
        self._check_apart(place, lent.extent, self._placed.taken)
        self._replace(self._placed.program.outputs[place], elements)
        self._lent_outputs[place] = lent

    def _check_apart(self, place: int, written: Extent, constants: Taken) -> None:
        """Refuse memory for an output that a step may read, or where another output lies.

        In some programs an output could overwrite an input after its last reader. That depends on
        how steps are fused and ordered, so it is refused in all.
        """
        name = f"output {self.outputs[place].name!r}"
        for n, other in self._lent_inputs.items():
            if written.meets(other.extent):
                raise _overlap(name, f"input {self.inputs[n].name!r}")
        for n, other in self._lent_outputs.items():
            if n != place and written.meets(other.extent):
                raise _overlap(name, f"output {self.outputs[n].name!r}")
        constant = constants.by(written)
        if constant is not None:
            raise _overlap(name, f"constant {constant!r}")

    def get_output(self, index: str | int, out: Array | NDArray | None = None) -> Array | NDArray:
        """A copy of an output, by name or position; in the array `out` where it is given.
        ArgumentError where there is no such output, or ``out`` has another shape or dtype.
        """
        place = _place(index, self._output_places, "output")
        self._check_idle()
        elements = self._arrays[self._placed.program.outputs[place]]
        if out is None:
            return duplicate(elements)
        copied(elements, self._placed.place.fitted(self.outputs[place], out))
        return out

    def run(self, **inputs: object) -> None:
        """Set inputs by name, then run the model; RunError where a kernel failed."""
        if inputs:
            self.set_input(None, None, **inputs)
        self._run()

    def benchmark(
        self,
        device: object = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: object,
    ) -> BenchmarkResult:
        """Time runs of the model.

        A run that does not count comes first; then each of ``repeat`` samples is the mean of
        ``number`` runs, or of more of them where they took less than ``min_repeat_ms``. The
        arguments are those of TVM's ``GraphModule.benchmark``. Returns seconds of a run
        for each sample, with their mean, median, std, min and max. ArgumentError as of `set_input`;
        UsageError where an option is out of range, or ``func_name`` is something else.

        Args:
            device: ignored; the model runs on its own device.
            func_name: ``"run"``, which is the one function of an executor.
            min_repeat_ms: lower bound of a sample in milliseconds; None is 0.
            limit_zero_time_iterations: attempts that take no measurable time before giving up.
            end_to_end: time copies of all inputs into the model and of all outputs out of it, too.
            cooldown_interval_ms: sleep in milliseconds after every ``repeats_to_cooldown`` samples.
            inputs: to be set before, by name; with ``end_to_end`` in each run.
        """
        if func_name != "run":
            raise UsageError(f"benchmark: an executor has the function 'run', got {func_name!r}")
        least_ms = 0.0 if min_repeat_ms is None else min_repeat_ms
        check_options(
            number=number,
            repeat=repeat,
            min_repeat_ms=least_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        self.set_input(None, None, **inputs)
        once = self._run
        if end_to_end:
            values = {v.name: self.get_input(n).numpy() for n, v in enumerate(self.inputs)} | inputs
            outputs = [np.empty(v.shape, v.dtype) for v in self.outputs]

            def once() -> None:
                self.run(**values)
                for n, out in enumerate(outputs):
                    self.get_output(n, out)

        once()
        self.sync()
        return sampled(
            lambda n: seconds_of(once, n, self.sync),
            number,
            repeat,
            least_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms * 1e-3,
            repeats_to_cooldown,
        )

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A method by its name, as TVM's executors have it: ``executor["run"]()``."""
        methods = [
            n for n in dir(type(self)) if not n.startswith("_") and callable(getattr(self, n))
        ]
        if name not in methods:
            raise ArgumentError(
                f"an executor has no function {name!r}{did_you_mean(name, methods)}; it has "
                f"{', '.join(methods)}"
            )
        method: Callable[..., Any] = getattr(self, name)
        return method


def duplicate(elements: Array | NDArray) -> NDArray:
    """A copy of an array, on the device where it lies."""
    return elements.copyto(elements.device) if isinstance(elements, NDArray) else array(elements)


def _overlap(one: str, other: str) -> ArgumentError:
    return ArgumentError(
        f"{one} overlaps {other}; what a model writes shares no bytes with inputs, constants and "
        "other outputs: pass another array"
    )


def _place(key: str | int, places: dict[str, int], what: str) -> int:
    if isinstance(key, str) and key in places:
        return places[key]
    if isinstance(key, int) and 0 <= key < len(places):
        return key
    hint = did_you_mean(key, places) if isinstance(key, str) else ""
    raise ArgumentError(
        f"there is no {what} {key!r}{hint}; there are {', '.join(places) or 'none'}"
    )
