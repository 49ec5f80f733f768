"""A load or store of a stage by the threads of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.cost.gpu.device import Device
from loopwright.cost.symbolic.index_steps import LoopKey
from loopwright.cost.symbolic.loop_nest import OWN, NestLoop
from loopwright.cost.symbolic.nest_buffers import Access
from loopwright.cost.symbolic.symbols import (
    Number,
    Sym,
    at_most,
    ceil_div,
    least,
    magnitude,
    most,
    where,
)
from loopwright.cost.symbolic.warps import BANKS, WORD, Digit, sectors, wavefronts
from loopwright.ir.kinds import SHARED

#: Most bytes that a thread touches in one instruction.
WIDEST = 16


class ThreadAccess:
    """One access of a stage.

    ``loops`` are all around the statement, outermost first; ``straight`` says for each whether it
    is unrolled with all loops inside; ``launch`` has the extents of the launch axes by tag.
    """

    def __init__(
        self,
        access: Access,
        loops: Sequence[NestLoop],
        straight: Sequence[Number],
        launch: Mapping[str, Number],
        device: Device,
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
                near = at_most(magnitude(self._stride(x.key)), size)
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
        #: Number of times that a thread comes to it anew: its instructions between two of these
        #: overlap.
        self.steps = steps

    @property
    def scope(self) -> str:
        """Memory scope: ``"global"``, ``"shared"``, or ``"local"`` for registers."""
        scope = self.access.buffer.scope
        return "shared" if scope in SHARED else "local" if scope in OWN else scope

    def _stride(self, loop: LoopKey) -> Number:
        """Bytes between two iterations of a loop."""
        out: Number = 0
        buffer = self.access.buffer
        for dim, moves in zip(buffer.dims, self.access.moves, strict=True):
            for m in moves:
                if m.loop == loop:
                    apart = m.step * dim.stride * buffer.itemsize
                    out = out + where(at_most(m.count, 1), 0, apart)
        return out

    @property
    def digits(self) -> list[Digit]:
        """Positions of the threads of a warp; see `loopwright.cost.symbolic.warps`."""
        buffer = self.access.buffer
        found: dict[object, Digit] = {}
        for dim, moves in zip(buffer.dims, self.access.moves, strict=True):
            for m in moves:
                x = self._loops.get(m.loop)
                if x is None or not x.tag.startswith("threadIdx"):
                    continue
                stride = m.step * dim.stride * buffer.itemsize
                # A loop that moves several dimensions at once is one movement.
                key = (
                    m.loop,
                    *(n.number if isinstance(n, Sym) else (n,) for n in (m.run, m.count)),
                )
                before = found.get(key, (0, 1, 1))[0]
                found[key] = (before + stride, m.run * self._faster(x.tag), m.count)
        return list(found.values())

    def _faster(self, tag: str) -> Number:
        """Neighbouring threads with one value of an axis."""
        out: Number = 1
        for faster in "xyz"[: "xyz".index(tag[-1])]:
            out = out * self._launch.get(f"threadIdx.{faster}", 1)
        return out

    @property
    def _threads(self) -> Number:
        out: Number = 1
        for tag, n in self._launch.items():
            out = out * n if tag.startswith("threadIdx") else out
        return out

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
