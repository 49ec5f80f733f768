"""Index of a large log: a file beside it that saves parsing every line.

The index is never the truth. It is compared with the bytes of the log each time, what differs is
read again, and a record whose trace is wanted is parsed from its line.
"""
