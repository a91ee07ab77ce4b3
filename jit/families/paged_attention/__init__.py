"""Attention to keys and values in pages of a cache."""
