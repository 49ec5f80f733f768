"""Models of any batch: programs for declared batches, and one of symbolic size for others."""
