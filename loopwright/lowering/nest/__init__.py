"""Building the loop nest of a schedule: loops, buffers, guards, reductions, kernels."""
