"""Kernels on a GPU beside cuBLAS, cuDNN and Triton, in pieces that can be broken off anywhere."""
