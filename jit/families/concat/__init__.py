"""Several nests that fill one output."""
