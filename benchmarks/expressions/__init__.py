"""Expressions without a template beside NumPy and PyTorch.

``python -m benchmarks.expressions`` prints the table; `cases` lists what is computed.
"""
