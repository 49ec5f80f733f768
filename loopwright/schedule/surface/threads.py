"""The primitives of `Stage` that are about GPU threads."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Cast, Const, Expr, IterVar, Var
from loopwright.schedule.rules import Bind, EnvThreads, SetStorePredicate
from loopwright.schedule.surface.view import StageView
from loopwright.te.tensor import THREAD_TAGS

#: ``te.thread_axis(...)``, its tag, or ``(tag, extent)``.
ThreadAxis = IterVar | str | tuple[str, int | None]


class ThreadPrimitives(StageView):
    """``bind``, ``env_threads`` and ``set_store_predicate``."""

    def bind(self, ivar: IterVar, thread_ivar: ThreadAxis) -> None:
        """Run the iterations of a loop as GPU threads; the interpreter runs them too.

        All stages of one kernel (a root stage and those computed inside it) share the axes by
        name. The first stage with the axis, the root first, gives it its extent; a shorter loop
        runs under ``if threadIdx.x < n``. A stage in shared memory that does not use an axis runs
        on its thread 0.

        A reduction loop may be bound to threadIdx: each thread accumulates what it runs over, the
        threads combine the results in shared memory, and one of them stores
        (`set_store_predicate`)::

            for threadIdx.x in thread(64):
              C.acc = sum of A[i, threadIdx.x + ko * 64] over ko
              C.acc = sum over threadIdx.x of C.acc      # a tree, with barriers
              if threadIdx.x < 1: C[i] = C.acc

        ``vthread`` makes virtual threads: the body is repeated for each, buffers inside that
        differ between them get one more dimension, and what they share runs once::

            for v in vthread(2):                    C.local = alloc([2, 4])
              C.local = alloc([4])                  for k:
              for k:                         ->       S[...] = A[...]           # shared, once
                S[...] = A[...]                       for v in unrolled(2):
                C.local[j] += S[k, v * 4 + j]           C.local[v, j] += S[k, v * 4 + j]

        Virtual threads without launch axes around them are an unrolled loop, on a CPU too. Code for
        a CPU has no blockIdx and threadIdx: ``llvm`` and ``c`` refuse them by name.

        Args:
            ivar: the loop.
            thread_ivar: ``te.thread_axis(...)``, its tag, or ``(tag, extent)``. A declared extent
                must be that of the launch.

        Raises:
            ScheduleError: unknown axis; the stage has a loop on it already; a reduction is bound
                to blockIdx or vthread; (when lowering) extents that do not agree, a loop of a stage
                in local memory, blockIdx inside a kernel, threads over an extent that depends on
                sizes.
            LowerError: (when lowering) threads would have to wait for others that do not come.
            CodegenError: (when building for a CPU) blockIdx or threadIdx.

        Example:
            >>> A = te.placeholder((2, 64), name="A")
            >>> B = te.compute((2, 64), lambda i, j: A[i, j] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2, 64], B: out float32[2, 64]):
              for i in range(2):
                for j in range(64):
                  B[i, j] = A[i, j] + 1.0
            >>> i, j = B.op.axis
            >>> s[B].bind(i, te.thread_axis("blockIdx.x"))
            >>> s[B].bind(j, te.thread_axis("threadIdx.x"))
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2, 64], B: out float32[2, 64]):
              # bound = B.i
              for blockIdx.x in thread(2):
                # bound = B.j
                for threadIdx.x in thread(64):
                  B[blockIdx.x, threadIdx.x] = A[blockIdx.x, threadIdx.x] + 1.0
        """
        tag, extent = self._thread_axis(thread_ivar, "bind")
        self.schedule.apply_step(Bind(self.id, self.loop_id(ivar, "bind"), tag, extent))

    def env_threads(self, threads: ThreadAxis | Sequence[ThreadAxis]) -> None:
        """Launch the kernel of this root stage with thread axes that its own loops need not use.

        Stages computed inside bind their loops to these axes and so share the work.

        Args:
            threads: thread axes; one without an extent takes it from the first loop bound to it.

        Raises:
            ScheduleError: the stage is not at root, has thread axes already, or an axis is no
                launch axis or given twice; (when lowering) an axis whose extent nobody gives.

        Example:
            >>> A = te.placeholder((2,), name="A")
            >>> B = te.compute((2,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              # bound = B.i
              for blockIdx.x in thread(2):
                B[blockIdx.x] = A[blockIdx.x] + 1.0
            >>> s[B].env_threads([te.thread_axis((0, 64), "threadIdx.x")])
            >>> print(lw.lower(s, [A, B]))
            def main(A: float32[2], B: out float32[2]):
              # bound = B.i
              for blockIdx.x in thread(2):
                # bound = env_threads of B
                for threadIdx.x in thread(64):
                  if threadIdx.x < 1:
                    B[blockIdx.x] = A[blockIdx.x] + 1.0
        """
        group = threads if isinstance(threads, list | tuple) else [threads]
        axes = tuple(self._thread_axis(x, "env_threads") for x in group)
        self.schedule.apply_step(EnvThreads(self.id, axes))

    def set_store_predicate(self, predicate: Expr | list[tuple[str, int]]) -> None:
        """Choose which of the threads that reduce together stores the result.

        Args:
            predicate: ``axis.var.equal(n)`` of a thread axis that the reduction is bound to, or
                several joined by ``te.all``; or a list of ``(tag, n)``.

        Raises:
            ScheduleError: another kind of condition; no reduction loop is bound to the axis (the
                test would leave elements unset).

        Example:
            >>> A = te.placeholder((4, 64), name="A")
            >>> k = te.reduce_axis((0, 64), name="k")
            >>> B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
            >>> s = te.create_schedule(B.op)
            >>> tx = te.thread_axis("threadIdx.x")
            >>> s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
            >>> s[B].bind(k, tx)
            >>> print(str(lw.lower(s, [A, B])).splitlines()[-2].strip())
            if threadIdx.x == 0:
            >>> s[B].set_store_predicate(tx.var.equal(3))
            >>> print(str(lw.lower(s, [A, B])).splitlines()[-2].strip())
            if threadIdx.x == 3:
        """
        equal = predicate if isinstance(predicate, list) else self._equalities(predicate)
        self.schedule.apply_step(SetStorePredicate(self.id, tuple(equal)))

    def _thread_axis(self, axis: object, verb: str) -> tuple[str, int | None]:
        """Tag and declared extent of a thread axis or its name."""
        match axis:
            case str():
                return axis, None
            case (str(tag), int() | None as extent):
                return tag, extent
            case IterVar(thread_tag=tag, extent=int() as extent) if tag:
                self.schedule._thread_vars[axis.var] = tag
                return tag, extent or None
        raise ScheduleError(f"{self._who(verb)}: expected te.thread_axis(...), got {axis!r}")

    def _equalities(self, e: object) -> list[tuple[str, int]]:
        match e:
            case Binary(op="and", a=a, b=b):
                return [*self._equalities(a), *self._equalities(b)]
            case Binary(op="==", a=a, b=b):
                var, value = _uncast(a), _uncast(b)
                if isinstance(var, Var) and isinstance(value, Const):
                    return [(self._tag(var), int(value.value))]
        raise ScheduleError(
            f"{self._who('set_store_predicate')}: expected axis.var.equal(n) of thread axes, "
            f"joined by te.all; got {e!r}"
        )

    def _tag(self, var: Var) -> str:
        tag = self.schedule._thread_vars.get(var) or (var.name if var.name in THREAD_TAGS else "")
        if not tag:
            raise ScheduleError(
                f"{self._who('set_store_predicate')}: {var.name!r} is no thread axis of this "
                "schedule; bind a loop to it first"
            )
        return tag


def _uncast(e: Expr) -> Expr:
    return e.value if isinstance(e, Cast) else e
