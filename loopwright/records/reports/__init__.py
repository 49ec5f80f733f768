"""Reports of a log, from its lines alone: curve, failures, importance of knobs, differences.

Every function takes records and returns frozen dataclasses in SI units, so that the command line,
pages and users of Python see the same. The modules are imported by name
(``from loopwright.records.reports import curve``): some load SciPy or XGBoost when they are called.
"""
