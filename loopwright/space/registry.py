"""Rules of automatic spaces by name: built-in ones, and those of users."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from loopwright import te
from loopwright.errors import SpaceError, did_you_mean
from loopwright.space.kernels import Kernel
from loopwright.space.structure import Structure, Variant
from loopwright.target import Target

#: A rule: the structures that it knows for some results and arguments, none where it knows none.
ExpressionRule: TypeAlias = Callable[
    [Sequence[te.Tensor], Sequence[te.Tensor]], "Sequence[Structure] | Structure | None"
]
#: A rule for kernels: variants of one.
KernelRule: TypeAlias = Callable[["Kernel"], "Sequence[Variant] | Variant | None"]
Rule: TypeAlias = "ExpressionRule | KernelRule"
SCOPES = ("expression", "kernel")  #: units that rules may be asked about
_SCOPES = " and ".join(map(repr, SCOPES))
#: Families and kinds of targets whose expressions are cut into kernels.
_WITH_KERNELS = {"cpu", "llvm", "c", "interp"}
_R = TypeVar("_R", bound="Rule")
RULES: dict[str, SpaceRule] = {}  #: all rules by name


@dataclass(frozen=True)
class SpaceRule:
    """Registered rule: a function, and the arguments of `space_rule` for it.

    Example:
        >>> rule = lw.space.SpaceRule("none", lambda outputs, args: None, priority=5)
        >>> print(rule.targets, rule.priority, rule.stops)
        ('cpu',) 5 False
    """

    name: str
    function: Rule
    targets: tuple[str, ...] = ("cpu",)
    priority: int = 0  #: that of built-in rules; `space_rule` gives 10
    stops: bool = False
    one_result: bool = False  #: whether it is asked only about expressions of one result
    scope: str = "expression"

    @property
    def where(self) -> str:
        """``file:line`` of the function."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else "?"

    def __str__(self) -> str:
        return f"the rule {self.name!r} ({self.where})"


def space_rule(
    name: str,
    *,
    targets: str | Sequence[str] = ("cpu",),
    priority: int = 10,
    stops: bool = False,
    scope: str = "expression",
) -> Callable[[_R], _R]:
    """Register a function that gives structures of some expressions, or variants of some kernels.

    It is called ``rule(outputs, args)`` with the results and the arguments in calling order, the
    target in force, and returns a structure, several, or None. `loopwright.space.Sketch` makes
    them; `loopwright.space.analyze` classifies every stage.

    With ``scope="kernel"`` it is called ``rule(kernel)`` for each `loopwright.space.Kernel` of an
    expression, even a single one, and returns a `loopwright.space.Variant`, several, or None: other
    kernels of the expression are scheduled by other rules. Kernels are those of CPUs.

    Args:
        name: its name in messages; a definition that is run again replaces the former.
        targets: families of targets for which it is asked: ``"cpu"``, ``"gpu"``, or a kind such as
            ``"llvm"``.
        priority: rules of higher priority are asked first; built-in ones have 0.
        stops: rules of lower priority are skipped where this one gives a structure.
        scope: ``"expression"``, or ``"kernel"``.

    Raises:
        SpaceError: another function has the name, or none is given; the scope is unknown, or does
            not fit the targets.

    Example:
        >>> @lw.space_rule("example/halves")
        ... def halves(outputs, args):
        ...     sketch = lw.space.Sketch(outputs, args)
        ...     sketch.why.append("one half for each of two threads")
        ...     i = outputs[0].op.axis[0]
        ...     outer, inner = sketch.s[outputs[0]].split(i, nparts=2)
        ...     sketch.s[outputs[0]].parallel(outer)
        ...     return sketch.finished("halves")
        ...
        >>> X = te.placeholder((64,), name="X")
        >>> Y = te.compute((64,), lambda i: X[i] * 2, name="Y")
        >>> with lw.Target("llvm"):
        ...     print(lw.space.structures(Y, [X, Y])[0])
        ...
        halves (1 configurations)
        >>> lw.space.remove_rule("example/halves")
    """

    if not isinstance(name, str):
        raise SpaceError('a rule needs a name: write @loopwright.space_rule("mine/name")')
    families = (targets,) if isinstance(targets, str) else tuple(targets)
    if scope not in SCOPES:
        near = did_you_mean(scope, SCOPES) if isinstance(scope, str) else ""
        raise SpaceError(f"rule {name!r}: unknown scope {scope!r:.60}{near}; there are {_SCOPES}")
    if scope == "kernel" and not set(families) <= _WITH_KERNELS:
        raise SpaceError(
            f"rule {name!r}: rules for kernels are asked on CPUs, not for {', '.join(families)}; "
            'leave scope="kernel" out'
        )

    def register(function: _R) -> _R:
        enter(SpaceRule(name, function, families, priority, stops, scope=scope))
        return function

    return register


def enter(rule: SpaceRule) -> None:
    """Register a rule; `SpaceError` if another function has the name."""
    before = RULES.get(rule.name)
    if before is not None and _origin(before.function) != _origin(rule.function):
        raise SpaceError(f"rule {rule.name!r} is defined at {before.where} already; rename one")
    RULES[rule.name] = rule


def remove_rule(name: str) -> None:
    """Unregister a rule.

    Raises:
        SpaceError: there is no rule of this name.
    """
    if name not in RULES:
        raise SpaceError(f"there is no rule {name!r}; there are: {', '.join(sorted(RULES))}")
    del RULES[name]


def rules_for(keys: Sequence[str]) -> list[SpaceRule]:
    """Rules for a target with some keys, in the order in which they are asked."""
    fitting = [rule for rule in RULES.values() if set(rule.targets) & set(keys)]
    return sorted(fitting, key=lambda rule: -rule.priority)


def _origin(function: Rule) -> tuple[object, object]:
    """Key that is equal for repeated definitions of one function."""
    code = getattr(function, "__code__", None)
    return getattr(function, "__qualname__", None), code and code.co_filename


def variants_by(rule: SpaceRule, kernel: Kernel) -> list[Variant]:
    """Variants of a rule for a kernel; any other result raises `SpaceError`."""
    function: Any = rule.function  # its scope says what it takes
    variants = as_list(function(kernel))
    for variant in variants:
        if not isinstance(variant, Variant):
            raise SpaceError(
                f"{rule} returned {variant!r:.60}; a rule for kernels returns "
                "loopwright.space.Variant, several, or None"
            )
    return variants


def as_list(answer: Any) -> list[Any]:
    """Answer of a rule, which may be one thing, several, or None, as a list."""
    return list(answer) if isinstance(answer, (list, tuple)) else [] if answer is None else [answer]


def with_rules_of_users(kernel: Kernel, built_in: Callable[[], list[Variant]]) -> list[Variant]:
    """Variants of a kernel by all rules by priority; built-in ones, ``built_in``, have 0."""
    target = Target.current()
    rules = [r for r in rules_for((target.kind, *target.keys)) if r.scope == "kernel"]
    before = sum(r.priority > 0 for r in rules)
    variants: list[Variant] = []
    for rule in (*rules[:before], None, *rules[before:]):  # None: the built-in ones
        by_rule = built_in() if rule is None else variants_by(rule, kernel)
        variants += by_rule
        if by_rule and rule is not None and rule.stops:
            break
    return variants
