"""Threads of the host: a pool for Python work, and CPUs of the threads of either pool."""
