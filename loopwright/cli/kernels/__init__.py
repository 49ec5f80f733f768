"""The verbs that build, run or time the kernel of a workload or of a record."""
