"""Machine code as data: the linker, code objects, and the caches that keep them."""
