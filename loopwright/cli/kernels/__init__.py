"""The verbs that make a kernel, of a workload or of a record, and run or time it."""
