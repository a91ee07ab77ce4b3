"""A table of an artifact's rounded weights (`compiler.ir.rounding`)."""

from __future__ import annotations

from typing import Any

from .tables import table_text


def weight_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as text."""
    titles = ("weight", "not as asked", "held as", "size", "bytes", "error")
    cells = [
        [row["name"], row["reason"], row["format"], " x ".join(map(str, row["shape"])),
         f"{row['bytes']:,}", f"{row['error']:.2g}"]
        for row in rows
    ]  # fmt: skip
    return table_text(titles, cells, n_texts=3)
