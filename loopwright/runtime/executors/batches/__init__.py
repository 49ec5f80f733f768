"""Models whose batch is known only when they run: programs of some batches, and one of any."""
