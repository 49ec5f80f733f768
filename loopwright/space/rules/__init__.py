"""Rules that derive structures from the analysis of an expression."""
