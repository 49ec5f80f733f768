"""``apply(state, step) -> state``: the structural rules and the effect of every primitive.

Pure: a state is never changed. Rules that need extents are in `loopwright.schedule.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from loopwright.schedule import steps as st
from loopwright.schedule.rules import (
    caching,
    grouping,
    layout,
    loops,
    placement,
    prefetch,
    rfactor,
    storage,
    tensorize,
    threads,
)
from loopwright.schedule.state import State


def apply(state: State, step: st.Step) -> State:
    """Apply one step.

    Raises:
        ScheduleError: the step is illegal in this state: which step, which loop, why, and what to
            do instead.
    """
    new = _APPLY[type(step)](state, step, state.steps)
    new = grouping.keep_groups(state, new, step) if new.groups else new
    return replace(new, steps=state.steps + 1)


_APPLY: dict[type, Callable[[State, Any, int], State]] = {
    st.Split: loops.split,
    st.Fuse: loops.fuse,
    st.Reorder: loops.reorder,
    st.Annotate: loops.annotate,
    st.Bind: threads.bind,
    st.EnvThreads: threads.env_threads,
    st.SetStorePredicate: threads.set_store_predicate,
    st.Pragma: loops.pragma,
    st.Prefetch: prefetch.prefetch,
    st.ComputeAt: grouping.compute_at,
    st.ComputeInline: placement.compute_inline,
    st.ComputeRoot: grouping.compute_root,
    st.CreateGroup: grouping.create_group,
    st.CacheRead: caching.cache_read,
    st.CacheWrite: caching.cache_write,
    st.RFactor: rfactor.rfactor,
    st.TransformLayout: layout.transform_layout,
    st.StoreAt: storage.store_at,
    st.StoreRoot: storage.store_root,
    st.DoubleBuffer: storage.double_buffer,
    st.SetScope: storage.set_scope,
    st.StorageAlign: storage.storage_align,
    st.Tensorize: tensorize.tensorize,
}
