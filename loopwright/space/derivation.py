"""Structures of an expression: every rule is asked; without any, it runs as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from loopwright import te
from loopwright.cost import DataDependent
from loopwright.errors import LoopwrightError, SpaceError, TargetError, TensorError, TimeLimitError
from loopwright.space.expression import tensor_program
from loopwright.space.registry import (
    RULES,
    ExpressionRule,
    SpaceRule,
    as_list,
    enter,
    rules_for,
    variants_by,
)
from loopwright.space.rules.programs_gpu import programs
from loopwright.space.rules.scans_cpu import scan_variants
from loopwright.space.rules.several_cpu import BUILT_IN, Composition, several
from loopwright.space.rules.tensor_core_gpu import tensor_cores
from loopwright.space.rules.transformed_cpu import transformed
from loopwright.space.structure import Sketch, Structure, Variants, kernels_of, structures_of
from loopwright.target import Target
from loopwright.time_limit import TEMPLATE_S, limited

_MEND = "; mend it, or leave it out with loopwright.space.remove_rule"


def _of_one_kernel(variants: Variants) -> ExpressionRule:
    """Rule that makes a structure of each variant of an expression that is one kernel."""
    return wraps(variants)(partial(structures_of, variants))


# A scan as the reduction that it is written as takes so much longer that others are not asked.
enter(SpaceRule("scans", _of_one_kernel(scan_variants), ("cpu",), stops=True))
enter(SpaceRule("products between transforms", transformed, ("cpu",), stops=True))
for _name, _variants in BUILT_IN.items():
    enter(SpaceRule(_name, _of_one_kernel(_variants), ("cpu",)))
enter(SpaceRule("several", several, ("cpu",)))
enter(SpaceRule("tensor cores", tensor_cores, ("gpu",), one_result=True))
enter(SpaceRule("programs of kernels", programs, ("gpu",)))
OWN_RULES = tuple(RULES.values())  #: those of loopwright


def structures(
    outputs: te.Tensor | Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """All structures of an expression for the target in force.

    Args:
        outputs: the results.
        args: the arguments in calling order.

    Returns:
        Structures of all rules, those of higher priority first; where none applies the naive
        schedule, without knobs.

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
    for t in [outputs] if isinstance(outputs, te.Tensor) else list(outputs):
        if not isinstance(t, te.Tensor) or not any(t is arg for arg in args):
            raise TensorError(f"structures: the result {t!r:.60} is not among the arguments")
    program = tensor_program(args)
    naive = Sketch(program.outputs, args)
    naive.why.append("no rule applies to this expression: every stage runs as it was written")
    unscheduled = naive.finished("naive")
    alternatives: list[Structure] = []
    for rule in rules_asked():
        if rule.one_result and len(program.outputs) > 1:
            continue
        ask = _kernel_structures if rule.scope == "kernel" else _expression_structures
        by_rule = ask(rule, program.outputs, args, unscheduled)
        alternatives += by_rule
        if by_rule and rule.stops:
            break
    return alternatives or [unscheduled]


def rules_asked() -> list[SpaceRule]:
    """Rules for the target in force, in the order in which they are asked; errors as of
    `structures`."""
    target = Target.current()
    rules = rules_for((target.kind, *target.keys))
    if not rules:
        raise TargetError(
            f"no rule knows structures for the target {target.kind}; register one with "
            "@loopwright.space_rule, or write a template"
        )
    return rules


def _expression_structures(
    rule: SpaceRule, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor], naive: Structure
) -> list[Structure]:
    """Structures of a rule, checked: it may be a user's."""
    by_rule = as_list(_guarded(rule, outputs, rule.function, list(outputs), list(args)))
    for structure in by_rule:
        if not isinstance(structure, Structure):
            raise SpaceError(f"{rule} returned {structure!r:.60}; return structures, or None")
        if structure.dag.hash != naive.dag.hash or structure.arg_ids != naive.arg_ids:
            raise SpaceError(f"{rule} made a structure of another expression or other arguments")
    return by_rule


def _kernel_structures(
    rule: SpaceRule, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor], _: Structure
) -> list[Structure]:
    """Structures of a kernel rule for the one kernel of an expression. Where there are several the
    rule is asked again when these are combined; this checks that all its variants can be scheduled,
    so that errors name this rule."""
    program = Composition(tuple(outputs), tuple(args), kernels_of(tuple(outputs)), {})
    for kernel in program.kernels:
        for variant in _guarded(rule, outputs, variants_by, rule, kernel):
            _guarded(rule, outputs, program.alone, kernel, variant)
    return structures_of(partial(variants_by, rule), outputs, args)


def _guarded(
    rule: SpaceRule, outputs: Sequence[te.Tensor], function: Callable[..., Any], *args: object
) -> Any:
    """Result of a function of a rule, limited in time; its errors name the rule."""
    try:
        return limited(TEMPLATE_S, str(rule), function, *args)
    except KeyboardInterrupt:
        raise
    except DataDependent as exc:
        raise SpaceError(
            f"{rule} asks for the value of a knob, whose symbol stands for all its candidates; "
            "make a structure for each case"
        ) from exc
    except (TimeLimitError, SpaceError) as exc:
        raise SpaceError(f"{rule} failed for {outputs[0].name!r}: {exc}{_MEND}") from exc
    except BaseException as exc:  # a user's rule: one that calls sys.exit ends nothing
        kind = "" if isinstance(exc, LoopwrightError) else f"{type(exc).__name__}: "
        text = " ".join(f"{kind}{exc}".split())
        raise SpaceError(f"{rule} failed for {outputs[0].name!r}: {text}{_MEND}") from exc
