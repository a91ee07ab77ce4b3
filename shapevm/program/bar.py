"""A bar of progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(is_shown: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """Show stages of a long operation: a bar on a terminal, nothing elsewhere. The function in the block is
    called as `update(stage, done, total)`; a total of 0 is unknown."""
    console = None
    if is_shown:
        from rich.console import Console

        console = Console(stderr=True)
    if console is None or not console.is_terminal:
        yield lambda stage, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as shown:
        task = shown.add_task("", total=1)
        yield lambda stage, done, total: shown.update(
            task, description=stage, completed=done, total=total or None
        )
