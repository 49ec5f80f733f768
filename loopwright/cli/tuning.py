"""What the verbs that tune share: the choice of a tuner, and the command to continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.errors import UsageError, did_you_mean
from loopwright.records import Json
from loopwright.tuner import DEFAULT_TUNER, TUNERS, find_tuner

if TYPE_CHECKING:
    from loopwright.tuner import Tuner

#: Trials when no limit is given, for each task.
TRIALS = 200
#: Exit code of ``--fail-without-gain``.
NO_GAIN = 4


def _options() -> str:
    """Which tuner has which options, as a sentence for each."""
    parts = [f"{name}: {', '.join(kind.Options.names())}." for name, kind in TUNERS.items()]
    return " ".join(parts)


def tuner_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options that say which tuner searches, and from which seed."""
    decorators = (
        click.option(
            "--tuner",
            default=DEFAULT_TUNER,
            show_default=True,
            metavar="NAME",
            help=f"Tuner: {', '.join(TUNERS)}.",
        ),
        click.option(
            "-O",
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help=f"Option of the tuner, such as plan_size=32. {_options()}",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of the tuner."),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def script_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options for scripts: a summary as JSON, and an exit code that tells of a gain."""
    decorators = (
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print a summary as JSON on standard output at the end, all else on the other.",
        ),
        click.option(
            "--fail-without-gain",
            is_flag=True,
            help=f"Exit with {NO_GAIN} where nothing is measurably faster than the default.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def chosen_tuner(name: str, words: Sequence[str]) -> tuple[type[Tuner], dict[str, Json]]:
    """The tuner of a name, and its options by name.

    Raises:
        UsageError: there is no such tuner, or it has no such option; the message names those that
            there are.
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


def repeated(names: Sequence[str]) -> list[str]:
    """Those of the named options that this command line gave, to be written again."""
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
