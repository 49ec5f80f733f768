"""Analytical model of GPUs: kernels, limits of their blocks, memory, cycles."""
