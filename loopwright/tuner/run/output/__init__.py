"""Output of a run: progress, phases, log lines and the summary."""
