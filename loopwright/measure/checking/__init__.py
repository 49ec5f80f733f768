"""Is the answer of a kernel right: references, tolerance, and when a candidate is checked."""
