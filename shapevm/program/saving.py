"""Writing artifacts where a user wants them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..calls.checks import check_path, check_suffix
from ..vm.errors import FileError

if TYPE_CHECKING:
    from ..vm.program import Program


@contextmanager
def saving(path: str | os.PathLike[str]) -> Iterator[None]:
    """Check the path of an artifact, which the block writes. Raises ArgumentError for the suffix of another
    format, FileError if writing fails."""
    check_path("path", path)
    check_suffix(path)
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None


def write_changed(artifact: str, change: Callable[[Program], Program], path: str | os.PathLike[str]) -> None:
    """Write `change(program)` of an artifact's program to a file. Raises the errors of `saving`."""
    from ..vm.artifact import read, write

    with saving(path):
        write(change(read(artifact)), path)
