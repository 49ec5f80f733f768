"""Arrays in the memory of the host and of devices; `loopwright.runtime.ndarray` makes them."""
