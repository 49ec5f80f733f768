"""The group of all verbs, and the handling of errors."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NoReturn

import click

from loopwright.cli import console
from loopwright.cli.console import harmless
from loopwright.errors import (
    InternalError,
    LoopwrightError,
    RecordError,
    UsageError,
    did_you_mean,
    plain_interrupts,
)
from loopwright.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Verbs(click.Group):
    """Loads the module of a verb when that verb is used, so that each starts quickly."""

    #: The file of each verb, whose function is named after the verb, and the verb's short help.
    modules: ClassVar[dict[str, tuple[str, str]]] = {
        "workloads": ("workloads", "List what can be tuned, and the parameters of each."),
        "tune": ("tune", "Search for the fastest configuration of a workload."),
        "tune-tasks": ("tune_tasks", "Tune several workloads with one budget and one log."),
        "records": (
            "records",
            "Inspect logs, and put them together: list, best, show, importance, pick.",
        ),
        "report": ("report", "Make a page of a log: curve, knobs, failures, the best."),
        "watch": ("watch", "Follow a tuning run from another terminal."),
        "dashboard": ("report", "Show the report page of logs that grow, in a browser."),
        "explain": ("explain", "Show what a cost model sees of a kernel, and what makes it fast."),
        "explain-error": ("doctor", "Explain why a trial failed: causes and next steps."),
        "analyze": ("explain", "Say what every stage of an expression is."),
        "lower": ("explain", "Print the loop nest, before and after the best record."),
        "build": ("build", "Compile the fastest kernel of a log into a file."),
        "run": ("run", "Check and time a file that `build` wrote."),
        "bench": ("bench", "Compare default, tuned and NumPy in one run."),
        "inspect": ("inspect", "Show what a model consists of, and where its time goes."),
        "devices": ("devices", "List devices with their measured limits."),
        "cache": ("cache", "Show what is kept on disk, or clear it."),
        "doctor": ("doctor", "Look for what keeps this machine from tuning well."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"loopwright.cli.{self.modules[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs and their short helps, without loading any verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.modules.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions for a verb or an option, without loading any verb."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name) for name in self.modules if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb, or an error that lists all verbs."""
        name = args[0]
        if name not in self.modules and not name.startswith("-"):
            hint = did_you_mean(name, self.modules)
            raise click.UsageError(
                f"unknown command {name!r}{hint}; there are {', '.join(self.modules)}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Search for the schedule that makes a tensor program fast on this machine. Begin with "
    "`loopwright tune dense M=1 N=1000 K=512 --trials 64`.",
)
@click.version_option(__version__, prog_name="loopwright")
@click.option(
    "--debug", is_flag=True, help="Show where an error came from (a traceback); may stand anywhere."
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Also report each round of a run; -vv: each trial; may stand anywhere.",
)
@click.option("--quiet", is_flag=True, help="Print results and errors only; may stand anywhere.")
def app(debug: bool, verbose: int, quiet: bool) -> None:
    """The command line of loopwright."""


def run(argv: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        level, args = console.split_verbosity(args)
        with _ended_like_interrupted(), plain_interrupts(), console.log_shown(level):
            code = app.main(
                args or ["--help"],
                prog_name=console.program_name(),
                complete_var="_LOOPWRIGHT_COMPLETE",
                standalone_mode=False,
                obj=level,
            )
        sys.stdout.flush()
    except SystemExit as error:
        # click itself ends so when the reader of our output has left.
        code = error.code
    except (Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, KeyboardInterrupt | click.Abort):
            traceback.print_exception(error)
        return _report(error)
    return code if isinstance(code, int) else 0


@contextmanager
def _ended_like_interrupted() -> Iterator[None]:
    """SIGTERM (from ``timeout``, a batch system, a container) and SIGHUP (a closed terminal) end a
    verb as Ctrl-C does; a signal that was ignored at the start (``nohup``) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]
    before = {n: signal.getsignal(n) for n in numbers}
    taken = [n for n in numbers if before[n] not in (signal.SIG_IGN, None)]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _interrupt(number: int, _: object) -> NoReturn:
    if number != signal.SIGTERM:  # SIGHUP, which Windows has not
        signal.signal(number, signal.SIG_IGN)  # the shell sends it, and the kernel once more
        for fd in (1, 2):
            try:
                os.write(fd, b"")
            except OSError:  # a closed terminal: further output is dropped, so that it cannot fail
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, fd)
                os.close(null)
    raise KeyboardInterrupt


def _report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx is not None else console.program_name()
        text = " ".join(error.format_message().split())
        return _say(f"{text} (see '{where} --help')", 2)
    if isinstance(error, click.ClickException):
        return _say(error.format_message(), error.exit_code)
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has left: there is nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, UsageError):
        return _say(str(error), 2)
    if isinstance(error, InternalError) or not isinstance(error, LoopwrightError | OSError):
        kind = "" if isinstance(error, InternalError) else f"{type(error).__name__}: "
        return _say(f"internal error: {kind}{error}; --debug shows the traceback", 1)
    absent = isinstance(error, RecordError) and isinstance(error.__cause__, FileNotFoundError)
    return _say(str(error), 2 if absent else 1)


def _say(text: str, code: int) -> int:
    print(f"error: {harmless(' '.join(text.split()))}", file=sys.stderr)
    return code
