"""The analytical model of GPUs: kernels, what limits their blocks, memory, cycles."""
