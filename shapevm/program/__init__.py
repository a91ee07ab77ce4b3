"""A loaded program: opening artifacts, trust, limits, calls, saving."""
