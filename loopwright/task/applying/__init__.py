"""Building from records: what counts as a log, which records fit here, and what is said of it."""
