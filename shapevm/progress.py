"""Progress of what takes long, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

PATIENCE = 2.0  # seconds that pass before anything is shown


@contextmanager
def waiting(what: str, is_quiet: bool = False) -> Iterator[None]:
    """Say what is being done once it takes over PATIENCE seconds: a spinner with a clock on a terminal, a
    line elsewhere."""
    lock, shown, is_over = Lock(), [], False

    def show() -> None:
        with lock:
            if not is_over:
                shown.append(_spinner(what))

    timer = Timer(PATIENCE, show)
    timer.daemon = True
    if not is_quiet:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
        for spinner in shown:
            if spinner is not None:
                spinner.stop()


def _spinner(what: str) -> Any:
    """Return a spinner that runs, None where there is no terminal: then a line is printed."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{what} ...", file=sys.stderr, flush=True)
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    spinner = Progress(*columns, console=console, transient=True)
    spinner.add_task(what, total=None)
    spinner.start()
    return spinner
