"""Structures of an expression: every rule is asked; without any, it runs as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loopwright import te
from loopwright.cost.symbolic.symbols import DataDependent
from loopwright.errors import LoopwrightError, SpaceError, TargetError, TensorError, TimeLimitError
from loopwright.space.expression import tensor_program
from loopwright.space.registry import SpaceRule, enter, rules_for, variants_by
from loopwright.space.rules.contraction_cpu import contractions
from loopwright.space.rules.dot_instructions_cpu import dot_instructions
from loopwright.space.rules.injective_cpu import injective
from loopwright.space.rules.programs_gpu import programs
from loopwright.space.rules.rows_cpu import rows, whole
from loopwright.space.rules.scans_cpu import scans
from loopwright.space.rules.several_cpu import Composition, several
from loopwright.space.rules.tensor_core_gpu import tensor_cores
from loopwright.space.rules.transformed_cpu import transformed
from loopwright.space.rules.windows_cpu import windows
from loopwright.space.sketch import Sketch, kernels_of, structures_of
from loopwright.space.structure import Structure
from loopwright.target import Target
from loopwright.time_limit import TEMPLATE_S, limited

# A scan as the reduction that it is written as takes so much longer that others are not asked.
enter(SpaceRule("scans", scans, ("cpu",), stops=True))
enter(SpaceRule("products between transforms", transformed, ("cpu",), stops=True))
for _name, _rule in {
    "dot instructions": dot_instructions,
    "contractions": contractions,
    "windows": windows,
    "whole": whole,
    "rows": rows,
    "injective": injective,
    "several": several,
}.items():
    enter(SpaceRule(_name, _rule, ("cpu",)))
enter(SpaceRule("tensor cores", tensor_cores, ("gpu",), one_result=True))
enter(SpaceRule("programs of kernels", programs, ("gpu",)))


def structures(
    outputs: te.Tensor | Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """All structures of an expression for the target in force.

    Args:
        outputs: the results.
        args: the arguments in calling order.

    Returns:
        Structures of all rules, those of higher priority first. Where none applies, one structure
        without knobs, the naive schedule; its ``why`` says so.

    Raises:
        TensorError: a result is an input, or a size is not known.
        TargetError: there are no rules for the target.
        SpaceError: a rule raised, took too long, or returned other things than structures of this
            expression.

    Example:
        >>> X = te.placeholder((64, 1000), name="X")
        >>> k = te.reduce_axis((0, 1000), name="k")
        >>> Y = te.compute((64,), lambda i: te.max(te.abs(X[i, k]), axis=k), name="Y")
        >>> with lw.Target("llvm -mcpu=x86-64-v3"):
        ...     for structure in lw.space.structures(Y, [X, Y]):
        ...         print(structure.name)
        ...
        rows in cache
        dot products, one thread
        dot products
    """
    given = [outputs] if isinstance(outputs, te.Tensor) else list(outputs)
    for t in given:
        if not isinstance(t, te.Tensor) or not any(t is arg for arg in args):
            raise TensorError(f"structures: the result {t!r:.60} is not among the arguments")
    program = tensor_program(args)
    naive = _naive(program.outputs, args)
    found: list[Structure] = []
    for rule in _rules():
        if rule.one_result and len(program.outputs) > 1:
            continue
        asked = _asked_about_kernels if rule.scope == "kernel" else _asked
        own = asked(rule, program.outputs, args, naive)
        found += own
        if own and rule.stops:
            break
    return found or [naive]


def _rules() -> list[SpaceRule]:
    target = Target.current()
    rules = rules_for((target.kind, *target.keys))
    if not rules:
        raise TargetError(
            f"no rule knows structures for the target {target.kind}; register one with "
            "@loopwright.space_rule, or write a template"
        )
    return rules


def _asked(
    rule: SpaceRule, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor], naive: Structure
) -> list[Structure]:
    """Structures of a rule, checked: it may be a user's."""
    what = f"the rule {rule.name!r} ({rule.where})"
    made: Any = _guarded(rule, outputs, rule.function, list(outputs), list(args))
    found = list(made) if isinstance(made, (list, tuple)) else [] if made is None else [made]
    for structure in found:
        if not isinstance(structure, Structure):
            raise SpaceError(f"{what} returned {structure!r:.60}; return structures, or None")
        if structure.dag.hash != naive.dag.hash or structure.arg_ids != naive.arg_ids:
            raise SpaceError(f"{what} made a structure of another expression or other arguments")
    return found


def _asked_about_kernels(
    rule: SpaceRule, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor], naive: Structure
) -> list[Structure]:
    """Structures of a kernel rule for the one kernel of an expression.

    Where there are several the rule is asked again when these are combined; this checks that all
    its variants can be scheduled, so that errors name this rule.
    """
    program = Composition(tuple(outputs), tuple(args), kernels_of(tuple(outputs)), {})
    for kernel in program.kernels:
        for variant in _guarded(rule, outputs, variants_by, rule, kernel):
            _guarded(rule, outputs, program.alone, kernel, variant)
    return structures_of(partial(variants_by, rule), outputs, args)


def _guarded(
    rule: SpaceRule, outputs: Sequence[te.Tensor], function: Callable[..., Any], *args: object
) -> Any:
    """Result of a function of a rule, limited in time; its errors name the rule."""
    what = f"the rule {rule.name!r} ({rule.where})"
    try:
        return limited(TEMPLATE_S, what, function, *args)
    except KeyboardInterrupt:
        raise
    except DataDependent as exc:
        raise SpaceError(
            f"{what} asks for the value of a knob, whose symbol stands for all its candidates; "
            "make a structure for each case"
        ) from exc
    except (TimeLimitError, SpaceError) as exc:
        raise SpaceError(f"{what} failed for {outputs[0].name!r}: {exc}{_MEND}") from exc
    except BaseException as exc:  # a user's rule: one that calls sys.exit ends nothing
        kind = "" if isinstance(exc, LoopwrightError) else f"{type(exc).__name__}: "
        text = " ".join(f"{kind}{exc}".split())
        raise SpaceError(f"{what} failed for {outputs[0].name!r}: {text}{_MEND}") from exc


_MEND = "; mend it, or leave it out with loopwright.space.remove_rule"


def _naive(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> Structure:
    sketch = Sketch(outputs, args)
    sketch.why.append("no rule applies to this expression: every stage runs as it was written")
    return sketch.finished("naive")
