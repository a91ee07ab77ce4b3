"""docs/modules.md, written from the kept verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..opinfo.kept import Found, Key
from ..opinfo.verdicts import RIGHT
from .verdicts import MODES

SIGNS = {"native": "n", "fallback": "f", "refused": "-", "differs": "!", "crash": "!", "slow": "?"}
HEAD = """# Modules

Every module of PyTorch's own test database (`module_db` of PyTorch {torch}), with {inputs} that PyTorch
tests it with, under its own argument names: compiled and compared with eager. Values agree within those of
`torch.testing.assert_close`, with eager or, where eager's own rounding is coarser, with eager in f64; dtypes,
shapes, changed arguments and buffers agree as well.

- static: the module, as `shapevm.compile` takes it;
- dynamic: an `ExportedProgram` in which every axis of every tensor is `Dim.AUTO`;
- compiled: `torch.compile(..., dynamic=True)` without gradients;
- training: `torch.compile` in training mode; gradients of arguments and weights agree as well.

`n` native: all in shapevm's kernels; `f`: right, with PyTorch's kernel for a part of it; `-` refused, with a
sentence that says why; `!` wrong; `?` no answer in time. The number of inputs stands before each sign. Inputs
that eager, `torch.export` or Dynamo refuses do not count. Written by `python -m tests.modules.coverage --page
docs/modules.md`; CI judges a tenth of all, drawn anew each time.
"""


def page(found: Found, limit: int | None = None, modes: Sequence[str] = MODES) -> str:
    """Return the page. `limit`: so many inputs of a module were judged, None: all."""
    import torch

    inputs = "all inputs" if limit is None else f"{limit} of the inputs"

    header = f"| module | {' | '.join(modes)} |\n|{' --- |' * (len(modes) + 1)}"
    ops = sorted({(op, dtype) for op, dtype, _ in found})
    rows = [
        f"| {op}{'' if dtype == 'f32' else ' ' + dtype} | "
        + " | ".join(_cell(found.get((op, dtype, mode), ())) for mode in modes)
        + " |"
        for op, dtype in ops
    ]
    bad = [
        f"- {op}, {mode}, input {i}: {verdict}: {detail}"
        for (op, dtype, mode), judged in sorted(found.items())
        for i, (verdict, detail) in enumerate(judged)
        if verdict in SIGNS and verdict not in RIGHT
    ]
    others = ["## Not right", "", *bad, ""] if bad else []
    head = HEAD.format(torch=torch.__version__.split("+")[0], inputs=inputs)
    return "\n".join([head, summary(found, modes), *others, "## Modules", "", header, *rows, ""])


def summary(found: Found, modes: Sequence[str] = MODES) -> str:
    """Return a table of how many inputs are right and native."""
    lines = ["| sizes | modules | inputs | right | native | refused | wrong | modules all right |"]
    lines += [f"|{' --- |' * 8}"]
    lines += [_row(mode, found, [key for key in found if key[2] == mode]) for mode in modes]
    return "\n".join([*lines, _row("all", found, list(found)), ""])


def _row(name: str, found: Found, keys: Sequence[Key]) -> str:
    rows = {key: [verdict for verdict, _ in found[key] if verdict in SIGNS] for key in keys}
    counts = Counter(verdict for row in rows.values() for verdict in row)
    total, right = sum(counts.values()), sum(counts[verdict] for verdict in RIGHT)
    wrong = counts["differs"] + counts["crash"] + counts["slow"]
    modules = {key[0] for key in keys if rows[key]}
    bad = {key[0] for key in keys if any(verdict not in RIGHT for verdict in rows[key])}
    shares = [f"{100 * n / total:.1f} %" if total else "" for n in (right, counts["native"])]
    cells = [len(modules), total, *shares, counts["refused"], wrong, len(modules - bad)]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _cell(rows: Sequence[tuple[str, str]]) -> str:
    counts: Mapping[str, int] = Counter(SIGNS[verdict] for verdict, _ in rows if verdict in SIGNS)
    return " ".join(f"{counts[sign]}{sign}" for sign in "nf-!?" if sign in counts)
