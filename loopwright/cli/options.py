"""Options of verbs: a verb is a function, whose parameters are options or groups that verbs share.
A group is a dataclass, each of its fields an option; a verb gets it as one argument.
"""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import click

from loopwright.env import MAX_THREADS
from loopwright.errors import UsageError, did_you_mean
from loopwright.records import Json

if TYPE_CHECKING:
    from loopwright.inspection import ChosenSchedule
    from loopwright.measure import MeasureOption
    from loopwright.task import Task
    from loopwright.tuner import Tuner


#: Trials when no limit is given, for each task.
TRIALS = 200
#: Exit code of ``--fail-without-gain``.
NO_GAIN = 4
_Verb = Callable[..., object]


class SubjectOption(click.Option):
    """Option of verbs that take a workload or a model, for one of both (``of``) alone."""

    def __init__(self, *args: Any, of: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.of = of


def option(
    words: str, text: str | None = None, *, of: str = "", shown: Any = None, **settings: Any
) -> Any:
    """Field of a group, or default of a parameter of a verb: an option. ``words`` are its names and
    its metavar, as in ``"-o --out FILE"``; the annotation says whether it is a number. ``of`` is
    ``"workload"`` or ``"model"`` where a verb takes both and the option is for one; ``shown`` is a
    default that the help shows. ``settings`` are of `click.Option`.
    """
    names = [word for word in words.split() if word.startswith("-")]
    metavar = [word for word in words.split() if word not in names]
    settings |= {"help": text, **({"metavar": metavar[0]} if metavar else {})}
    settings |= {} if shown is None else {"default": shown, "show_default": True}
    settings |= {"cls": SubjectOption, "of": of} if of else {}
    absent: object = False if settings.get("is_flag") else () if settings.get("multiple") else None
    default = settings.get("default", absent)
    return field(default=default, metadata={"params": [(click.Option, names, settings)]})


def flag(words: str, text: str, **settings: Any) -> Any:
    """As `option`, without a value: true where it is given."""
    return option(words, text, is_flag=True, **settings)


def any_of(*options: Any) -> Any:
    """Default of a parameter that several options set."""
    return field(metadata={"params": [param for o in options for param in o.metadata["params"]]})


def argument(**settings: Any) -> Any:
    """Field of a group, or default of a parameter of a verb: an argument of the command line."""
    return field(metadata={"params": [(click.Argument, [], settings)]})


def group(without: Collection[str] = (), **texts: str) -> Any:
    """Default of a parameter that is a group, without options for some fields, which then have
    their defaults, and with the help of some fields where that of the group does not fit.
    """
    return field(metadata={"without": without, "texts": texts})


def verb(name: str, short_help: str | None = None) -> Callable[[_Verb], click.Command]:
    def decorate(function: _Verb) -> click.Command:
        params: list[click.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        hints = get_type_hints(function)
        for one in inspect.signature(function).parameters.values():
            kind = hints[one.name]
            metadata = getattr(one.default, "metadata", {})
            if not is_dataclass(kind):
                params += _params(one.name, kind, metadata["params"])
                continue
            chosen = [f for f in fields(kind) if f.name not in metadata.get("without", ())]
            groups[one.name] = kind, [f.name for f in chosen]
            inner = get_type_hints(kind)
            for f in chosen:
                text = metadata.get("texts", {}).get(f.name)
                params += _params(f.name, inner[f.name], f.metadata["params"], text)

        @functools.wraps(function)
        def grouped(**values: Any) -> object:
            for key, (kind, names) in groups.items():
                values[key] = kind(**{n: values.pop(n) for n in names})
            return function(**values)

        return click.Command(
            name, callback=grouped, params=params, help=function.__doc__, short_help=short_help
        )

    return decorate


def _params(name: str, hint: Any, specs: Any, text: str | None = None) -> list[click.Parameter]:
    numbers = [kind for kind in (int, float) if kind in (hint, *get_args(hint))]
    params = []
    for make, names, settings in specs:
        settings = {"type": numbers[0], **settings} if numbers else dict(settings)
        settings |= {} if text is None else {"help": text}
        params.append(settings.pop("cls", make)([*names, name], **settings))
    return params


def json_option(text: str = "Print JSON instead of text.") -> Any:
    return flag("--json", text)


def force_option() -> Any:
    return flag("--force", "Replace an existing file, whatever it is.")


def device_option(of: str = "") -> Any:
    """Names devices; see `loopwright.measure.LocalRunner`."""
    return option(
        "--device NAMES",
        "The device that kernels run on, such as opencl:0. Where many kernels are measured, "
        "several equal devices, separated by commas, share them [default: the first of the "
        "target's kind]. `loopwright devices` lists them.",
        of=of,
    )


def emit_option() -> Any:
    return option(
        "--emit",
        "Print this: the loop nest, LLVM IR, C, assembly, OpenCL C, CUDA C++, PTX, or HIP.",
        type=click.Choice(["nest", "llvm", "c", "asm", "opencl", "cuda", "ptx", "hip"]),
    )


@dataclass(frozen=True)
class TargetOptions:
    target: str = option(
        "--target",
        "Target that kernels are compiled for: llvm, c (by the system's C compiler), opencl, cuda "
        'or interp (the interpreter), with options, such as "llvm -mcpu=x86-64-v3".',
        shown="llvm",
    )
    threads: int | None = option(
        "--threads N",
        "Threads that a kernel runs on [default: all cores].",
        type=click.IntRange(1, MAX_THREADS),
    )

    def words(self) -> list[str]:
        """These options as they are written in a command line, defaults left out."""
        words = [] if self.target == "llvm" else ["--target", self.target]
        return words if self.threads is None else [*words, "--threads", str(self.threads)]


@dataclass(frozen=True)
class RecordOptions:
    record: str | None = option(
        "--record ID",
        "This record of the log: its id, the beginning of it, `best` or `default`.",
        of="workload",
    )
    trial: int | None = option(
        "--trial N", "The record of this trial instead.", of="workload", type=click.IntRange(0)
    )
    run: str | None = option(
        "--run RUN",
        "The run of this trial, where the log has several: its id, or the beginning of it.",
        of="workload",
    )


@dataclass(frozen=True)
class HistoryOptions:
    history: tuple[str, ...] = option(
        "--history LOG",
        "A log of `loopwright tune`, or a folder of such *.jsonl: the fastest kernel in it "
        "that fits this workload and machine is taken. Several may be given.",
        multiple=True,
        type=click.Path(),
    )
    allow_default: bool = flag(
        "--allow-default",
        "Where nothing in the logs fits, take the default configuration instead of failing.",
    )

    def schedule(self, task: Task, record: RecordOptions, **settings: Any) -> ChosenSchedule | None:
        """The best or the named schedule, with ``settings`` of `best_schedule`."""
        from loopwright.cli.console import announce
        from loopwright.inspection import RecordName, best_schedule

        name = RecordName(record.record, record.trial, record.run)
        settings["allow_default"] = self.allow_default
        return best_schedule(task, self.history, name, announce, **settings)


def _completed_tuners(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from loopwright.tuner import TUNERS

    return [name for name in TUNERS if name.startswith(incomplete)]


class _TunerOption(click.Option):
    """``--option``, whose help names the options of each tuner, which are loaded for it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from loopwright.tuner import TUNERS

        parts = [f"{name}: {', '.join(kind.Options.names())}." for name, kind in TUNERS.items()]
        self.help = f"An option of the tuner, such as plan_size=32. {' '.join(parts)}"
        return super().get_help_record(ctx)


@dataclass(frozen=True)
class TunerChoice:
    tuner: str = option(
        "--tuner NAME",
        "The tuner, which chooses what to measure next. xgb: a model that learns from the "
        "results; droplet: a descent to faster neighbours; ga: a genetic search; random; grid: all "
        "in order.",
        shown="xgb",  # that of `loopwright.tuner`, which is not loaded for it
        shell_complete=_completed_tuners,
    )
    options: tuple[str, ...] = option("-O --option NAME=VALUE", multiple=True, cls=_TunerOption)
    seed: int = option("--seed N", "Seed of the tuner's random choices.", shown=0)

    def chosen(self) -> tuple[type[Tuner], dict[str, Json]]:
        """The tuner, and its options by name; the message on unknown ones lists the known."""
        from loopwright.tuner import find_tuner

        kind = find_tuner(self.tuner)
        names = kind.Options.names()
        values: dict[str, Json] = {}
        for word in self.options:
            key, separator, text = word.partition("=")
            if not separator or not text:
                raise UsageError(f"--option {word!r}: write it as name=value, such as plan_size=32")
            if key not in names:
                raise UsageError(
                    f"the tuner {self.tuner} has no option {key!r}{did_you_mean(key, names)}; "
                    f"it takes {', '.join(names)}"
                )
            if key in values:
                raise UsageError(f"--option {key} is given twice; give it once")
            values[key] = _value(text)
        return kind, values


def _value(text: str) -> Json:
    """A number, ``none``, ``true``, ``false``, ``1,2`` (a tuple), else a word."""
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


@dataclass(frozen=True)
class BudgetOptions:
    """Limits of a run; the first that is reached ends it."""

    trials: int | None = option(
        "--trials N",
        "Stop when the log holds this many successful trials: configurations that were built "
        f"and timed [default: {TRIALS}, unless another limit is given].",
    )
    timeout: str | None = option(
        "--timeout TIME",
        "Stop this run after this time, the measurements at its end included: seconds, or "
        "90s, 30m, 8h.",
    )
    early_stopping: int | None = option(
        "--early-stopping N", "Stop after this many trials without an improvement."
    )
    gflops: float | None = option(
        "--gflops SPEED",
        "Stop when the best kernel reaches this speed, in 1e9 floating point operations a second.",
        of="workload",
    )
    per_task_early_stopping: int | None = option(
        "--per-task-early-stopping N",
        "Stop tuning a workload after this many of its trials without an improvement.",
    )
    min_gain: str | None = option(
        "--min-gain SHARE",
        "Stop when another minute is expected to make the best faster by less than this: 1%, "
        "or 0.01.",
    )
    effort: str | None = option(
        "--effort",
        "Limits that go together: quick measures 16 configurations, standard up to 256, night "
        "as many as 8 hours allow; the last two end earlier where nothing more is expected. "
        "Explicit options override the preset.",
        of="workload",
        type=click.Choice(["quick", "standard", "night"]),
    )

    def resolved(self, tasks: int = 1) -> BudgetOptions:
        """With the limits of the effort, else with `TRIALS` for each task if no limit is given."""
        from loopwright.automatic import EFFORTS

        if self.effort is not None:
            limits = EFFORTS[self.effort]
            return replace(
                self,
                trials=limits.trials if self.trials is None else self.trials,
                timeout=self.timeout or limits.timeout,
                min_gain=self.min_gain or limits.min_gain,
            )
        if any(value is not None for value in vars(self).values()):
            return self
        return replace(self, trials=TRIALS * tasks)

    def limits(self) -> dict[str, Any]:
        """The values as numbers, by the names of `tune_tasks`; impossible ones are refused."""
        from loopwright.tuner import count, gain_per_minute, seconds

        stopping = {
            name: count(f"--{name.replace('_', '-')}", getattr(self, name))
            for name in ("trials", "early_stopping", "per_task_early_stopping")
        }
        trials = stopping.pop("trials")
        timeout, min_gain = seconds(self.timeout), gain_per_minute(self.min_gain)
        return {"n_trial": trials, "timeout": timeout, **stopping, "min_gain": min_gain}


@dataclass(frozen=True)
class MeasuringOptions:
    number: int | None = option(
        "--number N",
        "Calls of a kernel in one sample, which is their mean [default: as many as fit into 10 "
        "ms]. Any of --number, --repeat and --min-repeat-ms selects AutoTVM's meaning of all "
        "three, and AutoTVM's defaults 4, 3 and 0 for the rest.",
    )
    repeat: int | None = option(
        "--repeat N", "Samples of a kernel; their median is its time [default: up to 5]."
    )
    min_repeat_ms: float | None = option(
        "--min-repeat-ms MS",
        "Shortest time of a sample, in milliseconds; --number grows until it is reached.",
    )
    run_timeout: float | None = option(
        "--run-timeout SECONDS",
        "Time after which a run counts as failed [default: 10, or less once a faster kernel is "
        "known].",
    )
    build_timeout: float | None = option(
        "--build-timeout SECONDS",
        "Time after which compiling a kernel counts as failed [default: 10].",
    )
    parallel: int | None = option(
        "--parallel N", "Processes that compile at the same time [default: one a core]."
    )
    device: str | None = device_option()

    def settings(self) -> MeasureOption | None:
        from loopwright.measure import LocalBuilder, LocalRunner, measure_option

        values = {name: value for name, value in vars(self).items() if value is not None}
        if not values:
            return None
        for name, value in values.items():
            if name != "device" and not 0 < value < math.inf:
                words = f"--{name.replace('_', '-')} {value:g}"
                raise UsageError(f"{words}: give a number above zero")
        builder = LocalBuilder(
            timeout=values.pop("build_timeout", LocalBuilder.timeout),
            n_parallel=values.pop("parallel", None),
        )
        timeout = values.pop("run_timeout", LocalRunner.timeout)
        return measure_option(builder, LocalRunner(timeout=timeout, **values))


@dataclass(frozen=True)
class ScriptOptions:
    as_json: bool = flag(
        "--json",
        "At the end print the result as JSON on standard output; all else goes to standard error.",
    )
    fail_without_gain: bool = flag(
        "--fail-without-gain",
        f"Exit with code {NO_GAIN}, not 0, where nothing is measurably faster than the "
        "default configuration.",
    )


#: The option by which a run ended, by `Summary.stopped`, where the log keeps its limit reached.
_REACHED = {"early_stopping": "early_stopping", "target": "gflops", "min_gain": "min_gain"}


def time_left(seconds: float | None, begin: float) -> float | None:
    """Seconds of a budget that are left of what began at ``begin``, and 1 at least."""
    return None if seconds is None else max(1.0, round(seconds - (time.monotonic() - begin), 1))


def going_on(
    stopped: str, asked: int | None, done: int, most: int | None
) -> tuple[int | None, str] | None:
    """The number of trials to ask for, so that an ended run goes on, and the parameter of the
    option to leave out, empty for none; None where it cannot go on. The number is the same as long
    as some are left, else twice as many, as far as there is room; None for no change. ``most``
    trials have room, None where unknown.
    """
    if stopped == "exhausted" or (most is not None and done >= most):
        return None
    if stopped == "timeout" and asked is None:
        return None, ""  # it has the same time once more
    left = asked is not None and asked > done
    wanted = asked if asked is not None and left else 2 * done
    return wanted if most is None else min(wanted, most), _REACHED.get(stopped, "")


def repeated(names: Collection[str]) -> list[str]:
    """The named options that this command line gave, to be written again."""
    context = click.get_current_context()
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE or name not in names:
            continue
        value = context.params[name]
        flag = max(parameter.opts, key=len)
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(flag)
            continue
        for one in value if parameter.multiple else [value]:
            words += [flag, str(one)]
    return words


def again(log: str, trials: int | None = None, without: Collection[str] = ()) -> list[str]:
    """Options of this command line that tunes into a log, to be written again: with another number
    of trials if not None, and without those of some parameters.
    """
    params = click.get_current_context().command.params
    left_out = {*without, "log", *(["trials"] if trials is not None else [])}
    options = {p.name or "" for p in params if isinstance(p, click.Option)} - left_out
    words = ["--log", log, *repeated(options)]
    return words if trials is None else [*words, "--trials", str(trials)]


def one_device() -> list[str]:
    """``--device`` with the first device of this command line, or nothing."""
    words = repeated(["device"])
    return [words[0], words[1].partition(",")[0].strip()] if words else []
