"""A flag that stops running calls from another thread."""

from __future__ import annotations

from ._runtime import ffi


class CancelFlag:
    """Stops calls: those that run with it, `exe.using(cancel=flag)(x)`, raise Cancelled soon after any thread
    has called `set`, and later ones at once. A flag is set once and for all."""

    def __init__(self) -> None:
        self.pointer = ffi.new("int32_t *")  # read by the runtime between kernels and tiles

    def set(self) -> None:
        """Stop the calls that have this flag."""
        self.pointer[0] = 1

    @property
    def is_set(self) -> bool:
        """Whether `set` was called."""
        return bool(self.pointer[0])
