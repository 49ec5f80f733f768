"""The analytical model of CPUs: what a schedule does to the caches, registers and units."""
