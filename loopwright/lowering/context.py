"""Passes, and the context that decides which run: `PassContext`, `func_pass`, `Sequential`."""

# Names and meaning are those of ``tvm.transform``. Settings reach the builder processes of a tuning
# run (`PassContext.to_json`); passes and instruments, which are Python objects, cannot. Modules of
# passes enter them in the table here when they are imported, as `loopwright.lowering` does.

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import cache
from typing import Any, TextIO, TypeAlias, TypeVar

from loopwright import env
from loopwright.errors import LowerError, UsageError, did_you_mean
from loopwright.ir.stmt import Func
from loopwright.ir.verify import verify

#: Phases of the pipeline, after each of which `add_lower_pass` may put passes.
PHASES = range(4)
#: A pass to run after a phase of the pipeline.
AddedPass = tuple[int, Callable[[Func], Func]]
#: The value of a setting.
ConfigValue = bool | int | float | Sequence[AddedPass]


def is_count(value: object) -> bool:
    """Whether a value is an integer of 0 or more; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_added_passes(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(x, list | tuple)
        and len(x) == 2
        and (is_count(x[0]) and x[0] in PHASES and callable(x[1]))
        for x in value
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    allowed: str  #: the values, in words
    fits: Callable[[object], bool]
    #: Whether programs depend on it, so that other processes must know it.
    changes_program: bool = False
    #: The value that makes the same program as none.
    default: bool | int | None = None


_FLAG: tuple[str, Callable[[object], bool]] = "True or False", lambda x: isinstance(x, bool)
_COUNT: tuple[str, Callable[[object], bool]] = "a whole number of 0 or more", is_count
_SETTINGS = {
    "add_lower_pass": _Setting("a list of (phase 0 to 3, pass)", _are_added_passes),
    "verify": _Setting(*_FLAG),
    "partition_cap": _Setting(*_COUNT, True, None),
    "disable_vectorize": _Setting(*_FLAG, True, False),
    "instrument_bound_checkers": _Setting(*_FLAG, True, False),
    "code_limit": _Setting(*_COUNT, True, None),
    "unroll_max_step": _Setting(*_COUNT, True, 0),
    "max_error": _Setting(
        "a number of 0 or more",
        lambda x: isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x < math.inf,
    ),
}
#: Passes that run only where a setting asks for them.
ON_REQUEST = {
    "InstrumentBoundCheckers": "instrument_bound_checkers",
    "SkipVectorize": "disable_vectorize",
}


def check_setting(key: str, value: ConfigValue) -> tuple[str, ConfigValue]:
    """A setting under its key without ``tir.``; an unknown key is an error with the nearest one."""
    short = str(key).removeprefix("tir.")
    if short not in _SETTINGS:
        raise UsageError(
            f"PassContext: unknown config key {key!r}{did_you_mean(short, _SETTINGS)}; "
            f"keys are {', '.join(_SETTINGS)}"
        )
    setting = _SETTINGS[short]
    if not setting.fits(value):
        raise UsageError(f"PassContext: config {key!r} must be {setting.allowed}, got {value!r}")
    return short, value


def changes_program(key: str, value: ConfigValue) -> bool:
    setting = _SETTINGS[key]
    return setting.changes_program and value != setting.default


T = TypeVar("T")
#: Input of passes and instruments: a `Func`, or a module of graphs, which stands floors above.
Program: TypeAlias = Any
#: Function of a pass: from a function of the loop IR, or a module of graphs, to another one.
Transform = Callable[[Any], Any]
#: Levels: 0 for what every program needs, 1 for cheap clean-up, 2 the default, 3 for every pass.
OPT_LEVELS = range(4)
DEFAULT_LEVEL = 2

#: Every pass by its name.
_registered: dict[str, Pass] = {}


@dataclass(frozen=True, slots=True)
class Pass:
    """A named function from a program to a program: from `Func` to `Func` by default.

    Calling it runs it, whatever its level; `Sequential` and the pipeline of `lower` ask the context
    whether it is enabled.

    Attributes:
        name: its name in contexts and reports.
        opt_level: the lowest level of a context at which it runs.
        subject: the class of the programs that it takes and gives.
        check: raises an error where a program is malformed; it gets the program, and the text that
            says after which pass.

    Example:
        >>> print(lw.transform.Simplify)
        Simplify(opt_level=1)
        >>> print(lw.transform.Simplify.name, lw.transform.Simplify.opt_level)
        Simplify 1
    """

    name: str
    opt_level: int
    run: Transform
    subject: type = Func
    check: Callable[[Any, str], object] = verify

    def __call__(self, f: T) -> T:
        """Run the pass under the current context's instruments."""
        return PassContext.current().run_pass(self, f)

    def __repr__(self) -> str:
        return f"{self.name}(opt_level={self.opt_level})"


def func_pass(opt_level: int, name: str | None = None) -> Callable[[Transform], Pass]:
    """Turn a function ``Func -> Func`` into a pass and register its name.

    A later definition of a name replaces the earlier one, except that of a built-in pass.

    Args:
        opt_level: the lowest level of a context at which it runs, 0 to 3.
        name: default the function's name.

    Raises:
        UsageError: there is no such level, or a built-in pass has the name.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> @lw.transform.func_pass(opt_level=1)
        ... def count_loops(f):
        ...     print(str(f).count("for "), "loop(s)")
        ...     return f
        ...
        >>> with lw.PassContext(config={"add_lower_pass": [(1, count_loops)]}):
        ...     f = lw.lower(te.create_schedule(B.op), [A, B])
        ...
        1 loop(s)
    """
    _check_level(opt_level, "func_pass")

    def decorate(run: Transform) -> Pass:
        return register_pass(Pass(name or run.__name__, opt_level, run))

    return decorate


def register_pass(p: Pass) -> Pass:
    """Enter a pass in the table of names, in place of an earlier one that is not built in."""
    old = _registered.get(p.name)
    if old is not None and _built_in(old):
        raise UsageError(f"func_pass: {p.name!r} is a pass of loopwright; take another name")
    _registered[p.name] = p
    return p


def _built_in(p: Pass) -> bool:
    return (p.run.__module__ or "").startswith(("loopwright.lowering", "loopwright.graph"))


def find_pass(name: Pass | str) -> Pass:
    """The registered pass of a name, with or without ``tir.``; else an error with the nearest."""
    short = str(name.name if isinstance(name, Pass) else name).removeprefix("tir.")
    if short not in _registered:
        raise UsageError(
            f"PassContext: unknown pass {name!r}{did_you_mean(short, _registered)}; "
            f"passes are {', '.join(sorted(_registered))}"
        )
    return _registered[short]


class PassContext:
    """Settings of lowering inside ``with PassContext(...):``.

    Only the innermost context counts: it takes nothing over from those around it.

    Args:
        opt_level: passes up to this level run; 0 to 3, default 2.
        required_pass: names of passes that run whatever their level.
        disabled_pass: names of passes that never run.
        config: settings. Keys, each also with ``tir.`` in front as in TVM:
            ``add_lower_pass``, a list of ``(phase, pass)``, each run after that phase of
            `loopwright.lowering.pipeline.PIPELINE`; ``verify``, check the program after every pass
            (default: ``LOOPWRIGHT_VERIFY``); ``partition_cap``, the largest product of unrolled
            extents of which loop partition writes a second copy (default 512; 0: no partition);
            ``unroll_max_step``, the limit of unrolling where no pragma gives one (default 0);
            ``code_limit``, the largest number of IR nodes of a program whose unrolled and
            vectorized loops are written out (default 262144; `lower` refuses more);
            ``disable_vectorize``, run the iterations of vectorized loops one by one;
            ``max_error``, the largest error of implementations of operators that models are built
            of (`loopwright.graph.Implementation`; default 1e-5, with 0 only what is exact but for
            the order of sums);
            ``instrument_bound_checkers``, compiled code checks every access, and a call that
            would touch memory outside a tensor raises RunError with tensor, index and loops.
        instruments: objects whose methods are called before and after each pass (those of
            `loopwright.transform.PassInstrument`).

    Raises:
        UsageError: a level, pass, key or value does not exist; names the nearest.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].unroll(B.op.axis[0])
        >>> with lw.PassContext(opt_level=3, config={"verify": True}):
        ...     print(lw.lower(s, [A, B]))
        ...
        def main(A: float32[4], B: out float32[4]):
          for i in unrolled(4):
            B[i] = A[i] + 1.0
    """

    __slots__ = ("_tokens", "config", "disabled", "instruments", "opt_level", "required", "verify")

    def __init__(
        self,
        opt_level: int = DEFAULT_LEVEL,
        required_pass: Iterable[str | Pass] = (),
        disabled_pass: Iterable[str | Pass] = (),
        config: Mapping[str, ConfigValue] | None = None,
        instruments: Sequence[PassInstrument] = (),
    ) -> None:
        _check_level(opt_level, "PassContext")
        self.opt_level = opt_level
        self.required = frozenset(_names(required_pass, "required_pass"))
        self.disabled = frozenset(_names(disabled_pass, "disabled_pass"))
        if config is not None and not isinstance(config, Mapping):
            raise UsageError(f"PassContext: config is a dictionary of settings, got {config!r}")
        self.config = dict(check_setting(k, v) for k, v in (config or {}).items())
        self.instruments = tuple(_listed(instruments, "instruments"))
        calls = [n for n in vars(PassInstrument) if not n.startswith("_")]
        for x in self.instruments:
            if isinstance(x, type) or not all(callable(getattr(x, n, None)) for n in calls):
                raise UsageError(
                    f"PassContext: {x!r} is no instrument; derive a class from "
                    "transform.PassInstrument and give an object of it"
                )
        self.verify = self.flag("verify") if "verify" in self.config else env.settings().verify
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or the default one."""
        return _current.get() or _default_context()

    def __enter__(self) -> PassContext:
        for x in self.instruments:
            x.enter_pass_ctx()
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())
        for x in self.instruments:
            x.exit_pass_ctx()

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={sorted(self.required)}, "
            f"disabled_pass={sorted(self.disabled)}, config={self.config})"
        )

    def flag(self, key: str) -> bool:
        """A setting that is on or off; off by default."""
        return self.config.get(key) is True

    def count(self, key: str, default: int) -> int:
        """A setting that is a number."""
        value = self.config.get(key, default)
        assert isinstance(value, int)
        return value

    def number(self, key: str, default: float) -> float:
        """A setting that may have a fraction."""
        value = self.config.get(key, default)
        assert isinstance(value, int | float)
        return value

    @property
    def added_passes(self) -> Sequence[AddedPass]:
        """The passes of the setting ``add_lower_pass``, each with the phase that it follows."""
        added = self.config.get("add_lower_pass", ())
        return added if isinstance(added, Sequence) else ()

    def enabled(self, info: Pass | Sequential) -> bool:
        """Whether a pass runs in this context."""
        if info.name in self.disabled:
            return False
        if info.name in ON_REQUEST and not self.flag(ON_REQUEST[info.name]):
            return info.name in self.required
        return info.name in self.required or info.opt_level <= self.opt_level

    def to_json(self) -> dict[str, Any]:
        """The settings by which programs differ from those of the default context, as JSON.

        Empty for the default context. ``verify`` is left out: other processes follow
        ``LOOPWRIGHT_VERIFY``.

        Raises:
            UsageError: the context has instruments or adds passes, which are functions of this
                process.
        """
        here = "passes of add_lower_pass" if self.added_passes else None
        here = "instruments" if self.instruments else here
        if here is not None:
            raise UsageError(
                f"PassContext: its {here} live in this process, and a tuning run lowers in builder "
                "processes; tune outside of this context, or without them"
            )
        level = {} if self.opt_level == DEFAULT_LEVEL else {"opt_level": self.opt_level}
        named = {"required_pass": self.required, "disabled_pass": self.disabled}
        # A user's pass runs by add_lower_pass only, so that its name means nothing elsewhere.
        # Those of graphs have done their work before.
        own = {n for n, p in _registered.items() if _built_in(p) and p.subject is Func}
        lists = {k: sorted(v & own) for k, v in named.items()}
        parts = {**lists, "config": {k: v for k, v in self.config.items() if changes_program(k, v)}}
        return {**level, **{k: v for k, v in parts.items() if v}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PassContext:
        """The context of `to_json`."""
        return PassContext(**data)

    def run_pass(self, info: Pass, f: T) -> T:
        """Run one pass under this context's instruments, and verify the result if ``verify`` is on.

        Raises:
            LowerError: the pass got or returned something else than its subject, or what is
                malformed.
        """
        kind = info.subject.__name__
        if not isinstance(f, info.subject):
            source = "loopwright.lower" if info.subject is Func else "loopwright.graph"
            raise LowerError(
                f"pass {info.name}: takes a {kind}, as {source} gives it; got a {type(f).__name__}"
            )
        if not all(x.should_run(f, info) for x in self.instruments):
            return f
        for x in self.instruments:
            x.run_before_pass(f, info)
        result: T = info.run(f)
        if not isinstance(result, info.subject):
            raise LowerError(
                f"pass {info.name}: gave a {type(result).__name__}; a pass takes a {kind} and "
                "returns one (the same one when it changes nothing)"
            )
        for x in self.instruments:
            x.run_after_pass(result, info)
        if self.verify:
            info.check(result, f"after pass {info.name}")
        return result


class Sequential:
    """Passes in order, as one pass; those that the context does not enable are skipped.

    Args:
        passes: passes, or plain functions ``Func -> Func`` (level 0).
        opt_level: its own level where it stands in another sequence.
        name: its name in reports.

    Example:
        >>> A = te.placeholder((64, 2), name="A")
        >>> B = te.compute((64, 2), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 4)
        >>> f = lw.lower(s, [A, B], simple_mode=True)
        >>> passes = lw.transform.Sequential([lw.transform.UnrollLoop, lw.transform.Simplify])
        >>> print(passes(f))
        def main(A: float32[64, 2], B: out float32[64, 2]):
          # auto_unroll_max_step = 4
          for i in range(64):
            for j in unrolled(2):
              B[i, j] = A[i, j] + 1.0
    """

    def __init__(
        self, passes: Iterable[Transform], opt_level: int = 0, name: str = "sequential"
    ) -> None:
        _check_level(opt_level, "Sequential")
        self.passes: tuple[Pass | Sequential, ...] = tuple(as_pass(p) for p in passes)
        self.opt_level, self.name = opt_level, name

    def __call__(self, f: T) -> T:
        """Run the passes that the current context enables, one after the other."""
        context = PassContext.current()
        for p in self.passes:
            f = p(f) if context.enabled(p) else f
        return f

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(p.name for p in self.passes)}]"


def as_pass(p: Transform) -> Pass | Sequential:
    """A plain function as a pass of level 0; a pass as it is."""
    if isinstance(p, Pass | Sequential):
        return p
    if not callable(p):
        raise UsageError(f"{p!r} is not a pass; use a function from Func to Func")
    return Pass(getattr(p, "__name__", type(p).__name__), 0, p)


def _check_level(level: object, who: str) -> None:
    if not is_count(level) or level not in OPT_LEVELS:
        raise UsageError(f"{who}: opt_level {level!r} is not 0, 1, 2 or 3")


def _names(names: Iterable[str | Pass], what: str) -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"PassContext: {what} is a list of names, got the text {names!r}")
    return [find_pass(name).name for name in _listed(names, what)]


def _listed(values: Iterable[T], what: str) -> Iterable[T]:
    if not isinstance(values, Iterable):
        raise UsageError(f"PassContext: {what} is a list, got {values!r}; write [{values!r}]")
    return values


_current: ContextVar[PassContext | None] = ContextVar("pass_context", default=None)
_default_context = cache(PassContext)


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
        rows = [(n, str(self.calls[n]), t) for n, t in self.seconds.items()]
        rows.append(("total", "", sum(self.seconds.values())))
        return "\n".join(f"{n:28} {calls:>6} {t * 1e3:>10.3f} ms" for n, calls, t in rows)


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
