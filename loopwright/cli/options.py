"""Groups of options that several verbs share: a group is a dataclass, each of its fields an option.

A verb takes a group by `takes`, and gets it as one argument.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

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


def option(*names: str, of: str = "", **settings: Any) -> Any:
    """Field of a group: an option with the arguments of `click.option`. ``of`` is ``"workload"`` or
    ``"model"`` where a verb takes both and the option is for one.
    """
    if of:
        settings = {"cls": SubjectOption, "of": of, **settings}
    absent: object = False if settings.get("is_flag") else () if settings.get("multiple") else None
    default = settings.get("default", absent)
    return field(default=default, metadata={"add": click.option, "call": (names, settings)})


def argument(name: str, **settings: Any) -> Any:
    """Field of a group: an argument of the command line."""
    return field(metadata={"add": click.argument, "call": ((name,), settings)})


def takes(
    *,
    without: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
    **groups: type,
) -> Callable[[_Verb], _Verb]:
    """Give a verb the options of groups, each as one argument.

    Args:
        without: fields that the verb has no option for; they have their defaults.
        texts: help by field where that of the group does not fit.
        groups: the groups by the names of the arguments.
    """
    chosen = {
        name: [f for f in fields(group) if f.name not in without] for name, group in groups.items()
    }

    def decorate(command: _Verb) -> _Verb:
        @functools.wraps(command)
        def grouped(**values: Any) -> object:
            for name, group in groups.items():
                values[name] = group(**{f.name: values.pop(f.name) for f in chosen[name]})
            return command(**values)

        verb: _Verb = grouped
        for one in reversed([f for group in chosen.values() for f in group]):
            names, settings = one.metadata["call"]
            if one.metadata["add"] is click.option:
                names = (*names, one.name)
                if texts and one.name in texts:
                    settings = {**settings, "help": texts[one.name]}
            verb = one.metadata["add"](*names, **settings)(verb)
        return verb

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
force_option = click.option(
    "--force", is_flag=True, help="Replace an existing file, whatever it is."
)
#: Names devices; see `loopwright.measure.LocalRunner`.
DEVICE: Mapping[str, Any] = {
    "metavar": "NAMES",
    "help": "The device that kernels run on, such as opencl:0. Where many kernels are measured, "
    "several equal devices, separated by commas, share them [default: the first of the target's "
    "kind]. `loopwright devices` lists them.",
}
device_option = click.option("--device", **DEVICE)
emit_option = click.option(
    "--emit",
    type=click.Choice(["nest", "llvm", "c", "asm", "opencl", "cuda", "ptx", "hip"]),
    help="Print this: the loop nest, LLVM IR, C, assembly, OpenCL C, CUDA C++, PTX, or HIP.",
)


@dataclass(frozen=True)
class TargetOptions:
    target: str = option(
        "--target",
        default="llvm",
        show_default=True,
        help="What kernels are compiled for: llvm, c (by the system's C compiler), opencl, cuda "
        'or interp (the interpreter), with options, such as "llvm -mcpu=x86-64-v3".',
    )
    threads: int | None = option(
        "--threads",
        type=click.IntRange(1, MAX_THREADS),
        metavar="N",
        help="Threads that a kernel runs on [default: all cores].",
    )

    def words(self) -> list[str]:
        """These options as they are written in a command line, defaults left out."""
        words = [] if self.target == "llvm" else ["--target", self.target]
        return words if self.threads is None else [*words, "--threads", str(self.threads)]


@dataclass(frozen=True)
class RecordOptions:
    record: str | None = option(
        "--record",
        of="workload",
        metavar="ID",
        help="This record of the log: its id, the beginning of it, `best` or `default`.",
    )
    trial: int | None = option(
        "--trial",
        of="workload",
        type=click.IntRange(0),
        metavar="N",
        help="The record of this trial instead.",
    )
    run: str | None = option(
        "--run",
        of="workload",
        metavar="RUN",
        help="The run that had this trial, where the log has several; the beginning will do.",
    )


@dataclass(frozen=True)
class HistoryOptions:
    history: tuple[str, ...] = option(
        "--history",
        multiple=True,
        type=click.Path(),
        metavar="LOG",
        help="A log of `loopwright tune`, or a folder of such *.jsonl: the fastest kernel in it "
        "that fits this workload and machine is taken. Several may be given.",
    )
    allow_default: bool = option(
        "--allow-default",
        is_flag=True,
        help="Where nothing in the logs fits, take the default configuration instead of failing.",
    )

    def schedule(
        self,
        task: Task,
        record: RecordOptions,
        *,
        check: bool = True,
        verdicts: bool = True,
        device: str | None = None,
    ) -> ChosenSchedule | None:
        """The best or the named schedule; see `best_schedule`."""
        from loopwright.cli.console import announce
        from loopwright.inspection import RecordName, best_schedule

        return best_schedule(
            task,
            self.history,
            RecordName(record.record, record.trial, record.run),
            announce,
            allow_default=self.allow_default,
            check=check,
            verdicts=verdicts,
            device=device,
        )


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
        "--tuner",
        default="xgb",  # that of `loopwright.tuner`, which is not loaded for it
        show_default=True,
        metavar="NAME",
        shell_complete=_completed_tuners,
        help="The tuner, which chooses what to measure next. xgb: a model that learns from the "
        "results; ga: a genetic search; random; grid: all in order.",
    )
    options: tuple[str, ...] = option(
        "-O", "--option", multiple=True, metavar="NAME=VALUE", cls=_TunerOption
    )
    seed: int = option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        metavar="N",
        help="Another number gives the tuner other random choices.",
    )

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
        "--trials",
        type=int,
        metavar="N",
        help="Stop when the log holds so many successful trials: configurations that were built "
        f"and timed [default: {TRIALS}, unless another limit is given].",
    )
    timeout: str | None = option(
        "--timeout",
        metavar="TIME",
        help="Stop this run after this time, the measurements at its end included: seconds, or "
        "90s, 30m, 8h.",
    )
    early_stopping: int | None = option(
        "--early-stopping",
        type=int,
        metavar="N",
        help="Stop after so many trials that brought nothing faster.",
    )
    gflops: float | None = option(
        "--gflops",
        of="workload",
        type=float,
        metavar="SPEED",
        help="Stop when the best kernel reaches this speed, in 1e9 floating point operations a "
        "second.",
    )
    per_task_early_stopping: int | None = option(
        "--per-task-early-stopping",
        type=int,
        metavar="N",
        help="Stop tuning a workload after so many of its trials that brought nothing faster.",
    )
    min_gain: str | None = option(
        "--min-gain",
        metavar="SHARE",
        help="Stop when another minute is expected to make the best faster by less than this: 1%, "
        "or 0.01.",
    )
    effort: str | None = option(
        "--effort",
        of="workload",
        type=click.Choice(["quick", "standard", "night"]),
        help="Limits that go together: quick measures 16 configurations, standard up to 256, night "
        "as many as 8 hours allow; the last two end earlier where nothing more is expected. "
        "Explicit options override the preset.",
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
    """Building and timing candidates."""

    number: int | None = option(
        "--number",
        type=int,
        metavar="N",
        help="Calls of a kernel in one sample, whose mean is the sample [default: as many as fit "
        "into 10 ms]. With --number, --repeat or --min-repeat-ms all three have AutoTVM's meaning, "
        "the others AutoTVM's defaults: 4, 3, 0.",
    )
    repeat: int | None = option(
        "--repeat",
        type=int,
        metavar="N",
        help="Samples of a kernel; their median is its time [default: up to 5].",
    )
    min_repeat_ms: float | None = option(
        "--min-repeat-ms",
        type=float,
        metavar="MS",
        help="A sample takes at least so many milliseconds; --number grows until it does.",
    )
    run_timeout: float | None = option(
        "--run-timeout",
        type=float,
        metavar="SECONDS",
        help="A kernel that runs longer has failed [default: 10; less once a faster one is known].",
    )
    build_timeout: float | None = option(
        "--build-timeout",
        type=float,
        metavar="SECONDS",
        help="A kernel that takes longer to compile has failed [default: 10].",
    )
    parallel: int | None = option(
        "--parallel",
        type=int,
        metavar="N",
        help="Processes that compile at the same time [default: one a core].",
    )
    device: str | None = option("--device", **DEVICE)

    def settings(self) -> MeasureOption | None:
        """Settings of measuring; None where nothing is given."""
        from loopwright.measure import LocalBuilder, LocalRunner, measure_option

        values = {name: value for name, value in vars(self).items() if value is not None}
        if not values:
            return None
        for name, value in values.items():
            if name != "device" and not 0 < value < math.inf:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} {value:g}: give a number above zero")
        builder = LocalBuilder(
            timeout=LocalBuilder.timeout if self.build_timeout is None else self.build_timeout,
            n_parallel=self.parallel,
        )
        runner = LocalRunner(
            timeout=LocalRunner.timeout if self.run_timeout is None else self.run_timeout,
            number=self.number,
            repeat=self.repeat,
            min_repeat_ms=self.min_repeat_ms,
            device=self.device or "",
        )
        return measure_option(builder, runner)


@dataclass(frozen=True)
class ScriptOptions:
    """Use in scripts."""

    as_json: bool = option(
        "--json",
        is_flag=True,
        help="At the end print the result as JSON on standard output; all else goes to standard "
        "error.",
    )
    fail_without_gain: bool = option(
        "--fail-without-gain",
        is_flag=True,
        help=f"Exit with code {NO_GAIN}, not 0, where nothing is measurably faster than the "
        "default configuration.",
    )


#: The option by which a run ended, by `Summary.stopped`, where the log keeps its limit reached.
_REACHED = {"early_stopping": "early_stopping", "target": "gflops", "min_gain": "min_gain"}


def going_on(
    stopped: str, asked: int | None, done: int, most: int | None
) -> tuple[int | None, str] | None:
    """The number of trials to ask for, so that an ended run goes on, and the parameter of the
    option to leave out, empty for none; None where it cannot go on.

    The number is the same as long as some are left, else twice as many, as far as there is room;
    None for no change. ``most`` trials have room, None where unknown.
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
    """The options of this command line that tunes into a log, to be written again: with another
    number of trials if not None, and without those of some parameters.
    """
    params = click.get_current_context().command.params
    left_out = {*without, "log", *(["trials"] if trials is not None else [])}
    options = {p.name or "" for p in params if isinstance(p, click.Option)} - left_out
    words = ["--log", log, *repeated(options)]
    return words if trials is None else [*words, "--trials", str(trials)]


def one_device() -> list[str]:
    """``--device`` with the first device of this command line, or nothing; for verbs that use
    one.
    """
    words = repeated(["device"])
    return [words[0], words[1].partition(",")[0].strip()] if words else []
