"""The verbs that tune."""
