"""The graph tuner: the layout of each convolution, chosen by the cost of kernels and transforms."""
