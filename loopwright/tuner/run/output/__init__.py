"""What a run shows and says: progress, phases, log lines and the summary."""
