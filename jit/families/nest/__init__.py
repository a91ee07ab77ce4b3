"""Pointwise chains, gathers, row and column reductions, and concatenations."""
