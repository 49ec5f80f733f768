"""What devices can do at most: kernels of our own for arithmetic and memory, and their samples."""
