"""Callbacks at the beginning of a search: measured states, and custom rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from loopwright import records
from loopwright.auto_scheduler.loop_state import State
from loopwright.errors import InternalError, SpaceError
from loopwright.space import AutomaticTask, Sketch, SpaceRule, Structure, remove_rule
from loopwright.space.registry import RULES, enter

if TYPE_CHECKING:
    from loopwright.te import Tensor


class SearchCallback:
    """The base of ``init_search_callbacks`` of a search."""


class PreloadMeasuredStates(SearchCallback):
    """Begin a search with the trials of a log: the model learns from them; none is measured again.

    A search continues its own log without this callback, too. The lines of another log are first
    copied into its own, or kept in memory if it has none.

    Args:
        filename: the log.

    Raises:
        RecordError: it does not exist, or holds no record.

    Example:
        >>> from loopwright import auto_scheduler
        >>> print(auto_scheduler.PreloadMeasuredStates("matmul.jsonl").filename)
        matmul.jsonl
    """

    def __init__(self, filename: str = "auto_scheduler_tuning.json") -> None:
        records.load(filename)
        self.filename = filename


class PreloadCustomSketchRule(SearchCallback):
    """A custom rule for one search; `loopwright.space_rule` registers one for all.

    Args:
        meet_condition_func: called ``f(policy, state, stage_id)`` for every stage, the last first;
            returns `PASS`, `APPLY`, or `APPLY_AND_SKIP_REST`, with which the structures of other
            rules are left out.
        apply_func: called in the same way where the rule applies; returns pairs of a state and the
            next stage. Each state is one structure; open lengths of its splits are knobs. The
            rules of loopwright schedule an expression as a whole, so the next stage is ignored.
        rule_name: its name in records.

    Example:
        >>> from loopwright import auto_scheduler
        >>> A = te.placeholder((16, 64), name="A")
        >>> B = te.compute((16, 64), lambda i, j: A[i, j] + 1, name="B")
        >>> dag = auto_scheduler.ComputeDAG([A, B])
        >>> task = auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> def condition(policy, state, stage_id):
        ...     rule = auto_scheduler.PreloadCustomSketchRule
        ...     return rule.APPLY_AND_SKIP_REST if stage_id == 1 else rule.PASS
        ...
        >>> def halves(policy, state, stage_id):
        ...     new = state.copy()
        ...     outer, inner = new.split(stage_id, 1, [None])
        ...     new.vectorize(stage_id, inner)
        ...     return [[new.state_object, -1]]
        ...
        >>> rule = auto_scheduler.PreloadCustomSketchRule(condition, halves, "halves")
        >>> policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
        >>> print([str(structure) for structure in policy.structures])
        ['halves (7 configurations)']
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self,
        meet_condition_func: Callable[[Any, State, int], int],
        apply_func: Callable[[Any, State, int], Sequence[Sequence[Any]]],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func = meet_condition_func, apply_func
        self.rule_name = rule_name


def space_rule_of(policy: Any, custom: PreloadCustomSketchRule) -> SpaceRule:
    """A rule of loopwright from a user's rule, whose functions get ``policy``."""
    task, places = policy.task.automatic_task, policy.task.compute_dag.places

    def initial(outputs: Sequence[Tensor], args: Sequence[Tensor]) -> State:
        return State(_no_schedule, places, sketch=lambda: Sketch(outputs, args))

    probe = initial(task.program.outputs, task.program.args)
    said = {
        stage: custom.meet_condition_func(policy, probe.copy(), stage)
        for stage in reversed(range(len(probe.stages)))
    }

    def rule(outputs: Sequence[Tensor], args: Sequence[Tensor]) -> list[Structure]:
        found: list[State] = []
        for stage in (n for n, answer in said.items() if answer != custom.PASS):
            made = custom.apply_func(policy, initial(outputs, args), stage)
            found += [state for state, *_ in made]
        return [_finished(state, custom.rule_name, number) for number, state in enumerate(found)]

    stops = custom.APPLY_AND_SKIP_REST in said.values()
    return rule_of(task, custom.rule_name, rule, stops)


def _finished(state: Any, name: str, number: int) -> Structure:
    """A structure from a state of a user's rule."""
    if not isinstance(state, State) or state.sketch is None:
        raise SpaceError(
            f"the rule {name!r} returned {state!r:.40}; return pairs of a copy of the state that "
            "it was given and a number"
        )
    state.sketch.why.append(f"PreloadCustomSketchRule {name!r}")
    return state.sketch.finished(name if not number else f"{name} {number}")


def _no_schedule() -> Any:
    raise InternalError("a state over a sketch has its schedule from there")


def rule_of(task: AutomaticTask, name: str, rule: Any, stops: bool) -> SpaceRule:
    """A rule that is asked before the built-in ones."""
    return SpaceRule(f"auto_scheduler/{name}", rule, (task.kind,), 1_000, stops)


def with_rules(task: AutomaticTask, rules: Sequence[SpaceRule]) -> AutomaticTask:
    """A copy of the task, with the structures of other rules."""
    with ExitStack() as stack:
        for rule in rules:
            stack.enter_context(_entered(rule))
        return AutomaticTask(task.template, task.args, task.target)


@contextmanager
def _entered(rule: SpaceRule) -> Iterator[None]:
    """Register a rule for the duration of the context."""
    before = RULES.pop(rule.name, None)
    enter(rule)
    try:
        yield
    finally:
        remove_rule(rule.name)
        if before is not None:
            enter(before)
