"""Models from files."""

from __future__ import annotations

import os
from pathlib import Path

from loopwright.runtime.executors import saved
from loopwright.runtime.executors.batches import saved_batches
from loopwright.runtime.executors.batches.batched_model import BatchedModel
from loopwright.runtime.executors.model import Model


def load_model(path: str | os.PathLike[str]) -> Model | BatchedModel:
    """Read a file of `Model.save` or `BatchedModel.save`; nothing of it runs before it is called.

    The file holds machine code, as an executable does: run only what you trust.

    Args:
        path: the file.

    Returns:
        A `Model`, or a `BatchedModel` where the file has programs for several batches.

    Raises:
        UsageError: there is no such file; it is no model, damaged, or of another version.
        RunError: it cannot be read, or its parts are inconsistent.
        TargetError: its kernels are for another CPU; the message names both.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.tanh(x))
        >>> path = lw.graph.compile(module, "llvm").save("tanh.lw")
        >>> print(lw.graph.load(path))
        <Model of x: float32[4]: 1 kernels>
    """
    with saved.opened(path) as (archive, head):
        if head["version"] == saved_batches.VERSION:
            return BatchedModel(*saved_batches.read(archive, head, Path(path)))
        return Model(*saved.read(archive, head, Path(path)))
