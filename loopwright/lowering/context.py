"""Passes, and the context that says which of them run: `PassContext`, `func_pass`, `Sequential`.

Names and meaning are those of ``tvm.transform``. The settings of a context reach the builder
processes of a tuning run (`PassContext.to_json`); what is made of Python functions cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from loopwright import env
from loopwright.errors import LowerError, UsageError, did_you_mean
from loopwright.ir.stmt import Func
from loopwright.ir.verify import verify

Transform = Callable[[Func], Func]
#: Levels: 0 what every program needs, 1 cheap clean-up, 2 the default, 3 all there is.
OPT_LEVELS = range(4)
DEFAULT_LEVEL = 2
#: Phases after which `add_lower_pass` may put a pass.
PHASES = range(4)

_passes: dict[str, Pass] = {}


@dataclass(frozen=True, slots=True)
class Pass:
    """A named function from a function to a function.

    Calling it runs it, whatever its level; `Sequential` and the pipeline of `lower` ask the context
    whether it is enabled.

    Attributes:
        name: how contexts and reports call it.
        opt_level: the lowest level of a context at which it runs.
        run: the function itself.
    """

    name: str
    opt_level: int
    run: Transform

    def __call__(self, f: Func) -> Func:
        """Run the pass under the current context's instruments."""
        context = PassContext.current()
        return context.run_pass(self, f)

    def __repr__(self) -> str:
        return f"{self.name}(opt_level={self.opt_level})"


def func_pass(opt_level: int, name: str | None = None) -> Callable[[Transform], Pass]:
    """Make a pass of a function ``Func -> Func`` and register its name.

    A later definition of a name replaces the earlier one, except that of a built-in pass.

    Args:
        opt_level: the lowest level of a context at which it runs, 0 to 3.
        name: default the function's name.

    Raises:
        UsageError: the level is none, or a built-in pass has the name.
    """
    _check_level(opt_level, "func_pass")

    def decorate(run: Transform) -> Pass:
        made = Pass(name or run.__name__, opt_level, run)
        old = _passes.get(made.name)
        if old is not None and _built_in(old):
            raise UsageError(f"func_pass: {made.name!r} is a pass of loopwright; take another name")
        _passes[made.name] = made
        return made

    return decorate


def _built_in(p: Pass) -> bool:
    return p.run.__module__.startswith("loopwright.lowering")


def named_work(opt_level: int, name: str) -> Pass:
    """Register the name of work that is done while the nest is built: contexts can disable it."""
    made = _passes[name] = Pass(name, opt_level, lambda f: f)
    return made


class Instrument(Protocol):
    """What a context calls around passes; see `loopwright.lowering.instruments`."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, f: Func, info: Pass) -> bool:
        """Whether the pass is to run."""

    def run_before_pass(self, f: Func, info: Pass) -> None:
        """The pass is about to run on ``f``."""

    def run_after_pass(self, f: Func, info: Pass) -> None:
        """The pass has made ``f``."""


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_hooks(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(x, list | tuple) and len(x) == 2 and _is_phase(x[0]) and callable(x[1])
        for x in value
    )


def _is_phase(value: Any) -> bool:
    return _is_count(value) and value in PHASES


#: Key of ``config`` -> (what it must be, the test of it).
_CONFIG: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "add_lower_pass": ("a list of (phase 0 to 3, pass)", _is_hooks),
    "verify": ("True or False", _is_flag),
    "partition_cap": ("a whole number of 0 or more", _is_count),
    "disable_vectorize": ("True or False", _is_flag),
    "instrument_bound_checkers": ("True or False", _is_flag),
    "unroll_max_step": ("a whole number of 0 or more", _is_count),
}


#: Keys of ``config`` that make another program, and the values of them that do not.
_MAKES_ANOTHER = {
    "partition_cap": None,
    "disable_vectorize": False,
    "instrument_bound_checkers": False,
    "unroll_max_step": 0,
}
#: Passes that run only where a key of ``config`` asks for them.
_ASKED = {
    "InstrumentBoundCheckers": "instrument_bound_checkers",
    "SkipVectorize": "disable_vectorize",
}


class PassContext:
    """How programs are lowered inside ``with PassContext(...):``.

    The innermost context counts, alone: nothing is taken over from those around it.

    Args:
        opt_level: passes up to this level run; 0 to 3, default 2.
        required_pass: names of passes that run whatever their level.
        disabled_pass: names of passes that never run.
        config: settings. Keys, each also with ``tir.`` in front as in TVM:
            ``add_lower_pass``, a list of ``(phase, pass)``, each run after that phase of
            `loopwright.lowering.pipeline.PIPELINE`; ``verify``, check the program after every pass
            (default: ``LOOPWRIGHT_VERIFY``); ``partition_cap``, largest product of unrolled extents
            of which loop partition makes a second copy (default 512; 0: no partition);
            ``unroll_max_step``, limit of unrolling where no pragma says one (default 0);
            ``disable_vectorize``, vectorized loops run one by one;
            ``instrument_bound_checkers``, compiled code checks every access, and a call that
            would touch memory outside a tensor raises RunError with tensor, index and loops.
        instruments: objects that are told before and after each pass
            (`loopwright.lowering.instruments`).

    Raises:
        UsageError: a level, pass, key or value that does not exist; names the nearest.
    """

    __slots__ = ("_tokens", "config", "disabled", "instruments", "opt_level", "required", "verify")

    def __init__(
        self,
        opt_level: int = DEFAULT_LEVEL,
        required_pass: Iterable[str] = (),
        disabled_pass: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        _check_level(opt_level, "PassContext")
        self.opt_level = opt_level
        self.required = frozenset(_pass_name(n) for n in _names(required_pass, "required_pass"))
        self.disabled = frozenset(_pass_name(n) for n in _names(disabled_pass, "disabled_pass"))
        if config is not None and not isinstance(config, Mapping):
            raise UsageError(f"PassContext: config is a dictionary of settings, got {config!r}")
        self.config = dict(_setting(k, v) for k, v in (config or {}).items())
        self.instruments = tuple(_instrument(x) for x in _listed(instruments, "instruments"))
        wanted = self.config.get("verify")
        self.verify = env.settings().verify if wanted is None else wanted
        self._tokens: list[Any] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or the default one."""
        return _current.get() or _default()

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

    def enabled(self, info: Pass | Sequential) -> bool:
        """Whether a pass runs in this context."""
        if info.name in self.disabled:
            return False
        if info.name in _ASKED and not self.config.get(_ASKED[info.name]):
            return info.name in self.required
        return info.name in self.required or info.opt_level <= self.opt_level

    def to_json(self) -> dict[str, Any]:
        """The settings that make another program than the default ones, for other processes.

        Empty for the default context. ``verify`` is not in it: other processes follow
        ``LOOPWRIGHT_VERIFY``.

        Raises:
            UsageError: the context has instruments or adds passes, which are functions of this
                process.
        """
        added = self.config.get("add_lower_pass")
        here = "instruments" if self.instruments else "passes of add_lower_pass" if added else None
        if here is not None:
            raise UsageError(
                f"PassContext: its {here} live in this process, and a tuning run lowers in builder "
                "processes; tune outside of this context, or without them"
            )
        levels = {} if self.opt_level == DEFAULT_LEVEL else {"opt_level": self.opt_level}
        named = {"required_pass": self.required, "disabled_pass": self.disabled}
        # A user's pass runs by add_lower_pass only, so that its name says nothing elsewhere.
        lists = {k: sorted(n for n in v if _built_in(_passes[n])) for k, v in named.items()}
        config = {k: self.config.get(k, default) for k, default in _MAKES_ANOTHER.items()}
        told = {**lists, "config": {k: v for k, v in config.items() if v != _MAKES_ANOTHER[k]}}
        return {**levels, **{k: v for k, v in told.items() if v}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PassContext:
        """The context of `to_json`.

        Raises:
            UsageError: as the constructor.
        """
        return PassContext(**data)

    def run_pass(self, info: Pass, f: Func) -> Func:
        """Run one pass under this context's instruments; verifies the result if asked to.

        Raises:
            LowerError: the pass gave something else than a function, or a malformed one.
        """
        if not isinstance(f, Func):
            raise LowerError(
                f"pass {info.name}: takes a Func, as loopwright.lower gives it; got a "
                f"{type(f).__name__}"
            )
        if not all(x.should_run(f, info) for x in self.instruments):
            return f
        for x in self.instruments:
            x.run_before_pass(f, info)
        made = info.run(f)
        if not isinstance(made, Func):
            raise LowerError(
                f"pass {info.name}: gave a {type(made).__name__}; a pass takes a Func and returns "
                "one (the same one when it changes nothing)"
            )
        for x in self.instruments:
            x.run_after_pass(made, info)
        if self.verify:
            verify(made, f"after pass {info.name}")
        return made


class Sequential:
    """Passes in order, as one pass; those that the context does not enable are skipped.

    Args:
        passes: passes, or plain functions ``Func -> Func`` (level 0).
        opt_level: its own level where it stands in another sequence.
        name: how reports call it.
    """

    def __init__(
        self, passes: Iterable[Pass | Transform], opt_level: int = 0, name: str = "sequential"
    ) -> None:
        _check_level(opt_level, "Sequential")
        self.passes: tuple[Pass | Sequential, ...] = tuple(as_pass(p) for p in passes)
        self.opt_level, self.name = opt_level, name

    def __call__(self, f: Func) -> Func:
        """Run the passes that the current context enables, one after the other."""
        context = PassContext.current()
        for p in self.passes:
            f = p(f) if context.enabled(p) else f
        return f

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(p.name for p in self.passes)}]"


def as_pass(p: Any) -> Any:
    """A pass as it is; a plain function as a pass of level 0."""
    if isinstance(p, Pass | Sequential):
        return p
    if not callable(p):
        raise UsageError(f"{p!r} is not a pass; use a function from Func to Func")
    return Pass(getattr(p, "__name__", type(p).__name__), 0, p)


def _check_level(level: Any, who: str) -> None:
    if not _is_count(level) or level not in OPT_LEVELS:
        raise UsageError(f"{who}: opt_level {level!r} is not 0, 1, 2 or 3")


def _names(given: Any, what: str) -> Iterable[str]:
    if isinstance(given, str):
        raise UsageError(f"PassContext: {what} is a list of names, got the text {given!r}")
    return _listed(given, what)


def _listed(given: Any, what: str) -> Iterable[Any]:
    if not isinstance(given, Iterable):
        raise UsageError(f"PassContext: {what} is a list, got {given!r}; write [{given!r}]")
    return given


def _instrument(x: Any) -> Instrument:
    calls = [n for n in vars(Instrument) if not n.startswith("_")]
    if isinstance(x, type) or not all(callable(getattr(x, n, None)) for n in calls):
        raise UsageError(
            f"PassContext: {x!r} is no instrument; derive a class from transform.PassInstrument "
            "and give an object of it"
        )
    made: Instrument = x
    return made


def _pass_name(name: Any) -> str:
    import loopwright.lowering.pipeline  # noqa: F401  (registers the built-in passes)

    short = str(name.name if isinstance(name, Pass) else name).removeprefix("tir.")
    if short not in _passes:
        raise UsageError(
            f"PassContext: unknown pass {name!r}{did_you_mean(short, _passes)}; "
            f"passes are {', '.join(sorted(_passes))}"
        )
    return short


def _setting(key: str, value: Any) -> tuple[str, Any]:
    short = str(key).removeprefix("tir.")
    if short not in _CONFIG:
        raise UsageError(
            f"PassContext: unknown config key {key!r}{did_you_mean(short, _CONFIG)}; "
            f"keys are {', '.join(_CONFIG)}"
        )
    what, fits = _CONFIG[short]
    if not fits(value):
        raise UsageError(f"PassContext: config {key!r} must be {what}, got {value!r}")
    return short, value


_current: ContextVar[PassContext | None] = ContextVar("pass_context", default=None)


@cache
def _default() -> PassContext:
    return PassContext()
