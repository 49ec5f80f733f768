"""Kernels of a schedule: launches, stages, resources of blocks and threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from loopwright.cost.cpu.arithmetic import work_of
from loopwright.cost.gpu.device import (
    GpuProperties,
    blocks_per_processor,
    free_registers,
    register_cap,
    warps_of,
)
from loopwright.cost.symbolic.loop_nest import OWN, NestAccess, NestLoop, StageNest, nests_of
from loopwright.cost.symbolic.symbols import (
    Number,
    Sym,
    at_most,
    ceil_div,
    largest,
    least,
    magnitude,
    most,
    product,
    total,
    where,
)
from loopwright.cost.symbolic.warps import BANKS, WORD, Digit, sectors, wavefronts
from loopwright.ir.kinds import SHARED
from loopwright.schedule import StageId, State, cross_tags

WIDEST = 16  #: most bytes that a thread touches in one instruction


class ThreadAccess:
    """One access of a stage, inside ``loops``, outermost first.

    ``straight`` says for each loop whether it is unrolled with all inside; ``launch`` has the
    extents of the launch axes by tag.
    """

    def __init__(
        self,
        access: NestAccess,
        loops: Sequence[NestLoop],
        straight: Sequence[Number],
        launch: Mapping[str, Number],
        device: GpuProperties,
    ) -> None:
        self.access, self._launch, self._device = access, launch, device
        self._loops = {x.key: x for x in loops}
        moving = {m.loop for moves in access.moves for m in moves}
        size = access.buffer.itemsize
        out: Number = 1
        steps: Number = 1
        still: Number = True
        pieces: Number = 1
        self.width: Number = size  # bytes per instruction
        for x, here in reversed(list(zip(loops, straight, strict=True))):
            if x.mark == "thread" and x.tag != "vthread":
                continue
            if x.mark == "vectorized" and x.key in moving:
                whole = x.extent * size
                stride: Number = 0
                for dim, moves in zip(access.buffer.dims, access.moves, strict=True):
                    for m in (m for m in moves if m.loop == x.key):
                        apart = m.step * dim.stride * size
                        stride = stride + where(at_most(m.count, 1), 0, apart)
                near = at_most(magnitude(stride), size)
                self.width = where(near, least(whole, WIDEST), size)
                pieces = where(near, ceil_div(whole, WIDEST), x.extent)
            elif x.key in moving:
                out = out * x.extent
                steps = steps * where(here, 1, x.extent)
                still = where(at_most(x.extent, 1), still, False)
            else:
                # Data that a loop does not move is loaded before it, or once for its copies.
                again = where(here, 1, where(still, 1, x.extent))
                out, steps = out * again, steps * again
        self.requests = out * pieces  # instructions of a thread in a whole run of its block
        #: Number of times that a thread comes to it anew; instructions between two of them overlap.
        self.steps = steps

    @property
    def scope(self) -> str:
        """Memory scope: ``"global"``, ``"shared"``, or ``"local"`` for registers."""
        scope = self.access.buffer.scope
        return "shared" if scope in SHARED else "local" if scope in OWN else scope

    @property
    def digits(self) -> list[Digit]:
        """Positions of the threads of a warp; see `loopwright.cost.symbolic.warps`."""
        buffer = self.access.buffer
        digits: dict[object, Digit] = {}
        for dim, moves in zip(buffer.dims, self.access.moves, strict=True):
            for m in moves:
                x = self._loops.get(m.loop)
                if x is None or not x.tag.startswith("threadIdx"):
                    continue
                stride = m.step * dim.stride * buffer.itemsize
                # A loop that moves several dimensions at once is one movement.
                run, count = (n.number if isinstance(n, Sym) else (n,) for n in (m.run, m.count))
                key = (m.loop, run, count)
                before = digits.get(key, (0, 1, 1))[0]
                # Neighbouring threads with one value of the axis.
                faster = "xyz"[: "xyz".index(x.tag[-1])]
                threads = product(self._launch.get(f"threadIdx.{a}", 1) for a in faster)
                digits[key] = (before + stride, m.run * threads, m.count)
        return list(digits.values())

    @property
    def _threads(self) -> Number:
        return product(n for tag, n in self._launch.items() if tag.startswith("threadIdx"))

    @property
    def sectors(self) -> Number:
        """Memory segments that a warp touches in one instruction."""
        d = self._device
        return sectors(d.segment, d.warp, self._threads, self.width, self.digits)

    @property
    def dense(self) -> Number:
        """Segments of a warp's instruction if its threads accessed contiguous memory."""
        d = self._device
        return ceil_div(least(self._threads, d.warp) * self.width, d.segment)

    @property
    def wavefronts(self) -> Number:
        """Turns of the banks for one instruction of a warp."""
        d = self._device
        return wavefronts(d.warp, self._threads, self.width, self.digits) if d.lockstep else 1

    @property
    def fewest_turns(self) -> Number:
        """Turns of an instruction of this width without bank conflicts."""
        if not self._device.lockstep:
            return 1
        threads = least(self._threads, self._device.warp)
        return ceil_div(threads * most(self.width, WORD), BANKS * WORD)

    def wave_share(self, blocks: Number) -> Number:
        """Data of the first ``blocks`` blocks, run together, over the sum of what each touches."""
        places: Number = 1
        for moves in self.access.moves:
            for m in moves:
                x = self._loops.get(m.loop)
                if x is None or not x.tag.startswith("blockIdx"):
                    continue
                slower = m.run
                for faster in "xyz"[: "xyz".index(x.tag[-1])]:
                    slower = slower * self._launch.get(f"blockIdx.{faster}", 1)
                places = places * least(ceil_div(blocks, slower), m.count)
        return least(places / blocks, 1)


_ALIGNED = 16  #: bytes to which buffers in shared memory are aligned
#: Quarters of a register: for indices and results on their way, for the address of an access, for
#: four bytes of a thread's buffers, and for each value that is loaded before it is used.
_OTHER, _ADDRESS, _KEPT, _LOADED = 28, {"global": 8, "shared": 6, "local": 0}, 3, 7
#: Shares of the free registers that compilers fill with loads of one statement, and with those of
#: iterations that they overlap; and iterations from which on they do.
_AHEAD, _OVERLAPPED, _REPEATED = (3, 8), (3, 4), 4

#: Multiplications of a tensor core's instruction for each one that lanes make in its time.
TENSOR_CORE = 8


class KernelStage:
    def __init__(
        self, nest: StageNest, launch: Mapping[str, Number], device: GpuProperties
    ) -> None:
        self.nest, self._device = nest, device
        loops = nest.loops
        self.threads = _extents(loops, "threadIdx")  # threads of a block that take part
        inner = [x for x in loops if x.mark != "thread" or x.tag == "vthread"]
        self.iterations = product(x.extent for x in inner)  # runs of the statement per thread
        if nest.scope == "warp":  # its lanes share the work
            self.threads = self.threads * launch.get("threadIdx.x", 1)
            speedup = 1 if nest.stage.tensorized is None else TENSOR_CORE
            self.iterations = self.iterations / (device.warp * speedup)
        self.warps = warps_of(device, self.threads)
        # Loops over registers are unrolled with all inside.
        registers = [a for a in nest.accesses if a.buffer.scope in OWN]
        moving = {m.loop for a in registers for moves in a.moves for m in moves}
        straight = self._straight = list[Number]()
        here: Number = True
        for x in reversed(loops):
            if x.mark not in ("unrolled", "vectorized", "thread") and x.key not in moving:
                here = where(at_most(x.extent, 1), here, False)
            straight.insert(0, True if x.tag == "vthread" else here)
        #: its store, then its loads
        self.accesses = [ThreadAccess(a, loops, straight, launch, device) for a in nest.accesses]
        #: iterations, together, of a thread's loops that remain loops in the generated code
        self.chain = product(
            where(here, 1, x.extent)
            for x, here in zip(loops, straight, strict=True)
            if x.mark != "thread"
        )
        self.written = product(
            where(here, x.extent, 1)
            for x, here in zip(loops, straight, strict=True)
            if x.mark != "thread" or x.tag == "vthread"
        )

    @property
    def operations(self) -> int:
        """Arithmetic instructions of one iteration; a multiply-add is one."""
        w = work_of(self.nest.op)
        return max(w.add, w.mul) + w.other + 8 * w.div + 16 * w.call

    @cached_property
    def independent(self) -> Number:
        """Results of a thread that do not wait for one another."""
        if self.nest.op.reduction is None:
            return self.written
        nest = self.nest
        moving = {m.loop for a in nest.op.axes for m in nest.axes[a.var].moves}
        return product(
            where(here, x.extent, 1)
            for x, here in zip(nest.loops, self._straight, strict=True)
            if x.key in moving and (x.mark != "thread" or x.tag == "vthread")
        )

    @property
    def crosses(self) -> bool:
        return bool(cross_tags(self.nest.stage))

    @cached_property
    def combinations(self) -> Number:
        """Number of such combinations."""
        spatial = [x for x in self.nest.loops if x.kind != "reduce" and x.mark != "thread"]
        return product(x.extent for x in spatial) if self.crosses else 0


class GpuKernel:
    def __init__(self, nests: Sequence[StageNest], device: GpuProperties) -> None:
        self.device, self.nests = device, list(nests)
        self.launch = _launch(nests)  # extents of its axes, by tag
        self.grid = product(n for t, n in self.launch.items() if t.startswith("blockIdx"))  # blocks
        #: threads of a block
        self.threads = product(n for t, n in self.launch.items() if t.startswith("threadIdx"))
        self.warps = warps_of(device, self.threads)
        self.stages = [KernelStage(n, self.launch, device) for n in nests]  # the root last

    @property
    def vthreads(self) -> Number:
        return _extents([x for x in self.nests[-1].loops if x.tag == "vthread"], "vthread")

    @cached_property
    def shared_bytes(self) -> Number:
        """Bytes of a block: buffers, and rows in which threads combine reductions."""
        out: Number = 0
        for nest in self.nests:
            if nest.attached and nest.scope in SHARED and nest.buffer is not None:
                out = out + _aligned(nest.buffer.allocated)
            if cross_tags(nest.stage) and nest.buffer is not None:
                lanes = _extents([x for x in nest.loops if x.kind == "reduce"], "threadIdx")
                rows = _aligned(self.threads * nest.buffer.all_bytes)
                out = out + where(at_most(lanes, 1), 0, rows)
        return out

    @cached_property
    def local_bytes(self) -> Number:
        """Bytes of a thread's buffers."""
        out: Number = 0
        for nest in self.nests:
            if nest.attached and nest.scope in OWN and nest.buffer is not None:
                lanes = self.device.warp if nest.scope == "warp" else 1
                moving = {m.loop for index in nest.axes.values() for m in index.moves}
                # Virtual threads that compute different elements have buffers of their own where
                # they meet while these are used; otherwise they run one after the other.
                apart = [x for x in nest.loops if x.key in moving] if self.meets else []
                out = out + ceil_div(nest.buffer.allocated, lanes) * _extents(apart, "vthread")
            if cross_tags(nest.stage) and nest.buffer is not None:
                own = nest.loops[len(nest.loops) - nest.own :]
                sums = product(x.extent for x in own if x.kind != "reduce" and x.mark != "thread")
                out = out + sums * nest.buffer.all_bytes
        return out

    @property
    def meets(self) -> bool:
        """Whether the threads of a block cooperate."""
        return any((n.attached and n.scope in SHARED) or cross_tags(n.stage) for n in self.nests)

    @cached_property
    def registers(self) -> Number:
        """Estimated registers of a thread: most of its buffers, addresses, operands loaded ahead.

        The number of loads ahead and of overlapped iterations depends on the registers that cost no
        occupancy: small blocks have many. The constants are fitted to the output of NVRTC 13 for
        random points of the templates for sm_90 (`benchmarks/gpu_estimates.py`).
        """
        addresses = sum(_ADDRESS[a.scope] for s in self.stages for a in s.accesses)
        free = free_registers(self.device, self.threads)
        ahead: Number = 0  # registers of operands that an unrolled statement loads ahead
        for s in self._loading:
            loads = [a for a in s.accesses[1:] if a.scope != "local"]
            each = total(ceil_div(a.requests * a.width, 4 * most(a.steps, 1)) for a in loads)
            ahead = most(ahead, least(each, s.written))
        loaded = least(ahead, free * _AHEAD[0] // _AHEAD[1])
        out = _OTHER + addresses + self.local_bytes // 4 * _KEPT + loaded * _LOADED
        # Iterations of the loop that loads most often.
        repeated = at_most(_REPEATED, largest(s.chain for s in self._loading))
        return most(out // 4, where(repeated, free * _OVERLAPPED[0] // _OVERLAPPED[1], 0))

    @property
    def _loading(self) -> list[KernelStage]:
        """Stages that load from beyond a thread's registers."""
        return [s for s in self.stages if any(a.scope != "local" for a in s.accesses[1:])]

    @cached_property
    def register_cap(self) -> Number:
        return register_cap(self.device, self.threads)

    @cached_property
    def spilled(self) -> Number:
        """Registers that a thread needs beyond the cap."""
        return most(self.registers - self.register_cap, 0)

    @cached_property
    def resident(self) -> Number:
        """Blocks that a processor holds at a time; 0 where it holds none."""
        used = least(self.registers, self.register_cap)
        return blocks_per_processor(self.device, self.threads, used, self.shared_bytes)

    @property
    def occupancy(self) -> Number:
        """Share of the warps that a processor can hold: 0 to 1."""
        return self.resident * self.warps / self.device.processor.warps

    @property
    def at_once(self) -> Number:
        """Blocks that run at the same time on all processors."""
        return most(self.resident, 1) * self.device.processors

    @property
    def waves(self) -> Number:
        return ceil_div(self.grid, self.at_once)

    @property
    def tail(self) -> Number:
        """Share of the block slots of all waves that have a block: 0 to 1."""
        return self.grid / (self.waves * self.at_once)


def kernels_of(
    state: State, device: GpuProperties, nests: Iterable[StageNest] | None = None
) -> list[GpuKernel]:
    """Kernels of a schedule in execution order; ``nests`` are its stages, if already known."""
    members: dict[StageId, list[StageNest]] = {}
    place = {sid: n for n, sid in enumerate(state.order)}
    for nest in sorted(nests or nests_of(state), key=lambda n: place[n.stage.id]):
        if nest.kernel:
            members.setdefault(nest.root, []).append(nest)
    return [GpuKernel(members[i], device) for i in state.order if i in members]


def _launch(nests: Sequence[StageNest]) -> dict[str, Number]:
    """Extents of the launch axes by tag: the first stage with an axis, readers first, decides."""
    axes = [axis for nest in nests[-1:] for axis in nest.stage.env_threads]
    out: dict[str, Number] = {tag: n for tag, n in axes if n is not None}
    for nest in reversed(nests):
        for x in nest.loops[len(nest.loops) - nest.own :]:
            if x.mark == "thread" and x.tag != "vthread":
                out.setdefault(x.tag, x.extent)
    return out


def _extents(loops: Sequence[NestLoop], family: str) -> Number:
    """Product of the extents of the loops bound to axes of a family."""
    return product(x.extent for x in loops if x.mark == "thread" and x.tag.startswith(family))


def _aligned(size: Number) -> Number:
    return ceil_div(size, _ALIGNED) * _ALIGNED
