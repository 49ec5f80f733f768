"""Rules of users that are asked about each kernel of an expression, and not about the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.errors import SpaceError
from loopwright.space.kernels import Kernel
from loopwright.space.registry import SpaceRule, rules_for
from loopwright.space.variant import Variant
from loopwright.target import Target


def kernel_rules() -> list[SpaceRule]:
    """Kernel rules for the target in force, in the order in which they are asked."""
    target = Target.current()
    return [r for r in rules_for((target.kind, *target.keys)) if r.scope == "kernel"]


def variants_by(rule: SpaceRule, kernel: Kernel) -> list[Variant]:
    """Variants of a rule for a kernel; any other result raises `SpaceError`."""
    function: Any = rule.function  # its scope says what it takes
    made = function(kernel)
    found = list(made) if isinstance(made, (list, tuple)) else [] if made is None else [made]
    for variant in found:
        if not isinstance(variant, Variant):
            raise SpaceError(
                f"the rule {rule.name!r} ({rule.where}) returned {variant!r:.60}; a rule for "
                "kernels returns loopwright.space.Variant, several, or None"
            )
    return found


def with_rules_of_users(kernel: Kernel, along: Callable[[], list[Variant]]) -> list[Variant]:
    """Variants of a kernel by all rules by priority; built-in ones, of ``along``, have 0."""
    found: list[Variant] = []
    asked_along = False
    for rule in kernel_rules():
        if rule.priority <= 0 and not asked_along:
            found += along()
            asked_along = True
        own = variants_by(rule, kernel)
        found += own
        if own and rule.stops:
            return found
    return found if asked_along else found + along()
