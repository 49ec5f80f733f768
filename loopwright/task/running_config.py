"""Which configuration the template that is running now works under."""

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
    """
    config = _RUNNING.get()
    if config is None:
        raise TaskError(
            "get_config() belongs inside a template: a function decorated with "
            "@loopwright.template(name), called directly or through create_task"
        )
    return config


def running_config() -> TemplateConfig | None:
    """The configuration of the template that is running, or None outside of any."""
    return _RUNNING.get()


@contextmanager
def running(config: TemplateConfig) -> Iterator[None]:
    """Run a template under ``config``."""
    token = _RUNNING.set(config)
    try:
        yield
    finally:
        _RUNNING.reset(token)
