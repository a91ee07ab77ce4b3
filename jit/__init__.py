"""Kernel specs to machine code."""
