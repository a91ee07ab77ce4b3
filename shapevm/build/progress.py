"""Progress of long operations, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

PATIENCE = 2.0  # seconds that pass before anything is shown


class _FirstOutput:
    """A stream that calls `before` at the first write to it, and otherwise behaves as the wrapped stream."""

    def __init__(self, stream: Any, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "writelines", "buffer"):
            self._before()
        return getattr(self._stream, name)


@contextmanager
def waiting(what: str, is_quiet: bool = False) -> Iterator[None]:
    """Show the current operation once it takes over PATIENCE seconds: a spinner with a clock on a terminal, a
    line elsewhere. It ends when something is printed."""
    lock, shown, is_over, stdout = Lock(), [], False, sys.stdout

    def show() -> None:
        with lock:
            if not is_over:
                shown.append(_spinner(what))

    def end() -> None:
        nonlocal is_over
        timer.cancel()
        with lock:
            is_over = True
            while shown:
                spinner = shown.pop()
                if spinner is not None:
                    spinner.stop()

    timer = Timer(PATIENCE, show)
    timer.daemon = True
    if not is_quiet:
        timer.start()
        sys.stdout = _FirstOutput(stdout, end)
    try:
        yield
    finally:
        end()
        sys.stdout = stdout


def _spinner(what: str) -> Any:
    """Return a running spinner; print a line and return None if there is no terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{what} ...", file=sys.stderr, flush=True)
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Printed text goes to its own stream, not to the console.
    spinner = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    spinner.add_task(what, total=None)
    spinner.start()
    return spinner
