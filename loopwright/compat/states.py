"""Ansor's expressions and unfinished schedules: workloads, ``ComputeDAG``, ``State``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from loopwright import te
from loopwright.errors import ScheduleError, TaskError, UsageError
from loopwright.ir.expr import position_of
from loopwright.lowering import lower
from loopwright.records import Json
from loopwright.schedule import Schedule, Stage, create_schedule, replay
from loopwright.space import Workload, tensor_program
from loopwright.task import TASKS, UNNAMED, ConfigSpace, enter, lookup
from loopwright.te import Dag, Tensor, arg_id

if TYPE_CHECKING:
    from loopwright.ir.affine import Affine
    from loopwright.space import Sketch
    from loopwright.task import ConfigEntity, Scheduled
    from loopwright.te import Operation


#: A stage: its number among the stages, its tensor or its operation.
StageLike: TypeAlias = "int | te.Tensor | te.Operation"
IterLike: TypeAlias = Any  # a loop: an axis among ``state[stage].iters``, or its number there


class StateStage:
    """A stage of a `State`: its operation ``op``, and its loops ``iters``, outermost first."""

    def __init__(self, stage: Stage, schedule: Schedule) -> None:
        self._stage, self._schedule = stage, schedule
        self.op = stage.op
        self.iters = list(stage.leaf_iter_vars)

    @property
    def extents(self) -> list[int | Affine]:
        """Trip count of each loop per iteration of the loops around it, after bound inference."""
        bounds = self._schedule.bounds().stages[self._stage.id]
        return [n for n in (loop.extent for loop in bounds.loops) if isinstance(n, int)]

    def __str__(self) -> str:
        return f"{self.op.name}: {', '.join(axis.name for axis in self.iters)}"


class State:
    """An unfinished schedule, changed in place by primitives under Ansor's names.

    Made by `ComputeDAG.get_init_state` and by `SketchPolicy`. A stage is named by its number, its
    tensor or its operation; a loop by its axis among ``state[stage].iters``, or its number there.
    Operations and loops of a state mean the same in its copies.

    Args:
        state_object: a state, which is copied; or a function that returns the schedule that steps
            are applied to, and its arguments.
        dag: the expression whose operations name stages; None: that of ``state_object``, if any.
        config: the configuration of the schedule, or None.
        sketch: the sketch of the schedule, or None; with one, lengths of splits may be left open.

    Example:
        >>> A = te.placeholder((16, 8), name="A")
        >>> B = te.compute((16, 8), lambda i, j: A[i, j] + 1, name="B")
        >>> state = lw.auto_scheduler.ComputeDAG([A, B]).get_init_state()
        >>> outer, inner = state.split(B, state[B].iters[0], [4])
        >>> _ = state.parallel(B, outer)
        >>> print(state)
        def main(A: float32[16, 8], B: out float32[16, 8]):
          for i.0 in parallel(4):
            for i.1 in range(4):
              for j in range(8):
                B[i.0 * 4 + i.1, j] = A[i.0 * 4 + i.1, j] + 1.0
    """

    def __init__(
        self,
        state_object: State | Callable[[], Scheduled],
        dag: ComputeDAG | None = None,
        config: ConfigEntity | None = None,
        sketch: Sketch | None = None,
    ) -> None:
        self._places = {} if dag is None else dag.places
        self._config, self.sketch = config, sketch
        #: The loop that was split, by the numbers of the steps that did it.
        self._split_loops: dict[int, te.IterVar] = {}
        if not isinstance(state_object, State):
            self._base = state_object
            return
        self._places = self._places or state_object._places
        self._split_loops |= state_object._split_loops
        if state_object.sketch is not None:
            self.sketch = state_object.sketch.copy()
            return
        ids = state_object.schedule.arg_ids(state_object.args)
        copy = state_object.schedule.copy()
        self._config = state_object.config
        self._scheduled = copy, [copy.tensor(arg) for arg in ids]

    @cached_property
    def _scheduled(self) -> Scheduled:
        return self._base() if self.sketch is None else (self.sketch.s, [])

    @property
    def schedule(self) -> Schedule:
        """The schedule that steps are applied to."""
        return self._scheduled[0]

    @property
    def args(self) -> list[te.Tensor]:
        """The arguments in calling order, as tensors of the schedule."""
        return self._scheduled[1]

    @property
    def config(self) -> ConfigEntity | None:
        """The configuration of a structure; None if steps were added since."""
        return self._config

    @property
    def state_object(self) -> State:
        """The state itself, for scripts of TVM."""
        return self

    @property
    def transform_steps(self) -> list[list[Any]]:
        """The steps so far as JSON-able lists."""
        return self.schedule.trace_json()

    @property
    def stages(self) -> list[StateStage]:
        """The stages, producers first."""
        return [StateStage(stage, self.schedule) for stage in self.schedule.stages]

    @property
    def stage_ops(self) -> list[te.Operation]:
        """The operations of the stages."""
        return [stage.op for stage in self.schedule.stages]

    def __getitem__(self, stage: StageLike) -> StateStage:
        return StateStage(self._stage(stage), self.schedule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (
            self.schedule.dag.hash == other.schedule.dag.hash
            and self.transform_steps == other.transform_steps
        )

    def __hash__(self) -> int:
        return hash((self.schedule.dag.hash, str(self.transform_steps)))

    def __str__(self) -> str:
        if self.sketch is not None:
            return self.schedule.as_python()
        return str(lower(self.schedule, self.args))

    def copy(self) -> State:
        """Another state with the same steps, in which operations and loops of this one, as they are
        now, mean the same."""
        return State(self)

    def __copy__(self) -> State:
        return State(self)

    def __deepcopy__(self, memo: object) -> State:
        return State(self)

    def split(
        self,
        stage_id: StageLike,
        iterator: IterLike,
        lengths: Sequence[int | None],
        inner_to_outer: bool = True,
    ) -> list[te.IterVar]:
        """Split a loop into ``len(lengths) + 1``; returns the new loops, outermost first.

        ``lengths`` are the extents of the inner loops, outer ones first, or of the outer loops
        without ``inner_to_outer``. In a rule of `PreloadCustomSketchRule` all of them may be None:
        a knob then chooses. ScheduleError for others, and as of `Stage.split`.
        """
        stage, (axis,) = self._placed(stage_id, [iterator])
        sizes: Sequence[Any] = _listed("split", lengths)
        if None in sizes:
            sizes = _open_sizes(self, stage, axis, lengths)
        before, parent = len(self.schedule.trace), axis
        split: list[te.IterVar] = []
        with self.schedule.all_or_nothing():
            for size in reversed(sizes) if inner_to_outer else sizes:
                outer, inner = stage.split(axis, **{"factor" if inner_to_outer else "nparts": size})
                axis = outer if inner_to_outer else inner
                split.append(inner if inner_to_outer else outer)
        self._split_loops |= dict.fromkeys(range(before, len(self.schedule.trace)), parent)
        self._config = None
        return [axis, *reversed(split)] if inner_to_outer else [*split, axis]

    def follow_split(
        self, stage_id: StageLike, iterator: IterLike, src_step_id: int, n_split: int
    ) -> list[te.IterVar]:
        """Split a loop with the sizes of a split before, into ``n_split + 1``; see
        `Stage.follow_split`. ``src_step_id`` is a number among `transform_steps`: that of a split;
        ScheduleError where it is another step's.
        """
        source = self._split_loop(src_step_id, "follow_split")
        if not isinstance(n_split, int):
            raise ScheduleError(f"follow_split: n_split is {n_split!r:.40}; give an integer")
        return list(self._on_loops("follow_split", stage_id, [iterator], source, n_split))

    def follow_fused_split(
        self,
        stage_id: StageLike,
        iterator: IterLike,
        src_step_ids: Sequence[int],
        level: int,
        factor_or_nparts: bool,
    ) -> list[te.IterVar]:
        """Split a loop by the product of the sizes that splits before gave to one level; see
        `Stage.follow_fused_split`, and `follow_split` for their numbers.
        """
        numbers = _listed("follow_fused_split", src_step_ids)
        if not isinstance(level, int):
            raise ScheduleError(f"follow_fused_split: level is {level!r:.40}; give an integer")
        sources = [self._split_loop(number, "follow_fused_split") for number in numbers]
        how = (sources, level, factor_or_nparts)
        return list(self._on_loops("follow_fused_split", stage_id, [iterator], *how))

    def fuse(self, stage_id: StageLike, iters: Sequence[IterLike]) -> te.IterVar:
        """Fuse adjacent loops; returns the new one."""
        loop: te.IterVar = self._on_loops("fuse", stage_id, iters)
        return loop

    def reorder(self, stage_id: StageLike, order: Sequence[IterLike]) -> None:
        """Put loops into an order, outermost first."""
        self._on_loops("reorder", stage_id, order)

    def parallel(self, stage_id: StageLike, iterator: IterLike) -> te.IterVar:
        """Run a loop on all threads; returns the loop."""
        return self._on_loop("parallel", stage_id, iterator)

    def vectorize(self, stage_id: StageLike, iterator: IterLike) -> te.IterVar:
        """Run a loop as vectors; returns the loop."""
        return self._on_loop("vectorize", stage_id, iterator)

    def unroll(
        self, stage_id: StageLike, iterator: IterLike, max_unroll: int | None = None
    ) -> te.IterVar:
        """Unroll a loop, unless it runs more than ``max_unroll`` times; returns the loop."""
        if max_unroll is not None:
            if not isinstance(max_unroll, int):
                raise ScheduleError(f"unroll: max_unroll is {max_unroll!r:.40}; give an integer")
            if self.sketch is not None:
                raise ScheduleError(
                    "unroll: knobs choose the extents of a sketch's loops; leave max_unroll out"
                )
            stage, (axis,) = self._placed(stage_id, [iterator])
            bounds = self.schedule.bounds().stages[stage.id]
            extent = bounds.loops[position_of(axis, stage.leaf_iter_vars)].extent
            if not isinstance(extent, int) or extent > max_unroll:
                return axis
        return self._on_loop("unroll", stage_id, iterator)

    def bind(self, stage_id: StageLike, iterator: IterLike, thread_name: str) -> te.IterVar:
        """Run a loop as threads of a kernel, such as ``"threadIdx.x"``; returns the loop."""
        return self._on_loop("bind", stage_id, iterator, te.thread_axis(thread_name))

    def pragma(self, stage_id: StageLike, iterator: IterLike, pragma_type: str) -> None:
        """Annotate a loop: ``"auto_unroll_max_step$16"`` has a value behind the ``$``."""
        kind, _, value = str(pragma_type).partition("$")
        if value and not value.isdecimal():
            raise ScheduleError(f"pragma: the value of {pragma_type!r:.60} is no number")
        self._on_loop("pragma", stage_id, iterator, kind, int(value) if value else True)

    def compute_at(
        self, stage_id: StageLike, target_stage_id: StageLike, target_iter: IterLike
    ) -> None:
        """Compute a stage inside a loop of one that reads it."""
        target, (axis,) = self._placed(target_stage_id, [target_iter])
        self._on_loops("compute_at", stage_id, (), target, axis)

    def compute_inline(self, stage_id: StageLike) -> None:
        """Compute the elements of a stage where they are read."""
        self._on_loops("compute_inline", stage_id)

    def compute_root(self, stage_id: StageLike) -> None:
        """Compute a stage before all that read it."""
        self._on_loops("compute_root", stage_id)

    def storage_align(
        self, stage_id: StageLike, iterator: IterLike, factor: int, offset: int
    ) -> None:
        """Pad the rows of a stage's result, see `Stage.storage_align`."""
        self._on_loop("storage_align", stage_id, iterator, factor, offset)

    def cache_read(
        self, stage_id: StageLike, scope_name: str, reader_stage_ids: Sequence[StageLike]
    ) -> te.Operation:
        """Copy a tensor for the stages that read it; returns the operation of the new stage."""
        given = _listed("cache_read", reader_stage_ids)
        stage, *readers = (self._stage(one) for one in (stage_id, *given))
        scope: Any = scope_name
        return self._stage_of(self.schedule.cache_read(stage, scope, readers))

    def cache_write(self, stage_id: StageLike, scope_name: str) -> te.Operation:
        """Compute a stage in a copy of its result; returns the operation of the new stage."""
        scope: Any = scope_name
        return self._stage_of(self.schedule.cache_write(self._stage(stage_id), scope))

    def rfactor(self, stage_id: StageLike, iterator: IterLike, factor_iter_id: int) -> te.Operation:
        """Split a reduction into partial ones; returns the operation of the new stage."""
        stage, (axis,) = self._placed(stage_id, [iterator])
        return self._stage_of(self.schedule.rfactor(stage, axis, factor_iter_id))

    def _stage(self, stage: StageLike) -> Stage:
        stages = self.schedule.stages
        if isinstance(stage, int):
            if not 0 <= stage < len(stages):
                raise ScheduleError(f"there is no stage {stage}; there are {len(stages)}")
            return stages[stage]
        op = stage.op if isinstance(stage, te.Tensor) else stage
        if op in self._places and op not in self.stage_ops:
            return self.schedule[self.schedule.tensor(arg_id(self._places[op]))]
        return self.schedule[op]

    def _placed(
        self, stage: StageLike, loops: Sequence[IterLike]
    ) -> tuple[Stage, list[te.IterVar]]:
        """A stage, and loops of it."""
        owner = self._stage(stage)
        return owner, [_leaf(owner, loop) for loop in loops]

    def _split_loop(self, step: int, verb: str) -> te.IterVar:
        steps = len(self.schedule.trace)
        number = steps + step if isinstance(step, int) and step < 0 else step
        if not isinstance(step, int) or number not in self._split_loops:
            numbers = ", ".join(map(str, sorted(self._split_loops))) or "none"
            raise ScheduleError(
                f"{verb}: step {step!r:.40} is no split of this state; those of its {steps} "
                f"step(s) that are: {numbers}"
            )
        return self._split_loops[number]

    def _on_loop(self, verb: str, stage: StageLike, loop: IterLike, *args: Any) -> te.IterVar:
        """Apply a primitive to a loop, which is returned."""
        _, (axis,) = self._placed(stage, [loop])
        self._on_loops(verb, stage, [axis], *args)
        return axis

    def _on_loops(
        self, verb: str, stage: StageLike, loops: Sequence[IterLike] = (), *args: Any
    ) -> Any:
        owner, axes = self._placed(stage, _listed(verb, loops))
        result = getattr(owner, verb)(*axes, *args)
        self._config = None
        return result

    def _stage_of(self, tensor: te.Tensor | list[te.Tensor]) -> te.Operation:
        """The operation of a step's new stage; of one with several results that of the first."""
        self._config = None
        return (tensor[0] if isinstance(tensor, list) else tensor).op


def _listed(verb: str, items: Any) -> list[Any]:
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise ScheduleError(f"{verb}: {items!r:.40} is no list; give one")
    return list(items)


def _leaf(stage: Stage, loop: IterLike) -> te.IterVar:
    """A loop of a stage by its axis or its number."""
    leaves = list(stage.leaf_iter_vars)
    if isinstance(loop, int) and -len(leaves) <= loop < len(leaves):
        return leaves[loop]
    if any(leaf is loop for leaf in leaves):
        axis: te.IterVar = loop
        return axis
    names = ", ".join(leaf.name for leaf in leaves)
    why = ""
    if isinstance(loop, te.IterVar):
        since = any(axis is loop for axis in stage.all_iter_vars)
        why = "it was split or fused since" if since else "it is one of another state or stage"
        why = f" ({why}; take state[stage].iters)"
    text = f"number {loop}" if isinstance(loop, int) else repr(getattr(loop, "name", loop))
    raise ScheduleError(f"{stage} has no loop {text:.40}; its loops are {names}{why}")


def _open_sizes(
    state: State, stage: Stage, axis: te.IterVar, lengths: Sequence[int | None]
) -> Sequence[Any]:
    """Sizes that a knob of the sketch chooses: all factorizations of the loop's extent."""
    name, sketch = stage.op.name, state.sketch
    if sketch is None or any(length is not None for length in lengths):
        raise ScheduleError(
            f"split: the lengths of {axis.name!r} of {name!r} are {list(lengths)}; give numbers, "
            "or None for all in a rule of PreloadCustomSketchRule"
        )
    if not isinstance(axis.dom.extent, int):
        raise ScheduleError(
            f"split: the loop {axis.name!r} of {name!r} has an extent that a knob chooses; split "
            "the loop before it once, with more lengths"
        )
    space = ConfigSpace()
    space.define_split("split", axis.dom.extent, num_outputs=len(lengths) + 1)
    sizes = [tuple(value[1:]) for value in map(space.knobs["split"].value, range(len(space)))]
    return sketch.numbers(f"{name}.{len(sketch.space.knobs)}", sizes)


class LayoutRewriteOption:
    """Options for the layout of operands: ``NO_REWRITE`` or ``INSERT_TRANSFORM_STAGE``.

    Both options mean the same: rules choose the operands that a kernel packs, in a stage whose
    time is part of the kernel's. ``REWRITE_FOR_PRE_TRANSFORMED``, for kernels whose operands come
    packed already, belongs to networks, and is refused.

    Example:
        >>> print(lw.auto_scheduler.LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
        1
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


def check_layout_rewrite(option: int | None) -> None:
    """Refuse all options but `NO_REWRITE` and `INSERT_TRANSFORM_STAGE`, with a `UsageError`."""
    options = LayoutRewriteOption
    if option not in (None, options.NO_REWRITE, options.INSERT_TRANSFORM_STAGE):
        raise UsageError(
            f"layout_rewrite_option={option!r} is not supported: kernels take operands as they are "
            "declared, and pack them themselves; leave it out, or declare the packed operand"
        )


class ComputeDAG:
    """An expression: inputs, operations and results.

    Args:
        compute_or_sche: inputs and results in calling order, or results alone; the key of a
            workload; or a schedule, for its expression. UsageError where it is something else;
            TaskError where no workload has the key; TensorError where the tensors form no
            expression, see `loopwright.space.tensor_program`.

    Attributes:
        tensors: inputs and results in calling order.
        places: number of each operation, producers first.

    Example:
        >>> A = te.placeholder((16, 8), name="A")
        >>> k = te.reduce_axis((0, 8), name="k")
        >>> B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> dag = lw.auto_scheduler.ComputeDAG([A, B])
        >>> print(dag.flop_ct, [op.name for op in dag.ops])
        128.0 ['A', 'B']
        >>> state = dag.get_init_state()
        >>> _ = state.split(B, 0, [4])
        >>> print(dag.print_python_code_from_state(state).splitlines()[3])
            i_0, i_1 = s[B].split(i, factor=4)
        >>> s, args = dag.apply_steps_from_state(state)
        >>> print([tensor.name for tensor in args])
        ['A', 'B']
    """

    _fresh: Callable[[], Scheduled]

    def __init__(self, compute_or_sche: str | Tensor | Sequence[Tensor] | Schedule) -> None:
        if isinstance(compute_or_sche, str):
            tensors: Tensor | Sequence[Tensor] = workload_key_to_tensors(compute_or_sche)
        elif isinstance(compute_or_sche, Schedule):
            tensors = [op.output(0) for op in compute_or_sche.outputs]
        elif isinstance(compute_or_sche, (Tensor, list, tuple)):
            tensors = compute_or_sche
        else:
            raise UsageError(
                "ComputeDAG takes tensors, the key of a workload or a schedule; it got a "
                f"{type(compute_or_sche).__name__}"
            )
        program = tensor_program(tensors)
        self.tensors = list(program.args)
        outputs = [t.op for t in program.outputs]
        self._dag, self.places = Dag.from_ops(outputs)
        self._fresh = lambda: (create_schedule(outputs), list(self.tensors))

    def __deepcopy__(self, memo: object) -> ComputeDAG:
        return self  # nothing changes it

    @classmethod
    def of_schedule(cls, schedule: Schedule, args: Sequence[Tensor]) -> ComputeDAG:
        """The expression of a replayed schedule, with arguments in calling order."""
        dag = cls.__new__(cls)
        ids = schedule.arg_ids(args)

        def fresh() -> Scheduled:
            new = replay(schedule.dag, [])
            return new, [new.tensor(a) for a in ids]

        dag._dag, dag.places, dag._fresh = schedule.dag, {}, fresh
        dag.tensors = fresh()[1]
        return dag

    @property
    def ops(self) -> list[Operation]:
        """The operations, inputs included, each before those that read it."""
        return [stage.op for stage in self._fresh()[0].stages]

    @property
    def flop_ct(self) -> float:
        """Arithmetic operations of one evaluation; a multiply and an add count one each."""
        return float(self._dag.flop)

    @cached_property
    def init_state(self) -> State:
        """The state without steps."""
        return self.get_init_state()

    def hash_key(self) -> str:
        """Hash of the expression, independent of names: 16 hex digits; records have it, too."""
        return self._dag.hash

    def get_init_state(self) -> State:
        """A new state without steps."""
        return State(self._fresh, self)

    def apply_steps_from_state(
        self, state: State, layout_rewrite: int | None = LayoutRewriteOption.NO_REWRITE
    ) -> Scheduled:
        """A schedule with the steps of a state, which stays as it is, and its arguments; UsageError
        where the state is of another expression, or the option is refused.
        """
        check_layout_rewrite(layout_rewrite)
        self._check(state)
        fresh = state.copy()
        return fresh.schedule, fresh.args

    def print_python_code_from_state(self, state: State) -> str:
        """The steps of a state of this expression as a Python function."""
        self._check(state)
        return state.schedule.as_python()

    def infer_bound_from_state(self, state: State) -> State:
        """A copy of a state after bound inference, whose ``state[stage].extents`` are trip counts;
        ScheduleError where an extent contradicts a step.
        """
        self._check(state)
        copy = state.copy()
        if copy.sketch is None:
            copy.schedule.validate()
        return copy

    def __str__(self) -> str:
        lines = self._dag.as_python().splitlines()
        return "\n".join(line for line in lines[2:] if not line.startswith("outputs = "))

    def _check(self, state: State) -> None:
        if not isinstance(state, State) or state.schedule.dag.hash != self.hash_key():
            raise UsageError(
                f"the state is of another expression than {', '.join(t.name for t in self.tensors)}"
                "; take one of dag.get_init_state(), of a SketchPolicy or of a log"
            )


Function = Callable[..., Any]
_TENSORS: dict[str, list[Tensor]] = {}  # tensors of `register_workload_tensors` by their keys


def register_workload(
    func_name: str | Function, f: Function | None = None, override: bool = False
) -> Any:
    """Register a function of plain arguments that returns ``[inputs..., outputs...]``; returned as
    it is. `loopwright.workload` returns a function that gives the best schedule instead.

    Args:
        func_name: the name, or the function itself, whose workload is then named ``user/`` and its
            name.
        f: the function, if a name was given; without it, this is a decorator.
        override: replace another function of the name, which is a TaskError otherwise.

    Example:
        >>> @lw.auto_scheduler.register_workload
        ... def doubled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 2, name="Y")]
        >>> print([t.name for t in doubled(64)])
        ['X', 'Y']
    """
    if callable(func_name):
        return _register(f"{UNNAMED}{func_name.__name__}", func_name, override)
    if f is not None:
        return _register(func_name, f, override)
    return lambda function: _register(func_name, function, override)


def _register(name: str, function: Function, override: bool) -> Function:
    if override:
        TASKS.pop(name, None)
    enter(Workload(name, function))
    return function


def register_workload_tensors(
    workload_key: str, tensors: Sequence[Tensor], override: bool = True
) -> str:
    """Register tensors, inputs and results in calling order, under any text as key, which is
    returned; TaskError where it is taken, and ``override`` is False; TensorError where they form no
    expression.
    """
    if workload_key in _TENSORS and not override:
        raise TaskError(f"the workload {workload_key!r} is registered already; give another key")
    _TENSORS[workload_key] = list(tensor_program(list(tensors)).args)
    return workload_key


def make_workload_key(func: str | Function, args: Iterable[Json]) -> str:
    """The key of a workload: JSON of its name and its arguments, defaults filled in.

    TaskError where the function, or its name, is not registered, or does not accept the arguments.
    """
    template = lookup(func)
    return json.dumps([template.name, *template.bind(args)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """Inputs and results of the workload of a key, in calling order.

    TaskError where the key is malformed, or its function is not registered.
    """
    if workload_key in _TENSORS:
        return list(_TENSORS[workload_key])
    name, args = named_workload(workload_key)
    return list(tensor_program(lookup(name).function(*args)).args)


def named_workload(workload_key: str) -> tuple[str, list[Json]]:
    name: object = None
    with suppress(TypeError, ValueError):
        name, *args = json.loads(workload_key)
    if not isinstance(name, str):
        raise TaskError(
            f"{workload_key!r:.80} is the key of no workload; make one by make_workload_key(func, "
            "args), or register tensors under it by register_workload_tensors"
        )
    return name, args


def registered_tensors(workload_key: str) -> list[Tensor] | None:
    """The tensors of a key of `register_workload_tensors`, or None."""
    return _TENSORS.get(workload_key)
