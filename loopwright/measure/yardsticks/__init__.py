"""Limits of devices: kernels of our own for arithmetic and memory, and their samples."""
