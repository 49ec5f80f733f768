"""Input data of kernels: found from the expression, made alike in every process."""
