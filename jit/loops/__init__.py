"""What kernel families share: loops, tiles of the work, and scalar bodies as vector code."""
