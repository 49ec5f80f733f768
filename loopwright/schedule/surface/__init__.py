"""The objects that users hold: `Schedule`, `Stage`, `Group`; their methods make steps."""
