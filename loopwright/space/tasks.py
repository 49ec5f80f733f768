"""Workloads: functions that return tensors and no schedule, and their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from loopwright import te
from loopwright.errors import LoopwrightError, TaskError, TimeLimitError
from loopwright.records import Json
from loopwright.schedule import create_schedule, replay
from loopwright.space.derivation import OWN_RULES, rules_asked, structures
from loopwright.space.expression import TensorProgram, tensor_program
from loopwright.space.kept import kept_defaults, key_of
from loopwright.space.ranking import Ranked, put_together, ranked
from loopwright.space.registry import SpaceRule
from loopwright.space.rules.several_cpu import Composed
from loopwright.space.structure import TemplateStructure
from loopwright.task import (
    TASKS,
    UNNAMED,
    ConfigEntity,
    ConfigSpace,
    Function,
    Scheduled,
    SpaceUnion,
    TargetLike,
    Task,
    Template,
    TemplateConfig,
    enter,
    lookup,
    resolve_target,
    running,
    running_config,
    schedule_for,
    task_of,
)
from loopwright.task import create_task as create_registered
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task import Scheduler


EXPRESSION = "expression"  #: name of a workload given as tensors instead of a function


class AutomaticTask(Task):
    """Tuning task of an expression for a target, in all structures that rules know for it.

    It equals any other task that computes the same for the same kind of target; name and arguments
    are labels only. Its space is derived when somebody asks for it: a record's trace, or that of
    the default as an earlier process kept it, needs none. Rules and templates of users are asked at
    once. `loopwright.create_task` makes it, and has its arguments; attributes and errors
    are those of `loopwright.Task`.

    Attributes:
        program: results and arguments of the expression.

    Example:
        >>> def scaled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 2, name="Y")]
        ...
        >>> task = lw.create_task(scaled, (4096,), "llvm")
        >>> print(task.automatic, [t.name for t in task.program.args])
        True ['X', 'Y']
    """

    automatic = True
    program: TensorProgram
    _rules: list[SpaceRule] | None  # those that its space is of; None: it was set

    def __init__(
        self,
        name: str | Template | Callable[..., Any],
        args: Iterable[Json] = (),
        target: TargetLike = None,
        templates: Iterable[Task | Sequence[Json]] = (),
    ) -> None:
        if isinstance(templates, str) or not isinstance(templates, Iterable):
            raise TaskError(f"templates: expected a list of them, got {templates!r:.60}")
        self._templates = tuple(templates)
        super().__init__(name, args, target)

    def __str__(self) -> str:
        if self.name != EXPRESSION:
            return super().__str__()
        results = (f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.program.outputs)
        return f"expression of {', '.join(results)}"

    @property
    def structures(self) -> tuple[Scheduler, ...]:
        """Structures in the order of their rules, then those that combine the predicted best of
        several kernels."""
        return self._union.parts

    @cached_property
    def ranking(self) -> tuple[tuple[int, float], ...]:
        """Most promising point of every structure by the analytical model, as its index and its
        predicted share of the peak, best first; nothing is measured."""
        numbers = {id(part): number for number, part in enumerate(self.structures)}
        both = sorted([*self._ranked_singly, *self._together], key=lambda r: -r.speed)
        begins = [self._union.offsets[numbers[id(r.structure)]] for r in both]
        return tuple(
            (n + (r.config.index or 0), r.speed) for n, r in zip(begins, both, strict=True)
        )

    @cached_property
    def _ranked_singly(self) -> list[Ranked]:
        given = self._union.given
        if self.by_hand is not None:
            name = f"template {self.by_hand}"
            given = tuple(
                s for s in given if not isinstance(s, TemplateStructure) or s.name != name
            )
        with self.target:
            return ranked(given)

    @cached_property
    def _together(self) -> list[Ranked]:
        if not any(isinstance(part, Composed) and part.others for part in self._union.given):
            return []
        with self.target:
            return put_together(self._ranked_singly)

    def part(self, config: ConfigEntity) -> tuple[Scheduler, ConfigEntity]:
        """Structure of a configuration, and the configuration in its space."""
        number, local = self._union.place_of(config)
        return self.structures[number], local

    @property
    def _union(self) -> SpaceUnion:
        assert isinstance(self.config_space, SpaceUnion)
        return self.config_space

    @property
    def dag_hashes(self) -> tuple[str, ...]:
        """Hashes of the expressions whose records apply; see `loopwright.Task.dag_hashes`."""
        return tuple(self._expressions)

    def expression(self, dag_hash: str = "") -> Scheduled:
        """Unscheduled expression with this hash, and its arguments; see `Task.expression`."""
        schedule, args = self._expressions[dag_hash or self.dag_hash]
        return schedule.copy(), list(args)

    @cached_property
    def _expressions(self) -> dict[str, Scheduled]:
        """Its own expression, and that of former versions of its workload, by hash."""
        expressions, former = {self.dag_hash: self._own}, getattr(self.template, "former", None)
        if former is not None:
            schedule, args = _unscheduled(tensor_program(former(*self.args)))
            expressions[schedule.dag.hash] = (schedule, args)
        return expressions

    def default(self) -> Scheduled:
        """Schedule of the default configuration, and its arguments; errors as of `instantiate`.

        Its trace is kept on disk, as ``LOOPWRIGHT_CACHE`` says, and taken from there.
        """
        kept = kept_defaults()
        key = None if kept is None else self._key_of_default
        if kept is None or key is None:
            return super().default()
        trace = kept.get(key)
        if trace is not None:
            with suppress(LoopwrightError):  # not written by this program: it counts as missing
                return self._replayed(trace)
        schedule, args = super().default()
        kept.put(key, schedule.trace_json())
        return schedule, args

    def _replayed(self, trace: list[Json]) -> Scheduled:
        schedule, args = self._own
        again = replay(schedule.dag, trace)
        return again, [again.tensor(a) for a in schedule.arg_ids(args)]

    @property
    def _key_of_default(self) -> str | None:
        """Key on disk; None where the default is known here, or more than a key tells decides."""
        derived = "_derived" in self.__dict__
        ranked_before = "_ranked_singly" in self.__dict__  # perhaps for other threads
        if self._templates or ranked_before or (derived and self._union.has_default):
            return None
        with self.target:
            rules = self._rules if derived else rules_asked()
        if rules is None:
            return None
        schedule, args = self._own
        return key_of(self.dag_hash, schedule.arg_ids(args), self.target, rules)

    @cached_property
    def by_hand(self) -> Task | None:
        """Task of its workload's template by hand; see `loopwright.Task.by_hand`."""
        template = getattr(self.template, "by_hand", None)
        return None if template is None else Task(template, self.args, self.target)

    def _alias(self) -> str:
        return self.key

    def _run(self, config: TemplateConfig) -> Scheduled:
        assert isinstance(config, ConfigEntity)
        structure, local = self.part(config)
        with self.target:
            return structure.instantiate(local)

    def _collect(self) -> None:
        self.program = tensor_program(self._tensors())
        self._own = _unscheduled(self.program)
        dag = self._own[0].dag
        self._flop, self.dag_hash = int(dag.flop), dag.hash
        with self.target:
            rules = rules_asked()
        if self._templates or any(rule not in OWN_RULES for rule in rules):
            _ = self._derived  # so that errors of users come at once, and rules may be removed

    @property
    def config_space(self) -> ConfigSpace:
        """Structures of all rules as one space, derived when it is first asked for."""
        return self._derived

    @config_space.setter
    def config_space(self, space: ConfigSpace) -> None:
        self.__dict__["_derived"], self._rules = space, None

    @cached_property
    def _derived(self) -> ConfigSpace:
        with self.target:
            self._rules = rules_asked()
            by_rule = structures(self.program.outputs, self.program.args)
        templates = [*self._written(), *([] if self.by_hand is None else [self.by_hand])]
        by_hand = [TemplateStructure(t, self.program, by_rule[0]) for t in templates]
        union = SpaceUnion(
            [*by_rule, *by_hand],
            lambda: self.ranking[0][0],
            lambda: [r.structure for r in self._together],
            None if self.by_hand is None else by_hand[-1].name,
        )
        # One for all threads that derive it at the same time.
        shared: SpaceUnion = self.__dict__.setdefault("_derived", union)
        return shared

    def _written(self) -> list[Task]:
        tasks = []
        for item in self._templates:
            if not isinstance(item, Task) and not (isinstance(item, (tuple, list)) and item):
                raise TaskError(
                    f"templates: expected tasks or (name, *arguments), got {item!r:.60}"
                )
            task = task_of(self.target, item if isinstance(item, Task) else tuple(item))
            task = task.by_hand or task
            if task.automatic:
                raise TaskError(f"templates: {task} is derived from its expression, no template")
            tasks.append(task)
        return tasks

    def _tensors(self) -> Any:
        """Tensors of the workload; workloads that it calls return tensors, too."""
        where = f"{self.template.describe(self.args)} ({self.template.where})"
        try:
            with self.target, running(ConfigSpace()):
                tensors = limited(TEMPLATE_S, where, self.template.function, *self.args)
        except TimeLimitError as exc:
            raise TaskError(f"{exc} to return its tensors; mend it, or make it faster") from exc
        except (LoopwrightError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # a user's function: one that calls sys.exit ends nothing
            raise TaskError(f"{self}: {self.template.blame(exc)}") from exc
        if isinstance(tensors, tuple) and tensors and hasattr(tensors[0], "dag"):
            raise TaskError(
                f"{where} returns a schedule; decorate it with "
                "@loopwright.template, or return its tensors alone and let the space be derived"
            )
        return tensors


def _unscheduled(program: TensorProgram) -> Scheduled:
    schedule = create_schedule(list(dict.fromkeys(t.op for t in program.outputs)))
    return schedule.with_arguments(program.args), list(program.args)


#: Tensors of an expression: its results, or inputs and results in calling order.
Tensors: TypeAlias = "te.Tensor | Sequence[te.Tensor]"


class Workload(Template):
    """A function that returns tensors: results, or inputs and results in calling order.

    Calling it makes a schedule: that of the best record under ``apply_history_best``, else the best
    one by the analytical model. Called by another workload, or by a template, it returns its
    tensors. An implementation that `register` adds for other targets is a template.

    Args are those of `workload`.

    Attributes:
        former: function of the arguments that returns the tensors of former versions, whose records
            apply; None where there are none.
        by_hand: template of the same arguments whose points are the last structure, which is not
            ranked, so that its records apply; None where there is none.

    Example:
        >>> def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     return te.compute((n,), lambda i: A[i] + 1, name="B")
        ...
        >>> workload = lw.space.Workload("example/add_one_to_all", add_one)
        >>> print(lw.create_task(workload, (64,), "llvm"))
        example/add_one_to_all(64)
    """

    def __init__(
        self,
        name: str,
        function: Function,
        reference: Function | None = None,
        make_inputs: Function | None = None,
        make_reference: Function | None = None,
    ) -> None:
        super().__init__(
            *(name, function, schedule_for, reference, make_inputs), make_reference=make_reference
        )
        self.make_task = _make_task
        self.former: Function | None = None
        self.by_hand: Template | None = None

    def __call__(self, *args: Json, **kwargs: Json) -> Any:
        """Make the schedule for these arguments; in another workload or template, the tensors."""
        if running_config() is not None:
            return self.function(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workload {self.name!r} at {self.where}>"


def _make_task(template: Template, args: Iterable[Json], target: TargetLike) -> Task:
    """Task of an expression, unless the target has a template of its own."""
    resolved = resolve_target(target)
    with resolved:
        derived = template.implementation() is template.function
    return (AutomaticTask if derived else Task)(template, args, resolved)


@overload
def workload(name: Function) -> Workload: ...


@overload
def workload(
    name: str | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    make_reference: Function | None = None,
) -> Callable[[Function], Workload]: ...


def workload(
    name: str | Function | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    make_reference: Function | None = None,
) -> Workload | Callable[[Function], Workload]:
    """Register a function of plain arguments that returns tensors; its space is derived from them.

    Args:
        name: Unique name; ``user/`` and the function's own when left out.
        reference: NumPy function of the inputs that returns the outputs; without one candidates are
            compared with the expression itself.
        make_inputs: Function of the workload's arguments that makes inputs for tests and timing,
            one array per input.
        make_reference: Function of the workload's arguments that returns ``reference``.

    Raises:
        TaskError: another function has the name already.

    Example:
        >>> @lw.workload("example/min_plus")
        ... def min_plus(n):
        ...     A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        ...     k = te.reduce_axis((0, n), name="k")
        ...     return te.compute((n, n), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")
        ...
        >>> task = lw.create_task("example/min_plus", (64,), "llvm")
        >>> print(len(task.structures) > 0)
        True
    """

    def register(function: Function) -> Workload:
        label = name if isinstance(name, str) else f"{UNNAMED}{function.__name__}"
        made = Workload(label, function, reference, make_inputs, make_reference)
        enter(made)
        return made

    return register(name) if callable(name) else register


def create_task(
    name: str | Template | Function | Tensors,
    args: Iterable[Json] = (),
    target: TargetLike = None,
    *,
    templates: Iterable[Task | Sequence[Json]] = (),
) -> Task:
    """Make a tuning task for a target.

    Args:
        name: Name of a template or workload, or the decorated function; a plain function that
            returns tensors; or tensors: results, or inputs and results in calling order. For the
            last two the space is derived from the expression.
        args: The function's arguments; none for tensors.
        target: Such as ``"llvm"`` or a ``Target``; None for the current or the default one.
        templates: Where the space is derived: hand-written templates that compute the same and are
            searched beside the structures of rules, as tasks or as ``(name, *arguments)``.

    Raises:
        TaskError: the name is unknown, the arguments do not fit, or the function raised, took
            longer than ten seconds, or returned something else.
        TensorError: a size is a variable, or an input is missing among the tensors.
        SpaceError: a template computes something else than the expression.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm -mcpu=x86-64-v4")
        >>> print(len(task.config_space))
        12288
        >>> P, Q = te.placeholder((64, 32), name="P"), te.placeholder((32, 48), name="Q")
        >>> C = lw.ops.matmul_compute(P, Q)
        >>> task = lw.create_task([P, Q, C], target="llvm", templates=[("matmul", 64, 48, 32)])
        >>> print(task.structures[-1].name)
        template matmul(64, 48, 32, False, False, 'float32')
    """
    if isinstance(args, str) or not isinstance(args, Iterable):
        raise TaskError(f"create_task: arguments are given as a tuple, got {args!r:.60}")
    if isinstance(name, (te.Tensor, list, tuple)):
        if tuple(args):
            raise TaskError("create_task: tensors take no arguments; give a function for these")
        tensors = name
        tensor_program(tensors)  # raises where they are something else
        return AutomaticTask(Workload(EXPRESSION, lambda: tensors), (), target, templates)
    if isinstance(name, (str, Template)):
        return _registered(name, args, target, templates)
    if not callable(name):
        raise TaskError(
            f"create_task: expected a name, a function or tensors, got a {type(name).__name__}"
        )
    if any(template.function is name for template in TASKS.values()):
        return _registered(name, args, target, templates)
    label = getattr(name, "__name__", None) or getattr(name, "func", type(name)).__name__
    return AutomaticTask(Workload(f"{UNNAMED}{label}", name), args, target, templates)


def _registered(
    name: str | Template | Function,
    args: Iterable[Json],
    target: TargetLike,
    templates: Iterable[Task | Sequence[Json]],
) -> Task:
    template = lookup(name)
    beside = tuple(templates)
    if beside and isinstance(template, Workload):
        return AutomaticTask(template, args, target, beside)
    if beside:
        raise TaskError(
            f"create_task: {template.name!r} is a template; others join the space of an expression:"
            " give its tensors"
        )
    return create_registered(template, args, target)
