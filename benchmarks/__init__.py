"""Benchmarks: ``python -m benchmarks`` (or ``make bench``) prints a table and writes JSON."""
