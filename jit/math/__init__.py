"""Scalar operations: the table of them, their vector code, and their definitions in numpy."""
