"""A model with a program for each of some batches, and one for the rest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, UsageError, did_you_mean
from loopwright.runtime.artifacts.size_formulas import linear
from loopwright.runtime.executors.batches import saved_batches
from loopwright.runtime.executors.batches.sized_model import SizedModel
from loopwright.runtime.executors.batches.sized_program import SizedValue
from loopwright.runtime.executors.graph_executor import GraphExecutor
from loopwright.runtime.executors.model import Model, refuse_host_steps

Array = npt.NDArray[Any]


class BatchedModel:
    """A model that takes inputs of any batch: the batch of a call's inputs selects the program.

    Args:
        size: name of the size variable of the batch in the inputs.
        inputs: inputs of the model; extents may be formulas of the batch.
        models: the model for each batch that was declared.
        rest: the model for all other batches; None: they are refused.

    Attributes:
        size, inputs, models, rest: as given.

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
        """The model for one batch, with all executors of a `Model`.

        Raises:
            ArgumentError: it is not an integer from 1, or the model has no program for it.
        """
        check_batch(self.size, batch)
        return self.models.get(batch) or self._other(int(batch))

    def _other(self, batch: int) -> Model:
        """The model for a batch that was not declared."""
        if self.rest is None:
            known = ", ".join(map(str, self.batches))
            raise ArgumentError(
                f"{self.size} is {batch}, and this model has programs for {known} alone; compile "
                "it with this one among its batches"
            )
        return self.rest.at(batch)

    def executor(self, batch: int) -> GraphExecutor:
        """The model for one batch, ready to run; all executors share weights."""
        return self.at(batch).executor()

    def batch_of(self, *inputs: Any) -> int:
        """The batch of inputs, given as an array for each in order.

        Raises:
            ArgumentError: there are more or fewer inputs, one has another number of dimensions, the
                batch is not a whole number from 1, or they disagree about it.
        """
        if len(inputs) != len(self.inputs):
            names = ", ".join(v.name for v in self.inputs)
            raise ArgumentError(
                f"the model has {len(self.inputs)} inputs ({names}), got {len(inputs)}"
            )
        return self.batch_of_named({v.name: x for v, x in zip(self.inputs, inputs, strict=True)})

    def batch_of_named(self, inputs: Mapping[str, Any]) -> int:
        """The batch of some inputs, given by name.

        Raises:
            ArgumentError: as of `batch_of`; there is no such input; or none of these depends on
                the batch.
        """
        known = {v.name: v for v in self.inputs}
        found: dict[int, str] = {}
        for name, x in inputs.items():
            if name not in known:
                raise ArgumentError(f"the model has no input {name!r}{did_you_mean(name, known)}")
            v, shape = known[name], np.shape(x)
            if len(shape) != len(v.shape):
                raise ArgumentError(f"expected {v}, got shape {list(shape)}")
            for declared, extent in zip(v.shape, shape, strict=True):
                number = self._number(v, declared, extent)
                if number is not None:
                    found.setdefault(number, v.name)
        if not found:
            raise ArgumentError(f"no extent of {', '.join(inputs)} tells {self.size}")
        if len(found) > 1:
            told = ", ".join(f"{name!r} has {number}" for number, name in found.items())
            raise ArgumentError(f"the inputs disagree about {self.size}: {told}")
        (batch,) = found
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
        """Run once, by the program for the batch of the inputs, given in order.

        Raises:
            ArgumentError: as of `batch_of` and `at`; or an input has another shape or dtype.
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
        """Write the program for one batch as a library, see `Model.export_library`.

        Args:
            batch: one of `batches`; None where there is one alone.

        Raises:
            UsageError: ``batch`` is not among them, or not given; others as there.
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
        """Write all programs, their kernels, and the weights once to one file.

        Errors as of `Model.save`.

        Args:
            path: the file, such as ``resnet18.lw``, which is returned.
            force: replace a file that is no model, too.
        """
        others = {} if self.rest is None else self.rest.host_steps
        for steps in (*(one.host_steps for one in self.models.values()), others):
            refuse_host_steps(steps, "saved")
        return saved_batches.write(
            path, self.size, self.inputs, self.models, self.rest, force=force
        )

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        batches = ", ".join(map(str, self.batches)) + ("" if self.rest is None else ", any other")
        return f"<{type(self).__name__} of {inputs}: {self.size} {batches}>"


def check_batch(size: str, batch: object) -> None:
    if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ArgumentError(f"{size} is {batch!r}; a batch is a whole number from 1")
