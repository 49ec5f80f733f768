"""What `loopwright.testing.simulated_device` is made of: memory, streams, kernels."""
