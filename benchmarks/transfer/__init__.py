"""Learning across workloads: what a log of many workloads is worth for a new one."""
