"""What became of the weights that were to be rounded, as an artifact tells it (`compiler.ir.rounding`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .tables import table_text
from .vm.errors import ArtifactError

_FIELDS = {"name": str, "shape": list, "format": str, "bytes": int, "error": int | float, "reason": str}


def weight_rows(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each weight: name, shape, format, bytes, error and reason. Raises ArtifactError for
    data of another form."""
    rows = meta.get("weights", [])
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise ArtifactError("the list of rounded weights is malformed: compile the model again")
    return rows


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or set(row) != set(_FIELDS):
        return False
    are_known = all(isinstance(row[name], kind) for name, kind in _FIELDS.items())
    return are_known and all(isinstance(size, int) for size in row["shape"])


def weight_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows for people."""
    titles = ("weight", "not as asked", "held as", "size", "bytes", "error")
    cells = [
        [row["name"], row["reason"], row["format"], " x ".join(map(str, row["shape"])),
         f"{row['bytes']:,}", f"{row['error']:.2g}"]
        for row in rows
    ]  # fmt: skip
    return table_text(titles, cells, n_texts=3)
