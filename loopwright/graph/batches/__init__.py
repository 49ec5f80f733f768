"""Models of any batch: a program for each of some batches, and one whose kernels take the rest."""
