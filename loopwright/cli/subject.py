"""The subject of a command line: a workload or a model; some options are for one of both."""

from __future__ import annotations

from dataclasses import dataclass

import click

from loopwright.cli.model import ModelOptions, ModelSubject, find_model, is_model
from loopwright.cli.options import SubjectOption, TargetOptions, argument
from loopwright.cli.workload import WorkloadSubject, completed_workloads, find_workload
from loopwright.errors import UsageError


def _completed_parameters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completions after an operator: its parameters that are not given yet."""
    from loopwright import ops

    operator = ops.WORKLOADS.get(ctx.params.get("workload") or "")
    written = {word.partition("=")[0] for word in ctx.params.get("params") or ()}
    names = [] if operator is None else [n for n in operator.params if n not in written]
    return [f"{n}=" for n in names if f"{n}=".startswith(incomplete)]


def refuse_other_options(is_model: bool) -> None:
    """Refuse options of this command line that are for the other kind of subject."""
    mine, other = ("model", "workload") if is_model else ("workload", "model")
    context = click.get_current_context()
    names = [
        max(one.opts, key=len)
        for one in context.command.params
        if isinstance(one, SubjectOption)
        and one.of == other
        and _is_given(context.params[one.name or ""])
    ]
    if names:
        raise UsageError(f"{', '.join(names)}: for a {other}, not for a {mine}; leave it out")


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


@dataclass(frozen=True, kw_only=True)
class SubjectOptions(TargetOptions):
    """The words that name a subject, and its target."""

    workload: str = argument(shell_complete=completed_workloads)
    params: tuple[str, ...] = argument(
        nargs=-1, metavar="[KEY=VALUE]...", shell_complete=_completed_parameters
    )

    @property
    def is_model(self) -> bool:
        return is_model(self.workload)

    def find_workload(self) -> WorkloadSubject:
        return find_workload(self.workload, self.params, self.target, self.threads)

    def find_model(self, options: ModelOptions, *, new_layouts: bool = False) -> ModelSubject:
        target = TargetOptions(self.target, self.threads)
        return find_model(self.workload, self.params, target, options, new_layouts=new_layouts)

    def find(self, options: ModelOptions) -> WorkloadSubject | ModelSubject:
        """The subject; options for the other kind are refused."""
        refuse_other_options(self.is_model)
        return self.find_model(options) if self.is_model else self.find_workload()
