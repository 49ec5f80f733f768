"""The option ``--device`` of the verbs that run kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.errors import UsageError, did_you_mean
from loopwright.records import Json
from loopwright.tuner import DEFAULT_TUNER, TUNERS, find_tuner

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from loopwright.measure import MeasureOption
    from loopwright.tuner import Tuner


#: Names devices; see `loopwright.measure.LocalRunner`.
device_option = click.option(
    "--device",
    metavar="NAMES",
    help="The device that kernels run on, such as opencl:0. Where many are measured, several equal "
    "ones with commas share them [default: the first of the target's kind]. `loopwright devices` "
    "lists them.",
)


#: Files of the kind that is written are replaced without it; see `loopwright.files`.
force_option = click.option(
    "--force", is_flag=True, help="Replace a file that is there, whatever it is."
)


#: Trials when no limit is given, for each task.
TRIALS = 200
#: Exit code of ``--fail-without-gain``.
NO_GAIN = 4


def _completed_tuners(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in TUNERS if name.startswith(incomplete)]


def _options() -> str:
    """A sentence for each tuner about its options."""
    parts = [f"{name}: {', '.join(kind.Options.names())}." for name, kind in TUNERS.items()]
    return " ".join(parts)


def tuner_options(command: Callable[..., object]) -> Callable[..., object]:
    decorators = (
        click.option(
            "--tuner",
            default=DEFAULT_TUNER,
            show_default=True,
            metavar="NAME",
            shell_complete=_completed_tuners,
            help="Who chooses what to measure next. xgb: a model that learns from the results; ga: "
            "a genetic search; random; grid: all in order.",
        ),
        click.option(
            "-O",
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help=f"An option of the tuner, such as plan_size=32. {_options()}",
        ),
        click.option(
            "--seed",
            type=int,
            default=0,
            show_default=True,
            metavar="N",
            help="Another number gives the tuner other random choices.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


#: Options of `measuring_options` by the names of their parameters.
MEASURING = (
    *("number", "repeat", "min_repeat_ms", "run_timeout", "build_timeout", "parallel"),
    "device",
)
#: Argument of `measuring`: values by the names in `MEASURING`.
MeasuringOptions = Mapping[str, float | str | None]


def measuring_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options for building and timing candidates; read by `measuring`."""
    decorators = (
        click.option(
            "--number",
            type=int,
            metavar="N",
            help="Calls of a kernel in one sample, whose mean is the sample [default: as many as "
            "fit into 10 ms]. With --number, --repeat or --min-repeat-ms all three have AutoTVM's "
            "meaning, the others AutoTVM's defaults: 4, 3, 0.",
        ),
        click.option(
            "--repeat",
            type=int,
            metavar="N",
            help="Samples of a kernel; their median is its time [default: up to 5].",
        ),
        click.option(
            "--min-repeat-ms",
            type=float,
            metavar="MS",
            help="A sample takes at least so many milliseconds; --number grows until it does.",
        ),
        click.option(
            "--run-timeout",
            type=float,
            metavar="SECONDS",
            help="A kernel that runs longer has failed [default: 10; less once a faster one is "
            "known].",
        ),
        click.option(
            "--build-timeout",
            type=float,
            metavar="SECONDS",
            help="A kernel that takes longer to compile has failed [default: 10].",
        ),
        click.option(
            "--parallel",
            type=int,
            metavar="N",
            help="Processes that compile at the same time [default: one a core].",
        ),
        device_option,
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def measuring(given: MeasuringOptions) -> MeasureOption | None:
    """Settings of measuring from the options of `measuring_options`; None without any."""
    from loopwright.measure import LocalBuilder, LocalRunner, measure_option

    if all(value is None for value in given.values()):
        return None
    chosen = {name: v for name, v in given.items() if isinstance(v, int | float)}
    for name, value in chosen.items():
        if not 0 < value < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {value:g}: give a number above zero")
    builder = LocalBuilder(
        timeout=chosen.get("build_timeout", LocalBuilder.timeout),
        n_parallel=_whole(chosen.get("parallel")),
    )
    runner = LocalRunner(
        timeout=chosen.get("run_timeout", LocalRunner.timeout),
        number=_whole(chosen.get("number")),
        repeat=_whole(chosen.get("repeat")),
        min_repeat_ms=chosen.get("min_repeat_ms"),
        device=str(given.get("device") or ""),
    )
    return measure_option(builder, runner)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def script_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options for scripts: a summary as JSON, and an exit code that depends on the gain."""
    decorators = (
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="At the end print the result as JSON on standard output; all else goes to "
            "standard error.",
        ),
        click.option(
            "--fail-without-gain",
            is_flag=True,
            help=f"Exit with code {NO_GAIN}, not 0, where nothing is measurably faster than the "
            "default configuration.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def chosen_tuner(name: str, words: Sequence[str]) -> tuple[type[Tuner], dict[str, Json]]:
    """The tuner of a name, and its options by name; the message on unknown names lists the
    known.
    """
    kind = find_tuner(name)
    names = kind.Options.names()
    given: dict[str, Json] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not text:
            raise UsageError(f"--option {word!r}: write it as name=value, such as plan_size=32")
        if key not in names:
            raise UsageError(
                f"the tuner {name} has no option {key!r}{did_you_mean(key, names)}; "
                f"it takes {', '.join(names)}"
            )
        if key in given:
            raise UsageError(f"--option {key} is given twice; give it once")
        given[key] = _value(text)
    return kind, given


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


def repeated(names: Sequence[str]) -> list[str]:
    """The named options that this command line gave, to be written again."""
    context = click.get_current_context()
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not given or name not in names:
            continue
        value = context.params[name]
        option = max(parameter.opts, key=len)
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(option)
            continue
        for one in value if parameter.multiple else [value]:
            words += [option, str(one)]
    return words


def one_device() -> list[str]:
    """``--device`` with the first device of this command line, or nothing; for verbs that
    use one.
    """
    words = repeated(["device"])
    return [words[0], words[1].partition(",")[0].strip()] if words else []
