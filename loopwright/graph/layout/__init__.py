"""The graph tuner: which layout each convolution has, chosen by what kernels and copies cost."""
