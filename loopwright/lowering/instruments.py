"""Instruments of a `PassContext`: time of passes, and their changes."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from loopwright.lowering.context import Pass, Program


class PassInstrument:
    """An instrument that does nothing; a base class for those that need only some of the calls.

    For each pass a context calls `should_run`, `run_before_pass` and `run_after_pass`, in this
    order; when it is entered and left it calls `enter_pass_ctx` and `exit_pass_ctx`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Count(lw.transform.PassInstrument):
        ...     passes = 0
        ...     def run_before_pass(self, f, info):
        ...         self.passes += 1
        ...
        >>> count = Count()
        >>> with lw.PassContext(instruments=[count]):
        ...     _ = lw.lower(te.create_schedule(B.op), [A, B])
        ...
        >>> print(count.passes > 3)
        True
    """

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, f: Program, info: Pass) -> bool:
        """Whether the pass is to run; any instrument can refuse."""
        return True

    def run_before_pass(self, f: Program, info: Pass) -> None:
        """The pass is about to run on ``f``."""

    def run_after_pass(self, f: Program, info: Pass) -> None:
        """The pass has returned ``f``."""


class PassTimingInstrument(PassInstrument):
    """Seconds of each pass, added up over all programs lowered in the context.

    Attributes:
        seconds: by the pass's name, in the order in which passes ran first.
        calls: number of runs of each.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> timing = lw.transform.PassTimingInstrument()
        >>> with lw.PassContext(instruments=[timing]):
        ...     _ = lw.lower(te.create_schedule(B.op), [A, B])
        ...
        >>> print(timing.calls["Simplify"])
        1
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._open: list[float] = []

    def enter_pass_ctx(self) -> None:
        self.seconds.clear()
        self.calls.clear()

    def run_before_pass(self, f: Program, info: Pass) -> None:
        self._open.append(time.perf_counter())

    def run_after_pass(self, f: Program, info: Pass) -> None:
        took = time.perf_counter() - self._open.pop()
        self.seconds[info.name] = self.seconds.get(info.name, 0.0) + took
        self.calls[info.name] = self.calls.get(info.name, 0) + 1

    def render(self) -> str:
        """A table: pass, calls, milliseconds."""
        rows = [(n, f"{self.calls[n]}", f"{t * 1e3:.3f}") for n, t in self.seconds.items()]
        rows.append(("total", "", f"{sum(self.seconds.values()) * 1e3:.3f}"))
        return "\n".join(f"{name:28} {calls:>6} {ms:>10} ms" for name, calls, ms in rows)


class _Printer(PassInstrument):
    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def _print(self, when: str, f: Program, info: Pass) -> None:
        print(f"# {when} {info.name}\n{f}", file=self._file or sys.stdout)


class PrintBeforeAll(_Printer):
    """Print the program before every pass, to ``file`` (default: standard output).

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> import io
        >>> text = io.StringIO()
        >>> with lw.PassContext(instruments=[lw.transform.PrintBeforeAll(text)]):
        ...     _ = lw.lower(te.create_schedule(B.op), [A, B])
        ...
        >>> print("Simplify" in text.getvalue())
        True
    """

    def run_before_pass(self, f: Program, info: Pass) -> None:
        self._print("before", f, info)


class PrintAfterAll(_Printer):
    """Print the program after every pass, to ``file`` (default: standard output).

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> import io
        >>> text = io.StringIO()
        >>> with lw.PassContext(instruments=[lw.transform.PrintAfterAll(text)]):
        ...     _ = lw.lower(te.create_schedule(B.op), [A, B])
        ...
        >>> print("Simplify" in text.getvalue())
        True
    """

    def run_after_pass(self, f: Program, info: Pass) -> None:
        self._print("after", f, info)


class PrintChanged(_Printer):
    """Print the program after every pass that changed it, to ``file`` (default: stdout).

    Example:
        >>> A = te.placeholder((8, 2), name="A")
        >>> B = te.compute((8, 2), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 4)
        >>> with lw.PassContext(instruments=[lw.transform.PrintChanged()]):
        ...     f = lw.lower(s, [A, B])
        ...
        # changed by UnrollLoop
        def main(A: float32[8, 2], B: out float32[8, 2]):
          # auto_unroll_max_step = 4
          for i in range(8):
            for j in unrolled(2):
              B[i, j] = A[i, j] + 1.0
    """

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file)
        self._before: list[str] = []

    def run_before_pass(self, f: Program, info: Pass) -> None:
        self._before.append(str(f))

    def run_after_pass(self, f: Program, info: Pass) -> None:
        if self._before.pop() != str(f):
            self._print("changed by", f, info)
