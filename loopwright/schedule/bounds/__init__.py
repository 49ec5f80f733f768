"""Bound inference: extents and values of loops, regions of stages, launches of kernels."""
