"""`ThreadPool`: Python work on threads, by futures.

Generated code runs its parallel loops in a pool of its own (`runtime/pool.py`). This one is for
the work around it: several functions at a time (a call runs with the interpreter's lock
released), copies, files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import ParamSpec, TypeVar

from loopwright.errors import RunError, UsageError
from loopwright.runtime.pool import check_num_threads, get_num_threads

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPool:
    """Threads that start tasks in the order of submission; a context manager ends with `shutdown`.

    Threads start when there is work for them, and end when nobody refers to the pool. Tasks
    submitted before that, before `shutdown`, or before the process ends, are still done.

    ``num_threads`` is 1 to 1023, default that of parallel loops (`get_num_threads`), else
    UsageError; ``name`` is the prefix of the threads' names.

    Example:
        >>> with lw.runtime.ThreadPool(2) as pool:
        ...     futures = [pool.submit(pow, n, 2) for n in range(4)]
        ...     print([future.result() for future in futures])
        ...
        [0, 1, 4, 9]
    """

    def __init__(self, num_threads: int | None = None, name: str = "loopwright") -> None:
        self.num_threads = check_num_threads(
            get_num_threads() if num_threads is None else num_threads
        )
        self._lock = threading.Lock()
        self._open = True
        self._mine = threading.local()
        # Threads refer to their marker, not to the pool, so that they end when the pool is dropped.
        mark = partial(setattr, self._mine, "worker", True)
        self._executor = ThreadPoolExecutor(self.num_threads, name, initializer=mark)

    def submit(self, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run ``f(*args, **kwargs)`` on a thread of the pool; RunError after the shutdown.

        ``result()`` of the future waits, and raises the exception of ``f``.
        """
        with self._lock:
            if not self._open:
                raise RunError("the thread pool has been shut down; make another one")
            return self._executor.submit(f, *args, **kwargs)

    def parallel_launch(
        self, f: Callable[[int, int], object], num_tasks: int | None = None
    ) -> None:
        """Run ``f(task, num_tasks)`` for every task and wait for all of them.

        As TVM's ``TVMBackendParallelLaunch``. From a thread of the pool itself all tasks run on
        that thread, one after the other, since the others may all be waiting in the same place.

        ``num_tasks`` is at least 1, default the number of threads, else UsageError. An exception of
        ``f``, of several the one of the first task, is raised after all tasks have ended. RunError
        after the shutdown.
        """
        count = self.num_threads if num_tasks is None else num_tasks
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"num_tasks is {count!r}; it must be a whole number, at least 1")
        if getattr(self._mine, "worker", False):
            for task in range(count):
                f(task, count)
            return
        futures: list[Future[object]] = []
        try:
            for task in range(count):
                futures.append(self.submit(f, task, count))
        finally:
            wait(futures)
        for future in futures:
            future.result()

    def shutdown(self, wait: bool = True, cancel: bool = False) -> None:
        """Accept no more work; a second call does nothing more.

        ``wait`` returns when all submitted tasks are done; ``cancel`` drops those that no thread
        has begun, whose futures raise ``CancelledError``.
        """
        with self._lock:
            self._open = False
        self._executor.shutdown(wait, cancel_futures=cancel)

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<ThreadPool of {self.num_threads} threads{'' if self._open else ', shut down'}>"
