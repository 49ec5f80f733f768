"""Rules that turn what an expression is into structures, one a file."""
