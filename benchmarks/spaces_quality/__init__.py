"""How good automatic spaces are as spaces, and whether each of their points builds and is right.

``python -m benchmarks.spaces_quality`` does the work.
"""
