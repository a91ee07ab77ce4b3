"""The handle of a loaded program: all uses of an `svm_program *` go through it, so one thread may close the
program while others use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._runtime import ffi, lib
from .errors import ArgumentError
from .values import check


class ProgramClosed(ArgumentError):
    """The program was closed before it was used."""

    def __init__(self) -> None:
        super().__init__("the program is closed; load the artifact again")


class Handle:
    """A loaded program in C. Its uses keep it from being freed: `close` only prevents new uses, and the last
    running use frees the program.

    >>> with handle as program:
    ...     lib.svm_n_kernels(program)
    """

    def __init__(self, program: Any) -> None:
        """Take over an `svm_program *`."""
        self._program = ffi.gc(lib.svm_retain(program), lib.svm_release)
        self.is_open = True

    @property
    def pointer(self) -> Any:
        """The `svm_program *`, for calls: they need no `use`, and fail once the program is closed."""
        return self._program

    def use(self) -> Use:
        """Return a context manager that yields the pointer and keeps the program alive within it. Raises
        ProgramClosed."""
        return Use(self._program)

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return function(program, *args) for a C function that cannot fail. Raises ProgramClosed."""
        with Use(self._program) as program:
            return function(program, *args)

    def run(self, function: Callable[..., int], *args: Any) -> None:
        """Call function(program, *args, error). Raises the error's exception, or ProgramClosed."""
        error = ffi.new("svm_error *")
        with Use(self._program) as program:
            check(function(program, *args, error), error)

    def text(self, function: Callable[..., int], *args: Any) -> str:
        """Return the text that a C function allocates for svm_text_free. Raises the errors of `run`."""
        text = ffi.new("char **")
        self.run(function, *args, text)
        try:
            return ffi.string(text[0]).decode(errors="replace")
        finally:
            lib.svm_text_free(text[0])

    def close(self) -> None:
        """Prevent new uses; closing twice is allowed."""
        self.is_open = False
        lib.svm_close(self._program)


class Use:
    """One use of a program; see `Handle.use`."""

    __slots__ = ("_program", "_use")

    def __init__(self, program: Any) -> None:
        self._program = program

    def __enter__(self) -> Any:
        self._use = lib.svm_enter(self._program, ffi.NULL)
        if self._use == ffi.NULL:
            raise ProgramClosed
        return self._program

    def __exit__(self, *_: object) -> None:
        lib.svm_leave(self._use)
