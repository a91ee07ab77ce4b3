"""docs/operators.md, written from the kept verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .cases import DTYPES
from .family import family
from .verdicts import RIGHT

#: (operator, dtype, mode) -> [(verdict, detail), ...], one for each case
Found = Mapping[tuple[str, str, str], list[tuple[str, str]]]
SIGNS = {"native": "n", "fallback": "f", "refused": "-", "differs": "!", "crash": "!", "slow": "?"}
HEAD = """# Operators

Every operator of PyTorch's own test database (`op_db` of PyTorch {torch}), on at most {limit} of its
samples for each dtype, exported, compiled and compared with eager: values within the tolerances of
`torch.testing.assert_close` (integers exactly), dtype, shape, structure. Where eager's own rounding is
coarser, eager in f64 is what counts. Samples that eager or `torch.export` refuses, and complex, sparse and
quantised ones, do not count.

`n` native: all in shapevm's kernels; `f`: right, with PyTorch's kernel for a part of it; `-` refused when
compiling, with a sentence that says why; `!` wrong; `?` no answer in time. Several letters: some
samples each. Empty: nothing judged. Static sizes, then, behind a slash, dynamic ones. Written by
`make operators`.
"""


def page(found: Found, infos: Mapping[str, Any]) -> str:
    """Return the page."""
    import torch

    families: dict[str, list[str]] = {}
    for op in sorted({op for op, _, _ in found}):
        families.setdefault(family(op, infos.get(op)), []).append(op)
    n_cells = sum(
        DTYPES[dtype] in info.supported_dtypes("cpu") for info in infos.values() for dtype in DTYPES
    )
    judged = f"Judged so far: {len({key[:2] for key in found})} of {n_cells} pairs of operator and dtype.\n"
    limit = max(map(len, found.values()), default=0)
    head = HEAD.format(torch=torch.__version__.split("+")[0], limit=limit)
    parts = [head, judged, _summary(found, families)]
    for name, ops in sorted(families.items()):
        header = f"| operator | {' | '.join(DTYPES)} |\n|{' --- |' * (len(DTYPES) + 1)}"
        rows = [f"| {op} | {' | '.join(_cell(found, op, dtype) for dtype in DTYPES)} |" for op in ops]
        parts.append(f"## {name.capitalize()}\n\n{header}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _cell(found: Found, op: str, dtype: str) -> str:
    letters = []
    for mode in ("static", "dynamic"):
        verdicts = {SIGNS[verdict] for verdict, _ in found.get((op, dtype, mode), ()) if verdict in SIGNS}
        letters.append("".join(sign for sign in "nf-!?" if sign in verdicts))
    return "/".join(letters) if letters[1] else letters[0]


def _summary(found: Found, families: Mapping[str, list[str]]) -> str:
    columns = "operators | samples | right | right without PyTorch's kernels | wrong |"
    lines = ["## Summary", "", f"| family | {columns}"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, ops in [*sorted(families.items()), ("all", sum(families.values(), []))]:
        chosen = set(ops)
        lines.append(_line(name, len(ops), (rows for key, rows in found.items() if key[0] in chosen)))
    lines += ["", f"| dtype | {columns}"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for dtype in DTYPES:
        keys = [key for key in found if key[1] == dtype]
        lines.append(_line(dtype, len({key[0] for key in keys}), (found[key] for key in keys)))
    return "\n".join(lines) + "\n"


def _line(name: str, n_ops: int, cells: Iterable[list[tuple[str, str]]]) -> str:
    counts = Counter(verdict for rows in cells for verdict, _ in rows if verdict in SIGNS)
    total = sum(counts.values())
    right = sum(counts[verdict] for verdict in RIGHT)
    wrong = counts["differs"] + counts["crash"]
    shares = [f"{100 * n / total:.1f} %" if total else "" for n in (right, counts["native"])]
    return f"| {name} | {n_ops} | {total} | {shares[0]} | {shares[1]} | {wrong} |"
