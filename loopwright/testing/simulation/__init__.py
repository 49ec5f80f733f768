"""Parts of `loopwright.testing.simulated_device`: memory, streams, kernels."""
