"""Reports as HTML: one page that needs nothing else, or a part of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

SHORT = 24  # characters of a text that stays on one line


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `value`: the sort key of a figure, None for a text; `share`: the length of its
    bar, 0 to 1; `whole`: the whole text of a shortened one, shown where the mouse points."""

    text: str
    value: float | None = None
    share: float | None = None
    whole: str = ""


def table(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table; on a page a click on a title sorts by that column."""
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(cell: Cell) -> str:
    text = escape(cell.text).replace("\n", "<br>")
    if cell.value is None and cell.share is None:
        title = f' title="{escape(cell.whole)}"' if cell.whole else ""
        short = ' class="short"' if len(cell.text) <= SHORT else ""
        return f"<td{short}{title}>{text}</td>"
    bar = ""
    if cell.share is not None:
        percent = 100 * min(max(cell.share, 0.0), 1.0)
        bar = f' style="background:linear-gradient(90deg,#f5b7b1 {percent:.1f}%,transparent {percent:.1f}%)"'
    return f'<td class="figure" data-value="{cell.value or 0.0!r}"{bar}>{text}</td>'


def part(body: str) -> str:
    """Return a report for a notebook."""
    return f'<div class="shapevm"><style>{_STYLE}</style>{body}</div>'


def page(title: str, body: str) -> str:
    """Return a page."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>body {{ margin: 2em; }}\n{_STYLE}</style></head>\n"
        f'<body class="shapevm"><h1>{escape(title)}</h1>\n{body}\n<script>{_SORT}</script></body></html>\n'
    )


_STYLE = """
.shapevm { font: 14px/1.4 system-ui, sans-serif; color: #222; background: #fff; }
.shapevm h1 { font-size: 20px; } .shapevm h2 { font-size: 16px; }
.shapevm table { border-collapse: collapse; margin: 1em 0; }
.shapevm th { background: #f0f2f5; cursor: pointer; position: sticky; top: 0; white-space: nowrap; }
/* Notebooks have rules of their own for cells: these are more specific. */
.shapevm.shapevm table td, .shapevm.shapevm table th {
  border: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top;
}
.shapevm td.short { white-space: nowrap; } .shapevm td:not(.short):not(.figure) { min-width: 14em; }
.shapevm th[data-order="-1"]::after { content: " \\2193"; }
.shapevm th[data-order="1"]::after { content: " \\2191"; }
.shapevm.shapevm table td.figure {
  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap;
}
.shapevm .storm { background: #fff2cc; padding: .6em; }
.shapevm .wide { overflow-x: auto; } .shapevm small { color: #666; }
/* Telephones: figures scroll beside the first column, which stays. */
@media (max-width: 48em) {
  body.shapevm { margin: .6em; }
  .shapevm.shapevm table td:first-child {
    position: sticky; left: 0; background: #fff; min-width: 8em; max-width: 38vw; white-space: normal;
  }
  .shapevm td:not(.short):not(.figure) { min-width: 9em; }
}
"""

_SORT = """
document.querySelectorAll("table").forEach(table => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const body = table.tBodies[0];
    const key = row => row.cells[column].dataset.value;
    const first = [...body.rows].some(key) ? -1 : 1;  // the greatest figure first, texts from A
    const sign = head.dataset.order ? -head.dataset.order : first;
    heads.forEach(other => delete other.dataset.order);
    head.dataset.order = sign;
    [...body.rows].sort((a, b) => sign * (key(a) === undefined
        ? a.cells[column].textContent.localeCompare(b.cells[column].textContent)
        : key(a) - key(b))).forEach(row => body.append(row));
  }));
});
"""
