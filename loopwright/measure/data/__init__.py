"""Which data kernels run on: found from the expression, made alike in every process."""
