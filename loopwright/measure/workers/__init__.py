"""Worker processes: the protocol, the roles of builders and runners, and the parent's handle."""
