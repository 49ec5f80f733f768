"""The configuration of the template that is running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loopwright.errors import TaskError
from loopwright.task.template_config import TemplateConfig

# A context variable: each thread and each asynchronous task runs templates of its own.
_RUNNING: ContextVar[TemplateConfig | None] = ContextVar("loopwright_config", default=None)


def get_config() -> TemplateConfig:
    """The configuration of the template that is running: define knobs on it, and read them.

    Raises:
        TaskError: no template is running.

    Example:
        >>> @lw.template("example/get_config")
        ... def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     B = te.compute((n,), lambda i: A[i] + 1, name="B")
        ...     s = te.create_schedule(B.op)
        ...     cfg = lw.get_config()
        ...     cfg.define_split("tile", B.op.axis[0], num_outputs=2)
        ...     io, ii = cfg["tile"].apply(s, B, B.op.axis[0])
        ...     return s, [A, B]
        ...
        >>> task = lw.create_task("example/get_config", (16,), "llvm")
        >>> s, args = task.instantiate({"tile": [-1, 4]})
        >>> print(lw.lower(s, args))
        def main(A: float32[16], B: out float32[16]):
          for i.0 in range(4):
            for i.1 in range(4):
              B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
    """
    config = _RUNNING.get()
    if config is None:
        raise TaskError(
            "get_config() belongs inside a template: a function decorated with "
            "@loopwright.template(name), called directly or through create_task"
        )
    return config


def running_config() -> TemplateConfig | None:
    return _RUNNING.get()


@contextmanager
def running(config: TemplateConfig) -> Iterator[None]:
    token = _RUNNING.set(config)
    try:
        yield
    finally:
        _RUNNING.reset(token)
