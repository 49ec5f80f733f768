"""Worker processes: the protocol, what builders and runners do, and the parent's handle of one."""
