"""Operator declarations, one file per family."""
