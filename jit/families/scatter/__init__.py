"""Updates at indices, one after the other."""
