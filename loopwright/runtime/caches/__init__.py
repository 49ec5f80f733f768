"""What was made once is kept: values in memory by bytes, and compiled code on disk by content."""
