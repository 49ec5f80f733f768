"""Models of any batch: a program for each of some batches, and one of formulas for the rest, whose
memory is planned for each; reading models from files.

In a file, kernels and weights stand once: ``model.json`` has a program for each batch, with the
numbers of its kernels in the archive and the names of its weights there, and a program of formulas
for all other batches.
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, RunError, UsageError, did_you_mean, shown
from loopwright.executors import saved
from loopwright.executors.callees import HostStep, SharedArrays
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.model import Model, check_count, idle_executors, refuse_host_steps
from loopwright.executors.places import PlacedProgram, host_program
from loopwright.executors.program import (
    VERSION,
    Array,
    Kind,
    Program,
    Step,
    Value,
    placed,
    reading,
    steps_from_json,
    steps_to_json,
)
from loopwright.runtime import Module, RuntimeCache, SizeFormula, evaluate, linear, text

_FORMAT = "loopwright.sized_program"
_ANY = 2  # size for the checks of a program when it is read: any size gives the same structure
_KEEP = 16  # sizes whose programs are kept for the next call


@dataclass(frozen=True)
class SizedValue:
    """A tensor of a program whose extents may depend on its size.

    ``shape`` has numbers, the name of the size, or formulas of it
    (`loopwright.runtime.artifacts.manifest`); the rest is as of `Value`.

    Example:
        >>> from loopwright.executors import SizedValue
        >>> print(SizedValue("x", (["*", "n", 2], 3), "float32", "input").at({"n": 4}).shape)
        (8, 3)
    """

    name: str
    shape: tuple[SizeFormula, ...]
    dtype: str
    kind: Kind

    def at(self, sizes: Mapping[str, int]) -> Value:
        """The value for given sizes."""
        shape = tuple(evaluate(n, sizes) for n in self.shape)
        return Value(self.name, shape, self.dtype, self.kind)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(text, self.shape))}]"


@dataclass(frozen=True)
class SizedProgram:
    """A program with one open size; `at` gives the program for a number.

    ``size`` is its name; the rest is as of `Program`. Kernels of steps serve every size.

    Example:
        >>> from loopwright.executors import SizedProgram, SizedValue, Step
        >>> x = SizedValue("x", ("n", 4), "float32", "input")
        >>> y = SizedValue("y", ("n", 4), "float32", "stored")
        >>> program = SizedProgram("n", (x, y), (Step("double", (0, 1)),), (0,), (1,))
        >>> print(program.at(8).values[1].shape, program.at(8).pool_bytes)
        (8, 4) 128
    """

    size: str
    values: tuple[SizedValue, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...] = ()

    def at(self, number: int) -> Program:
        """The program for a number of the size, with its memory planned; RunError where it is
        inconsistent, UsageError for a malformed formula.
        """
        values = [v.at({self.size: number}) for v in self.values]
        return placed(values, self.steps, self.inputs, self.outputs, self.output_names)

    @property
    def input_values(self) -> tuple[SizedValue, ...]:
        return tuple(self.values[n] for n in self.inputs)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": VERSION,
            "size": self.size,
            "values": [[v.name, list(v.shape), v.dtype, v.kind] for v in self.values],
            **steps_to_json(self.steps, self.inputs, self.outputs),
            "output_names": list(self.output_names),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SizedProgram:
        """The program of `to_json`; RunError for anything else, or another version."""
        with reading(data, _FORMAT, "program of a model whose size varies"):
            program = SizedProgram(
                str(data["size"]),
                tuple(SizedValue(n, tuple(s), d, k) for n, s, d, k in data["values"]),
                *steps_from_json(data),
                tuple(map(str, data["output_names"])),
            )
            program.at(_ANY)
        return program


class SizedModel:
    """A program of any size with its kernels, which take every size, and its weights.

    Several threads may ask it for sizes at once. ``constants``, ``host_steps`` and ``shared`` are
    as of `Model`.

    Example:
        >>> from loopwright.executors import SizedModel, SizedProgram, SizedValue, Step
        >>> n = te.size_var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] * 2, name="B")
        >>> double = lw.build(te.create_schedule(B.op), [A, B], "llvm")
        >>> x = SizedValue("x", ("n",), "float32", "input")
        >>> y = SizedValue("y", ("n",), "float32", "stored")
        >>> program = SizedProgram("n", (x, y), (Step("double", (0, 1)),), (0,), (1,))
        >>> model = SizedModel(program, {"double": double}, {})
        >>> print(model.at(3)(np.ones(3, "float32"))[0])
        [2. 2. 2.]
    """

    def __init__(
        self,
        program: SizedProgram,
        kernels: Mapping[str, Module],
        constants: Mapping[str, Array],
        host_steps: Mapping[str, HostStep] | None = None,
        shared: SharedArrays | None = None,
    ) -> None:
        self.program, self.kernels, self.constants = program, kernels, constants
        self.host_steps = host_steps or {}
        self._shared = shared
        self._first: PlacedProgram | None = None  # for the size that was first
        self._kept: RuntimeCache[Model] = RuntimeCache(_KEEP, counted=False)  # one "byte" a model
        self._lock = threading.Lock()
        self.idle = idle_executors()  # of any size, so that sizes seen once hold no memory

    def at(self, number: int) -> Model:
        """The model for a number of the size, which all kernels must take; its memory is
        planned."""
        return self._kept.get_or_make(
            number, lambda: _ModelOfSize(self, self.program.at(number)), nbytes=1
        )

    def executor(self, program: Program, in_place: Collection[str] = ()) -> GraphExecutor:
        """An executor of the program for a size; all share weights, and the first `in_place`."""
        return GraphExecutor._over(self._host_program(program, in_place))

    def _host_program(self, program: Program, in_place: Collection[str] = ()) -> PlacedProgram:
        """The program for a size, with the weights and kernels of all."""
        with self._lock:
            if self._first is None:
                called: dict[str, Module | HostStep] = {**self.kernels, **self.host_steps}
                parts = called, self.constants, self._shared, in_place
                self._first = host_program(program, *parts)
            return replace(self._first, program=program)


class _ModelOfSize(Model):
    def __init__(self, whole: SizedModel, program: Program) -> None:
        super().__init__(program, whole.kernels, whole.constants, whole.host_steps)
        self._whole, self._idle = whole, whole.idle

    @cached_property
    def _host_program(self) -> PlacedProgram:
        return self._whole._host_program(self.program)

    def _check_whole(self, done: str) -> None:
        """Refused: it would be of one size, its kernels are of any; the model of all is saved."""
        size, alone = self._whole.program.size, " by itself" if done == "saved" else ""
        raise UsageError(
            f"a model whose kernels take every {size} cannot be {done}{alone}; compile it with "
            "this one among its batches, and take that"
        )


_BATCHED = 2  # version of files that hold a model for several batches


class BatchedModel:
    """A model that takes inputs of any batch: the batch of a call's inputs selects the program.

    Args:
        size: name of the size variable of the batch in the inputs.
        inputs: inputs of the model; extents may be formulas of the batch.
        models: the model for each batch that was declared.
        rest: the model for all other batches; None: they are refused.

    Example:
        >>> x = lw.graph.var("x", (te.size_var("batch"), 2))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
        >>> model = lw.graph.compile(module, "llvm", batches=(1, 8))
        >>> print(model.batches, model(np.full((3, 2), -1, "float32"))[0].shape)
        (1, 8) (3, 2)
    """

    def __init__(
        self,
        size: str,
        inputs: Sequence[SizedValue],
        models: Mapping[int, Model],
        rest: SizedModel | None = None,
    ) -> None:
        self.size, self.inputs = size, tuple(inputs)
        self.models, self.rest = dict(sorted(models.items())), rest

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches that have a program of their own, in order."""
        return tuple(self.models)

    def at(self, batch: int) -> Model:
        """The model for one batch, with all executors of a `Model`; ArgumentError where it is not
        an integer from 1, or the model has no program for it.
        """
        check_batch(self.size, batch)
        return self.models.get(batch) or self._other(int(batch))

    def _other(self, batch: int) -> Model:
        if self.rest is None:
            declared = ", ".join(map(str, self.batches))
            raise ArgumentError(
                f"{self.size} is {batch}, and this model has programs for {declared} alone; "
                "compile it with this one among its batches"
            )
        return self.rest.at(batch)

    def executor(self, batch: int) -> GraphExecutor:
        """The model for one batch, ready to run; all executors share weights."""
        return self.at(batch).executor()

    def batch_of(self, *inputs: Any) -> int:
        """The batch of inputs, given as an array for each in order; ArgumentError where an input
        does not fit, the batch is not a whole number from 1, or they disagree about it.
        """
        check_count([v.name for v in self.inputs], inputs)
        return self.batch_of_named({v.name: x for v, x in zip(self.inputs, inputs, strict=True)})

    def batch_of_named(self, inputs: Mapping[str, Any]) -> int:
        """The batch of some inputs, given by name; ArgumentError as of `batch_of`, where there is
        no such input, or where none of these depends on the batch.
        """
        inputs_by_name = {v.name: v for v in self.inputs}
        batches: dict[int, str] = {}
        for name, x in inputs.items():
            if name not in inputs_by_name:
                raise ArgumentError(
                    f"the model has no input {name!r}{did_you_mean(name, inputs_by_name)}"
                )
            v, shape = inputs_by_name[name], np.shape(x)
            if len(shape) != len(v.shape):
                raise ArgumentError(f"expected {v}, got shape {list(shape)}")
            for declared, extent in zip(v.shape, shape, strict=True):
                number = self._number(v, declared, extent)
                if number is not None:
                    batches.setdefault(number, v.name)
        if not batches:
            raise ArgumentError(f"no extent of {', '.join(inputs)} tells {self.size}")
        if len(batches) > 1:
            differing = ", ".join(f"{name!r} has {number}" for number, name in batches.items())
            raise ArgumentError(f"the inputs disagree about {self.size}: {differing}")
        (batch,) = batches
        check_batch(self.size, batch)
        return batch

    def _number(self, v: SizedValue, declared: Any, extent: int) -> int | None:
        """The batch that an extent implies; None where it does not depend on it."""
        form = None if isinstance(declared, int) else linear(declared)
        if form is None:
            return None
        _, factor, const = form
        if (extent - const) % factor:
            raise ArgumentError(f"expected {v}, got an extent of {extent}; no {self.size} gives it")
        return (extent - const) // factor

    def __call__(self, *inputs: Any) -> list[Array]:
        """Run once, by the program for the batch of the inputs, given in order; ArgumentError as of
        `batch_of` and `at`, or where an input has another shape or dtype.
        """
        return self.at(self.batch_of(*inputs))(*inputs)

    def export_library(
        self,
        path: str | os.PathLike[str],
        cc: str | None = None,
        fcompile: Callable[..., object] | None = None,
        *,
        batch: int | None = None,
        force: bool = False,
    ) -> Path:
        """Write the program for one batch as a library, see `Model.export_library`; ``batch`` is
        one of `batches`, which may be left out where there is one alone; else a UsageError.
        """
        known = ", ".join(map(str, self.batches))
        if batch is None and len(self.batches) == 1:
            (batch,) = self.batches
        if batch not in self.models:
            given = "there are several" if batch is None else f"{batch!r} is none of them"
            raise UsageError(
                f"a library is of one {self.size}, and {given}: give batch= one of {known}"
            )
        return self.models[batch].export_library(path, cc, fcompile, force=force)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write all programs, their kernels, and the weights once to one file; see `Model.save`."""
        others = {} if self.rest is None else self.rest.host_steps
        for steps in (*(one.host_steps for one in self.models.values()), others):
            refuse_host_steps(steps, "saved")
        parts = _Parts()
        head = {
            "format": saved.FORMAT,
            "version": _BATCHED,
            "size": self.size,
            "inputs": [[v.name, list(v.shape), v.dtype] for v in self.inputs],
            "batches": [[batch, parts.add(one)] for batch, one in self.models.items()],
            "rest": None if self.rest is None else parts.add(self.rest),
        }
        return saved.write(path, head, parts.kernels, parts.weights, force=force)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        batches = ", ".join(map(str, self.batches)) + ("" if self.rest is None else ", any other")
        return f"<{type(self).__name__} of {inputs}: {self.size} {batches}>"


def check_batch(size: str, batch: object) -> None:
    if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ArgumentError(f"{size} is {batch!r}; a batch is a whole number from 1")


class _Parts:
    def __init__(self) -> None:
        self.kernels: list[Module] = []
        self.weights: dict[str, Array] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._shared, self._names = SharedArrays(), dict[int, str]()

    def add(self, model: Model | SizedModel) -> dict[str, Any]:
        """Enter the parts of a model; returns its entry in ``model.json``."""
        used = [v.name for v in model.program.values if v.kind == "constant"]
        return {
            "program": model.program.to_json(),
            "kernels": {name: self._kernel(module) for name, module in model.kernels.items()},
            "weights": {name: self._weight(name, model.constants[name]) for name in used},
        }

    def _kernel(self, module: Module) -> int:
        artifact = module.artifact
        key = json.dumps(artifact.manifest, sort_keys=True), artifact.objects
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(module)
        return self._numbers[key]

    def _weight(self, name: str, array: Array) -> str:
        kept = self._shared.one_of(np.asarray(array, order="C"))
        stored = self._names.get(id(kept))
        if stored is None:
            stored = name if name not in self.weights else f"{name}.{len(self.weights)}"
            self._names[id(kept)], self.weights[stored] = stored, kept
        return stored


def read(
    archive: zipfile.ZipFile, head: Mapping[str, Any], source: Path
) -> tuple[str, list[SizedValue], dict[int, Model], SizedModel | None]:
    """Read the arguments of a `BatchedModel` from an archive that `saved.opened` gave."""
    reader = _Reader(archive, source)
    size, rest = str(head["size"]), head["rest"]
    inputs = [
        SizedValue(str(n), tuple(saved.a_list(shape)), str(d), "input")
        for n, shape, d in map(saved.a_list, saved.a_list(head["inputs"]))
    ]
    models: dict[int, Model] = {}
    for batch, part in map(saved.a_list, saved.a_list(head["batches"])):
        program = Program.from_json(saved.an_object(part)["program"])
        if type(batch) is not int or batch < 1:
            raise RunError(f"{source}: one of its batches is {shown(batch)}")
        if program.input_values != tuple(v.at({size: batch}) for v in inputs):
            raise RunError(f"{source}: its program for {size} {batch} takes other inputs")
        models[batch] = Model(program, *reader.contents(part, program), shared=reader.shared)
    if rest is None:
        return size, inputs, models, None
    sized = SizedProgram.from_json(saved.an_object(rest)["program"])
    if sized.size != size or sized.input_values != tuple(inputs):
        raise RunError(f"{source}: its program for other batches takes other inputs")
    contents = reader.contents(rest, sized.at(_ANY))
    return size, inputs, models, SizedModel(sized, *contents, shared=reader.shared)


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, source: Path) -> None:
        self._archive, self._source, self._kernels = archive, source, dict[int, Module]()
        self._weights = saved.weights_of(archive, source)
        self.shared = SharedArrays()

    def contents(
        self, part: Mapping[str, Any], program: Program
    ) -> tuple[dict[str, Module], dict[str, Array]]:
        """Kernels and weights of an entry of ``model.json``, which must fit its program."""
        numbers, names = saved.an_object(part["kernels"]), saved.an_object(part["weights"])
        for number in numbers.values():
            if type(number) is not int:
                raise ValueError(f"the number of a kernel is {shown(number)}")
            if number not in self._kernels:
                self._kernels[number] = saved.kernel_of(self._archive, number)
        kernels = {name: self._kernels[n] for name, n in numbers.items()}
        weights = {name: self._weights[str(stored)] for name, stored in names.items()}
        saved.check(self._source, program, kernels, weights)
        return kernels, weights


def load_model(path: str | os.PathLike[str]) -> Model | BatchedModel:
    """Read a file of `Model.save` or `BatchedModel.save`; nothing of it runs before it is called.

    The file holds machine code, as an executable does: run only what you trust.

    Raises:
        UsageError: there is no such file; it is no model, damaged, or of another version.
        RunError: it cannot be read, or its parts are inconsistent.
        TargetError: its kernels are for another CPU; the message names both.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.tanh(lw.graph.var("x", (4,))))
        >>> path = lw.graph.compile(module, "llvm").save("tanh.lw")
        >>> print(lw.graph.load(path))
        <Model of x: float32[4]: 1 kernels>
    """
    source = Path(path)
    with saved.opened(source) as (archive, head):
        if head["version"] == _BATCHED:
            return BatchedModel(*read(archive, head, source))
        program, names = Program.from_json(head["program"]), saved.a_list(head["kernels"])
        kernels = {str(name): saved.kernel_of(archive, n) for n, name in enumerate(names)}
        weights = saved.weights_of(archive, source)
        saved.check(source, program, kernels, weights)
        return Model(program, kernels, weights)
