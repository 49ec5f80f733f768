"""Tasks: a template with its arguments and target, the space that it spans, and its default."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from loopwright.errors import InstantiationError, SpaceError, TaskError, TimeLimitError
from loopwright.records import Json, Record, expression_key, ranked, task_key
from loopwright.target import Target
from loopwright.task.entities import Entity, SplitEntity
from loopwright.task.knobs import SplitKnob
from loopwright.task.space import ConfigEntity, ConfigSpace, Scheduler
from loopwright.task.template import Scheduled, Template, lookup
from loopwright.task.template_config import TemplateConfig, missing_knob, running
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    import numpy.typing as npt


class FallbackConfig(ConfigEntity):
    """The default configuration, which a template may still adjust: ``if cfg.is_fallback: ...``.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> config = task.fallback()
        >>> print(config.is_fallback, config["unroll_k"].val)
        True 1
    """

    @property
    def is_fallback(self) -> bool:
        return True

    def __setitem__(self, name: str, entity: Entity) -> None:
        """Choose for a knob, which need not be a candidate: ``cfg["tile_i"] = SplitEntity([-1,
        8])``."""
        if name not in self._entities:
            raise missing_knob(name, list(self._entities))
        self._entities[name] = entity
        self.index = self.space.find(self.values)

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Choose a split whose sizes divide and stay within limits, from the outside in; one of
        them is -1 and takes what is left: ``[-1, 8, 4]``. Limits that do not fit, or another knob,
        are a `SpaceError`."""
        knob = self.space.knobs.get(name)
        if knob is None:
            raise missing_knob(name, list(self._entities))
        if not isinstance(knob, SplitKnob):
            raise SpaceError(f"knob {name!r} is no split into {len(constraints)} loops")
        self[name] = SplitEntity(knob.within(constraints))

    def fallback_with_reference_log(self, ref_log: Iterable[Record]) -> None:
        """Take over the choices of a record of this template for another shape.

        The record is the one whose inner sizes survive best when they are rounded to divisors of
        the lengths here; among equals the fastest. Choices that are no candidates here stay as they
        are.
        """
        best: dict[str, Json] = {}
        most = -1
        for record in ranked(ref_log):
            if set(record.config) != set(self._entities):
                continue
            adapted = {
                name: self.space.knobs[name].adapted(value) for name, value in record.config.items()
            }
            fitting = {name: pair for name, pair in adapted.items() if pair is not None}
            kept = sum(unchanged for _, unchanged in fitting.values())
            if kept > most:
                best, most = {name: value for name, (value, _) in fitting.items()}, kept
        for name, value in best.items():
            self[name] = self.space.knobs[name].entity(value)


#: A target, its text such as ``"llvm"``, its canonical form, or None for the current one.
TargetLike: TypeAlias = "Target | str | Mapping[str, Json] | None"

_DEFAULT_TRIES = 64


class Task:
    """A tuning task: a template, its arguments, a target, and the space of configurations.

    Making one runs the template, to collect its knobs.

    Args:
        name: Name of a template, or the template itself.
        target: A target, its text such as ``"llvm"``, or its canonical form; None is the current
            target, or the default one.

    Attributes:
        args: The arguments by position, defaults filled in.
        key: Identity of the task: the hash of its expression, constant operands among it, and the
            kind of target. Tasks that compute the same have the same.
        alias: Its name in records: template, arguments, kind of target; of a task whose space is
            automatic, its key.
        dag_hash: Hash of its expression under the default configuration, names left out.

    Raises:
        TaskError: the template is unknown, does not accept the arguments, or raised.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> print(task.name, task.args, task.target.kind, task.flop)
        matmul (64, 64, 64, False, False, 'float32') llvm 524288
        >>> s, args = task.instantiate({"unroll_k": 4})
        >>> print([t.name for t in args], len(s.trace) > 0)
        ['A', 'B', 'C'] True
    """

    def __init__(
        self,
        name: str | Template | Callable[..., Any],
        args: Iterable[Json] = (),
        target: TargetLike = None,
    ) -> None:
        self.template = lookup(name)
        self.name = self.template.name
        self.args = self.template.bind(args)
        self.target = resolve_target(target)
        self.dag_hash = ""
        self._flop = 0
        self._collect()
        self.key = expression_key(self.dag_hash, self.kind)
        self.alias = self._alias()

    def __repr__(self) -> str:
        return f"Task({self}, {self.target})"

    def __str__(self) -> str:
        return self.template.describe(self.args)

    #: Whether the space is derived from the expression, so that a record's trace is all it takes
    #: to make its schedule again.
    automatic: ClassVar[bool] = False
    #: Whether it is a kernel of a model: a record of it is built only where a playoff has compared
    #: it with the default, since nobody looks at each kernel of a model.
    of_model = False

    @property
    def kind(self) -> str:
        return str(self.target.canonical["kind"])

    @property
    def target_host(self) -> Target | None:
        """The target's host, by AutoTVM's name."""
        return self.target.host

    @property
    def reference(self) -> Callable[..., Any] | None:
        """NumPy function of the inputs that gives the right outputs, where the template has one."""
        make = self.template.make_reference
        return make(*self.args) if make is not None else self.template.reference

    @property
    def make_inputs(self) -> Callable[[], Sequence[npt.ArrayLike]] | None:
        """Function that makes one array per input, where the template has one; else random ones
        do."""
        make = self.template.make_inputs
        return None if make is None else partial(make, *self.args)

    @property
    def workload(self) -> tuple[Json, ...]:
        """Name and arguments, AutoTVM's identity of a task."""
        return (self.name, *self.args)

    @property
    def flop(self) -> int:
        """Floating point operations of one call, as declared with ``cfg.add_flop`` or counted in
        the tensor expression; `TaskError` where there are none."""
        if not self._flop:
            raise TaskError(
                f"task {self}: its expression has no arithmetic to count; call cfg.add_flop(n) in "
                f"the template ({self.template.where})"
            )
        return self._flop

    def instantiate(self, config: ConfigEntity | int | Mapping[str, Json]) -> Scheduled:
        """Run the template under a configuration, its index, or ``{knob: value}``.

        Raises:
            InstantiationError: the template refused it, or raised; in one line with file and line.
            SpaceError: ``config`` is no configuration of this space.
        """
        config = self.config(config)
        try:
            return self._run(config)
        except (InstantiationError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # a template that calls sys.exit costs its own trial only
            raise InstantiationError(f"{self} with {config}: {self.template.blame(exc)}") from exc

    @property
    def dag_hashes(self) -> tuple[str, ...]:
        """Hashes of the expressions whose records apply: its own, and those that it had in former
        versions, where it says so."""
        return (self.dag_hash,)

    def expression(self, dag_hash: str = "") -> Scheduled:
        """The expression: some schedule of it, and the arguments, without choosing such as a
        default by the analytical model. ``dag_hash`` is one of `dag_hashes`; by default its own."""
        return self.instantiate(self.config_space.default_index)

    def of(self, args: Iterable[Json]) -> Task:
        """The task of the same template and target with other arguments; errors as for `Task`."""
        return type(self)(self.template, args, self.target)

    def config(self, config: ConfigEntity | int | Mapping[str, Json]) -> ConfigEntity:
        """The configuration of an index or of ``{knob: value}``; one of another space is carried
        over by its values. `SpaceError`: a value without the form of its knob, or an index outside.
        """
        if isinstance(config, ConfigEntity):
            same = config.space is self.config_space
            return config if same else self.config_space.entity_of(config.values)
        if isinstance(config, Mapping):
            return self.config_space.entity_of(config)
        return self.config_space.get(config)

    def part(self, config: ConfigEntity) -> tuple[Scheduler, ConfigEntity]:
        """The part of the space that a configuration is of, and the configuration there, as cost
        models know them. This space has one part, the whole."""
        return self, config

    def fallback(self) -> FallbackConfig:
        """A fresh default configuration, which says ``cfg.is_fallback`` to the template."""
        config = self.config_space.get(self.config_space.default_index)
        entities = {name: config[name] for name in config.values}
        return FallbackConfig(self.config_space, entities, config.index)

    def default(self) -> Scheduled:
        """Schedule of the default configuration, and its arguments; errors as of `instantiate`."""
        return self.instantiate(self.fallback())

    def _run(self, config: TemplateConfig) -> Scheduled:
        with self.target, running(config):
            result = self.template.implementation()(*self.args)
        pair = isinstance(result, tuple) and len(result) == 2 and hasattr(result[0], "dag")
        if not pair or not isinstance(result[1], (list, tuple)):
            raise TaskError(
                f"template {self.name!r} ({self.template.where}) must return "
                f"(schedule, [tensors]), got {type(result).__name__}"
            )
        sizes = [v.name for v in getattr(result[0].dag, "sizes", ())]
        if sizes:
            raise TaskError(
                f"task {self}: tuning needs sizes that are known, and the program has the size "
                f"variables {', '.join(sizes)}; give the template ints for them"
            )
        return result[0].with_arguments(result[1]), list(result[1])

    @property
    def by_hand(self) -> Task | None:
        """The template beside a derived space, whose records apply, with knobs alone too."""
        return None

    def is_of(self, record: Record) -> bool:
        """Whether a record is of this task, under whatever name."""
        if record.kind == self.kind and record.dag in self.dag_hashes:
            return True
        by_hand = self.by_hand
        return record.task in (*self.aliases, *(() if by_hand is None else by_hand.aliases))

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        """Names in records: the alias, and those that leave default arguments out, as records of
        AutoTVM may, and older ones of a template that got a new argument."""
        if self.automatic:
            return (self.alias,)
        spellings = self.template.spellings(self.args)
        return tuple(task_key(self.name, args, self.kind) for args in spellings)

    def _alias(self) -> str:
        return task_key(self.name, self.args, self.kind)

    def _collect(self) -> None:
        """Find the space, the hash of the expression and its number of operations."""
        try:
            with self.target:  # defaults may follow its vectors
                defaults = self.template.default_values(self.args)
            space = ConfigSpace(defaults)
            schedule, _ = limited(TEMPLATE_S, f"the template {self}", self._run, space)
            space.freeze()
        except (TaskError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # a user's template: one that calls sys.exit ends nothing
            raise TaskError(f"{self}: {self.template.blame(exc)}") from exc
        self._flop = space.flop or int(schedule.dag.flop)
        self.dag_hash = schedule.dag.hash
        self.config_space = space
        if space.asked_fallback:
            self._adopt_fallback(space)
        if space.errors:
            self._choose_default(space)

    def _adopt_fallback(self, space: ConfigSpace) -> None:
        """Make what the template chooses under ``cfg.is_fallback`` the default configuration, so
        that trial 0 is what an untuned build gets."""
        config = self.fallback()
        try:
            self._run(config)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # a user's template: one that calls sys.exit ends nothing
            raise TaskError(f"{self}: {self.template.blame(exc)}") from exc
        if config.index is not None and space.is_valid(config.index):
            space.errors.clear()
            space.set_default(config.index)

    def _choose_default(self, space: ConfigSpace) -> None:
        """Take the first of a few random points that the template accepts as the default, where it
        refused its own; where it accepts none, trial 0 will say so."""
        for index in space.sample_ints(_DEFAULT_TRIES, 0):
            try:
                self._run(space.get(index))
            except KeyboardInterrupt:
                raise
            except BaseException:  # a user's template: one that raises is not the default
                continue
            space.set_default(index)
            return


@dataclass(frozen=True)
class Seed:
    """A record of another system's template, as a task sees it."""

    workload: str  #: operator here that computes the same, with its parameters as far as known
    #: Gives the point of the task's space that it names, None where there is none, and remarks on
    #: what the record says and the point does not; None where it is of another workload.
    point: Callable[[], tuple[ConfigEntity | None, tuple[str, ...]]] | None
    read: bool = True  #: whether its parameters could be read

    @property
    def is_of_it(self) -> bool:
        """Whether the record is known to be of the task's workload."""
        return self.read and self.point is not None


def create_task(
    name: str | Template | Callable[..., Any], args: Iterable[Json] = (), target: TargetLike = None
) -> Task:
    """Make a task of what is registered: a template or workload by name, or the decorated function.

    Errors are those of `Task`.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm -mcpu=x86-64-v4")
        >>> print(task)
        matmul(64, 64, 64, False, False, 'float32')
        >>> print(len(task.config_space))
        12288
    """
    template = lookup(name)
    make = Task if template.make_task is None else template.make_task
    task: Task = make(template, args, target)
    return task


def resolve_target(target: TargetLike) -> Target:
    if isinstance(target, Target):
        return target
    if target is None:
        return Target.current()
    return Target(dict(target) if isinstance(target, Mapping) else target)


#: Number of points that are looked at.
_SAMPLE = 400


@dataclass(frozen=True)
class Refusal:
    #: The filter, with file and line, or the error of the template.
    reason: str
    #: Share of the points looked at, 0 to 1; the first filter that refuses a point counts.
    share: float
    #: One such configuration.
    example: str

    def __str__(self) -> str:
        return f"{self.share:.0%} of the space: {self.reason}, such as {self.example}"


def refusals(task: Task, sample: int = _SAMPLE) -> list[Refusal]:
    """Reasons why points of a task are refused, most frequent first.

    Looks at ``sample`` random points, or all of a smaller space; at fewer where filters or the
    template, which runs for each accepted point, are slow.
    """
    space = task.config_space
    if space.range_length <= sample:
        points = list(range(space.range_length))
    else:
        chance = random.Random(0)
        # A space may have more points than 64 bits count.
        points = [chance.randrange(space.range_length) for _ in range(sample)]
    seen: dict[str, tuple[int, str]] = {}
    looked = 0
    until = time.monotonic() + TEMPLATE_S
    for index in points:
        if time.monotonic() > until:
            break
        looked += 1
        reason = _reason(task, space.get(index))
        if reason is not None:
            count, example = seen.get(reason, (0, str(space.get(index))))
            seen[reason] = (count + 1, example)
    ordered = sorted(seen.items(), key=lambda item: -item[1][0])
    return [Refusal(reason, n / looked, example) for reason, (n, example) in ordered]


def _reason(task: Task, config: ConfigEntity) -> str | None:
    assert config.index is not None
    for accepts in task.config_space.filters:
        name = f"filter {_name(accepts)}"
        try:
            accepted = limited(TEMPLATE_S, name, accepts, config)
        except TimeLimitError as exc:
            return str(exc)
        except Exception as exc:  # a user's filter: what it raises is the reason
            return f"{name} raises {type(exc).__name__}: {_general(exc)}"
        if not accepted:
            return f"{name} refuses it"
    try:
        if not task.config_space.is_valid(config.index):
            return "the space refuses it"
        limited(TEMPLATE_S, "the template", task.instantiate, config)
    except TimeLimitError as exc:
        return str(exc)
    except SpaceError as exc:
        cause = exc.__cause__ or exc
        return f"the template raises {type(cause).__name__}: {_general(cause)}"
    return None


def _name(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    name = name.rsplit("<locals>.", 1)[-1]
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name


def _general(exc: BaseException) -> str:
    """The text of an error with its numbers left out, so that equal errors count as one."""
    text = re.sub(r"\d+", "N", " ".join(str(exc).split()))
    return text if len(text) <= 160 else text[:157] + "..."
