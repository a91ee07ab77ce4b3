"""Tables for terminals, pipes and files: texts wrap, figures are never cut."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

MIN_TEXT = 14  # least width of a text that wraps
WIDTH = 80  # of a pipe or a file


def output_width() -> int:
    """Return the width of the terminal; for a pipe or a file, the variable COLUMNS or 80."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def table_text(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    n_texts: int = 1,
    title: str = "",
    width: int | None = None,
) -> str:
    """Return a table as text. The first `n_texts` columns hold texts, which wrap if necessary; the others
    hold figures, which are never cut even if the table becomes wider than `width` (None: the output's). A
    column of figures without any is left out; a title of several words takes several lines.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    shown = [i for i in range(len(titles)) if i < n_texts or any(row[i] for row in rows)]
    table = Table(
        title=title or None, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title_justify="left"
    )
    least = 0
    for i in shown:
        cells = [line for row in rows for line in row[i].split("\n")]
        longest = max(map(len, cells), default=0)
        if i < n_texts:
            head, narrow = titles[i], min(max(longest, len(titles[i])), MIN_TEXT)
            table.add_column(head, overflow="fold", min_width=narrow)
        else:
            head = titles[i].replace(" ", "\n")
            narrow = max(longest, *map(len, titles[i].split()))
            table.add_column(head, justify="right", no_wrap=True, min_width=narrow)
        least += narrow + 2  # a space behind it and a line between columns
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    out = io.StringIO()
    room = max(output_width() if width is None else width, least)
    Console(file=out, width=room, highlight=False, markup=False, color_system=None).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
