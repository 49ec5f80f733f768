"""Logs of many records without parsing every line: a file beside the log knows what they say.

The index is never the truth. It is compared with the bytes of the log each time, what differs is
read again, and a record whose trace is wanted is parsed from its line.
"""
