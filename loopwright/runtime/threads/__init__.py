"""Threads of the host: a pool for Python work, and where threads of either pool run."""
