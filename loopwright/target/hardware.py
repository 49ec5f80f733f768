"""Parameters of a target's machine for cost models and rules, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.target.caches import Caches


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """Parameters of a target's machine; Ansor's ``HardwareParams``.

    Each has an option of the target that overrides what was found. Sizes of caches and vectors are
    those of a CPU, the last five those of a device that runs kernels; of the other kind all are 0.

    Attributes:
        num_cores: threads of parallel loops (option ``num_threads``), or processors that run blocks
            (``multi_processor_count``); 0 for all that this machine has.
        vector_unit_bytes: bytes of a vector register (``prefer_vector_width``, in bits), or what a
            thread of a device reads or writes at once (``max_vector_bytes``).
        vector_registers: vector registers of a core (``mattr``).
        caches: bytes of the data caches and of a line (``l1_cache_bytes``, ``l2_cache_bytes``,
            ``l3_cache_bytes``, ``cache_line_bytes``).
        max_threads_per_block: threads of a block (option of the same name).
        max_shared_memory_per_block: bytes of shared memory of a block (likewise).
        max_local_memory_per_thread: bytes of a thread's own buffers (likewise).
        max_vthread_extent: virtual threads of one loop (``max_vthread``).
        warp_size: threads that run in lockstep (``thread_warp_size``).

    Example:
        >>> target = lw.Target("llvm -mcpu=x86-64-v3 -l2-cache-bytes=524288 -num-threads=4")
        >>> print(target.hardware.caches.l2, target.hardware.vector_unit_bytes)
        524288 32
    """

    num_cores: int
    vector_unit_bytes: int
    vector_registers: int
    caches: Caches
    max_threads_per_block: int = 0
    max_shared_memory_per_block: int = 0
    max_local_memory_per_thread: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    @property
    def cache_line_bytes(self) -> int:
        """Bytes of a cache line."""
        return self.caches.line
