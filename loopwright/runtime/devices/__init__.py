"""Devices: one interface for memory, copies, streams and events; a file for each kind of them."""
