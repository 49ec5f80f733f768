"""Building from records: sources of logs, records that fit here, and reports of the choice."""
