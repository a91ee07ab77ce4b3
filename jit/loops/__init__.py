"""Common parts of kernel families: loops, tiles of the work, and scalar bodies as vector code."""
