"""`python -m shapevm` and the console script: see `cli`.

Ctrl-C ends them with one sentence, also while the command line is being imported.
"""

from __future__ import annotations

import os
import signal
from typing import Any

_CODE = 130  # of Ctrl-C


def _end(*_: object) -> None:
    os.write(2, b"Error: ended by Ctrl-C\n")
    os._exit(_CODE)


def run() -> None:
    """Run the command line; from a command's beginning on, Ctrl-C raises KeyboardInterrupt in it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # as in a shell's background job, which ignores it
        return __getattr__("main")()
    signal.signal(signal.SIGINT, _end)
    return __getattr__("main")(obj=lambda: signal.signal(signal.SIGINT, before))


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .cli import main

    return main


if __name__ == "__main__":
    run()
