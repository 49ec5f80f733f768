"""The playoff: the best few and the default measured once more, in turns, and compared."""
