"""`TemplateConfig`: methods that a template calls on its configuration, which `get_config` returns.

The first run of a template is under a `ConfigSpace`, which collects the knobs; every later run is
under a `ConfigEntity`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

from loopwright.errors import SpaceError, TaskError, did_you_mean
from loopwright.records import Json
from loopwright.task.entities import SplitEntity
from loopwright.task.knobs import Knob
from loopwright.task.policies import (
    Axis,
    AxisLike,
    annotate_knob,
    axis,
    other_knob,
    reorder_knob,
    split_knob,
)


class TemplateConfig(ABC):
    """A configuration as a template sees it: it defines knobs on it, and reads them."""

    #: Floating point operations that ``add_flop`` has counted in this run.
    flop: int = 0

    @abstractmethod
    def __getitem__(self, name: str) -> Any:
        """The entity of a knob: ``cfg["tile_i"].apply(s, C, i)``."""

    @property
    @abstractmethod
    def is_fallback(self) -> bool:
        """True when no record and no tuner chose this configuration: it is the default."""

    @abstractmethod
    def raise_error(self, msg: str) -> None:
        """Refuse the configuration, before anything is compiled: an `InstantiationError`, except in
        the run that collects the knobs."""

    @abstractmethod
    def valid(self) -> bool:
        """False when ``raise_error`` was called in the run that collects the knobs."""

    @abstractmethod
    def multi_filter(self, filter: Filter) -> None:
        """Keep only the points for which ``filter(config)`` is true, asked point by point, so that
        a space of 1e12 points costs nothing: ``lambda c: c["i"].size[-1] * c["j"].size[-1] < 512``.
        """

    @abstractmethod
    def _define(self, name: str, build: Callable[[], Knob], default: Json) -> None: ...

    @staticmethod
    def axis(var: AxisLike) -> Axis:
        return axis(var)

    #: The same for a reduction; AutoTVM's templates tell them apart.
    reduce_axis = axis

    def add_flop(self, flop: float) -> None:
        """Declare the floating point operations of one call, in place of counting them in the
        tensor expression. Several calls of this method add up."""
        self.flop += int(flop)

    def define_split(
        self,
        name: str,
        axis: AxisLike,
        policy: str = "factors",
        num_outputs: int = 2,
        *,
        filter: Callable[[SplitEntity], bool] | None = None,
        max_factor: int = 1 << 31,
        no_tail: bool = False,
        candidate: Sequence[Sequence[int]] | None = None,
        default: Sequence[int] | None = None,
    ) -> list[Axis]:
        """Define how a loop is split.

        Args:
            axis: A loop axis of a tensor, or a length.
            policy: ``factors`` (sizes that divide), ``power2`` (powers of two; a tail is left where
                they do not divide), ``verbose`` (both), or ``candidate``.
            num_outputs: Loops that come out; the outermost size is derived from the others.
            filter: Keeps a candidate for which it is true.
            max_factor: Upper limit of every size but the outermost.
            no_tail: Leave out sizes that do not divide.
            candidate: For ``candidate``: the sizes, such as ``[[-1, 8, 4], [-1, 16, 4]]``.
            default: Sizes of the default configuration; else the candidate whose innermost size
                is nearest to 16 (powers of two preferred) and whose other inner ones are near 4.

        Returns:
            The parts as axes, outermost first, for ``define_reorder`` and ``define_annotate``.
        """

        def build() -> Knob:
            return split_knob(
                name, axis, policy, num_outputs, filter, max_factor, no_tail, candidate
            )

        self._define(name, build, default)
        parts = len(candidate[0]) if policy == "candidate" and candidate else num_outputs
        return [Axis(None, f"{name}.{number}") for number in range(parts)]

    def define_reorder(
        self,
        name: str,
        axes: Sequence[AxisLike],
        policy: str,
        *,
        candidate: Sequence[Sequence[AxisLike]] | None = None,
        interval: tuple[int, int] | None = None,
        spatial: Sequence[Sequence[AxisLike]] | None = None,
        reduce: Sequence[Sequence[AxisLike]] | None = None,
        default: Sequence[int] | None = None,
    ) -> list[Axis]:
        """Define the order of loops; returns one axis per place of the new order.

        Args:
            policy: ``identity`` (one candidate), ``all`` permutations, ``interval_all``
                (permutations of ``axes[begin:end]``), ``candidate``, ``interleave``, or
                ``interleave_cuda``.
            candidate: for ``candidate``: orders, as lists of the axes or of their positions.
            interval: for ``interval_all``: ``(begin, end)``.
            spatial: for ``interleave``: chains of spatial loops; their outer parts are merged in
                every way that keeps the order within a chain.
            reduce: for ``interleave``: chains of reduction loops, merged likewise with the
                innermost loop of each spatial chain, inside the others. For ``interleave_cuda`` the
                innermost spatial loops, in the order of their chains, stand inside the reductions.
            default: permutation of the default configuration; else the order as given.
        """
        knob = partial(reorder_knob, name, axes, policy, candidate, interval, spatial, reduce)
        self._define(name, knob, default)
        return [Axis(None, f"{name}.{number}") for number in range(len(axes))]

    def define_annotate(
        self,
        name: str,
        axes: Sequence[AxisLike],
        policy: str,
        *,
        num_anchor: int | None = None,
        default: Sequence[Json] | None = None,
    ) -> None:
        """Define how loops are annotated.

        Args:
            policy: ``none``; ``unroll`` (all); ``vec`` (the innermost); ``unroll_vec`` (all
                unrolled, the innermost vectorized or unrolled); ``try_...``: the same, or none, for
                each loop on its own; ``locate_cache``: at which of the axes to compute caches;
                ``bind_gpu``: one candidate, which binds the loops to blocks and threads, of up to
                three dimensions, and fuses what is left over into the outermost;
                ``bind_gpu_virtual``: with virtual threads between the two.
            num_anchor: For ``locate_cache``: how many lists of caches.
            default: Annotations of the default configuration; else the first candidate, which
                annotates least.
        """
        self._define(name, lambda: annotate_knob(name, axes, policy, num_anchor), default)

    def define_knob(self, name: str, candidate: Sequence[Json], *, default: Json = None) -> None:
        """Define a choice among values, which the template reads as ``cfg[name].val``.

        ``candidate`` has numbers, strings, booleans, None, or tuples of these, what a record can
        store; ``default`` is the value of the default configuration, else the first.
        """
        self._define(name, lambda: other_knob(name, candidate), default)


#: A function given to ``multi_filter``: true for configurations to keep.
Filter: TypeAlias = Callable[[TemplateConfig], bool]


def missing_knob(name: object, names: Sequence[str]) -> SpaceError:
    listed = ", ".join(names) if names else "none"
    if not isinstance(name, str):
        return SpaceError(
            f"knobs are read by name, got {name!r:.60}; there are: {listed}; the configuration of "
            "an index is space.get(index)"
        )
    return SpaceError(
        f"knob {name!r} is not defined{did_you_mean(name, names)}; there are: {listed}"
    )


# A context variable: each thread and each asynchronous task runs templates of its own.
_RUNNING: ContextVar[TemplateConfig | None] = ContextVar("loopwright_config", default=None)


def get_config() -> TemplateConfig:
    """The configuration of the template that is running: define knobs on it, and read them.

    Raises:
        TaskError: no template is running.

    Example:
        >>> @lw.template("example/get_config")
        ... def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     B = te.compute((n,), lambda i: A[i] + 1, name="B")
        ...     s = te.create_schedule(B.op)
        ...     cfg = lw.get_config()
        ...     cfg.define_split("tile", B.op.axis[0], num_outputs=2)
        ...     io, ii = cfg["tile"].apply(s, B, B.op.axis[0])
        ...     return s, [A, B]
        ...
        >>> task = lw.create_task("example/get_config", (16,), "llvm")
        >>> print(task.config_space.knobs["tile"])
        tile: split of 16 into 2 loops, 5 candidates, default [-1, 16]
    """
    config = _RUNNING.get()
    if config is None:
        raise TaskError(
            "get_config() belongs inside a template: a function decorated with "
            "@loopwright.template(name), called directly or through create_task"
        )
    return config


#: The configuration of the template that is running; None outside of all.
running_config = _RUNNING.get


@contextmanager
def running(config: TemplateConfig) -> Iterator[None]:
    token = _RUNNING.set(config)
    try:
        yield
    finally:
        _RUNNING.reset(token)
