"""Pointwise chains, gathers, row and column reductions."""
