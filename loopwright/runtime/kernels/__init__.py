"""Callable kernels behind one protocol (`kernel.py`)."""
