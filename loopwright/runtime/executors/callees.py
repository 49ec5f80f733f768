"""Callees of a program's steps: kernels whose constants are given, each prepared once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from loopwright.errors import ArgumentError
from loopwright.runtime.arrays.huge_pages import Arena
from loopwright.runtime.constants import InPlace
from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.program import Step
from loopwright.runtime.module import Module


class Callee(NamedTuple):
    """The callee of a step."""

    #: A kernel, with its constants given, or a Python function.
    function: Any
    #: Numbers of the values that are its constants.
    given: tuple[int, ...]
    #: Numbers of the values that it is called with.
    rest: tuple[int, ...]


def callees(
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    weights: Mapping[int, Any],
    before: Sequence[Callee] = (),
    changed: Collection[int] = (),
    shared: SharedArrays | None = None,
    in_place: Collection[int] = (),
) -> list[Callee]:
    """The callee of each step; steps with one kernel and the same constants share its results.

    Constants that kernels read lie side by side in huge pages. ``before`` are the callees for other
    weights (empty: prepare all), of which those in ``changed`` differ. Prepared arrays that equal
    one of ``shared`` are that array. Weights in ``in_place`` are not copied.
    """
    arena = Arena()
    kept = arena.copy_of if shared is None else partial(shared.one_of, copy=arena.copy_of)
    made: dict[tuple[object, ...], Any] = {}
    found = []
    for at, step in enumerate(steps):
        module, given, rest = split(step, kernels, weights)
        if before and not set(given) & set(changed):
            found.append(before[at])
            continue
        key = (step.kernel, *given)
        if key not in made:
            values = [InPlace(weights[n]) if n in in_place else weights[n] for n in given]
            made[key] = _with_constants(module, values, kept)
        found.append(Callee(made[key], given, rest))
    return found


def _with_constants(
    module: Module | HostStep, given: Sequence[Any], kept: Callable[[Any], Any]
) -> Any:
    """A kernel with its constants; a Python function reads all its arguments in every call."""
    if isinstance(module, HostStep) or not given:
        return module
    made = module.with_constants(*given)
    made.exchange(kept)
    return made


def split(
    step: Step, kernels: Mapping[str, Module | HostStep], weights: Collection[int]
) -> tuple[Module | HostStep, tuple[int, ...], tuple[int, ...]]:
    """The kernel of a step, the values that are its constants, and the others.

    ArgumentError where the kernel is missing, or takes other values than the program gives.
    """
    if step.kernel not in kernels:
        raise ArgumentError(f"kernel {step.kernel!r} is missing")
    module = kernels[step.kernel]
    if isinstance(module, HostStep):
        return module, (), step.args
    args = module.artifact.contents.function(module.entry_name).args
    if len(args) != len(step.args):
        raise ArgumentError(
            f"kernel {step.kernel!r} has {len(args)} arguments, the program gives {len(step.args)}"
        )
    pairs = list(zip(args, step.args, strict=True))
    for arg, n in pairs:
        if arg.constant and n not in weights:
            raise ArgumentError(
                f"kernel {step.kernel!r} takes {arg.name!r} as a constant, the program gives value "
                f"{n}, which is none; build the kernel without it"
            )
    given = tuple(n for arg, n in pairs if arg.constant)
    return module, given, tuple(n for arg, n in pairs if not arg.constant)
