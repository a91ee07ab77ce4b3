"""docs/operators.md, written from the kept verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .cases import DTYPES
from .family import LAST, family
from .verdicts import MODES, RIGHT

#: (operator, dtype, mode) -> [(verdict, detail), ...], one for each case
Found = Mapping[tuple[str, str, str], list[tuple[str, str]]]
SIGNS = {"native": "n", "fallback": "f", "refused": "-", "differs": "!", "crash": "!", "slow": "?"}
HEAD = """# Operators

Every operator of PyTorch's own test database (`op_db` of PyTorch {torch}) is exported, compiled and compared
with eager: values within the tolerances of `torch.testing.assert_close` (integers exactly), dtype, shape,
structure. `make operators` writes the page.

- Where eager's own rounding is coarser, eager in f64 is the reference. The choice among equal elements
  (topk, sort) and random numbers are not compared.
- With dynamic sizes, every axis of every input is dynamic.
- Samples that eager or `torch.export` refuses do not count. Neither do samples whose inputs or results are
  complex, sparse, quantised or of a dtype that is not in the table.

| sign | meaning |
| --- | --- |
| `n` | native: computed only by shapevm's kernels |
| `f` | right, with PyTorch's kernel for a part |
| `-` | refused when compiling, with a sentence that says why |
| `!` | wrong |
| `?` | no answer in time |
| several signs | some samples each |
| empty | nothing judged |

A cell holds the signs with static sizes and, after a slash, with dynamic ones.

{judged}
"""
JUDGED = """With {mode} sizes {pairs} of {n_pairs} pairs of operator and dtype are judged, {whole} on all
their samples{partly}: {samples} of {total} samples, of which {count} count."""


def page(found: Found, totals: Mapping[tuple[str, str, str], int], infos: Mapping[str, Any]) -> str:
    """Return the page. `totals`: how many samples there are."""
    import torch

    families: dict[str, list[str]] = {}
    for op in sorted({op for op, _, _ in found}):
        families.setdefault(family(op, infos.get(op)), []).append(op)
    n_pairs = sum(
        DTYPES[dtype] in info.supported_dtypes("cpu") for info in infos.values() for dtype in DTYPES
    )
    judged = "\n".join(_judged(found, totals, n_pairs, mode) for mode in MODES)
    head = HEAD.format(torch=torch.__version__.split("+")[0], judged=judged)
    parts = [head, _summary(found, families)]
    for name, ops in sorted(families.items()):
        header = f"| operator | {' | '.join(DTYPES)} |\n|{' --- |' * (len(DTYPES) + 1)}"
        rows = [f"| {op} | {' | '.join(_cell(found, op, dtype) for dtype in DTYPES)} |" for op in ops]
        parts.append(f"## {name.capitalize()}\n\n{header}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _judged(found: Found, totals: Mapping[tuple[str, str, str], int], n_pairs: int, mode: str) -> str:
    """Return how many samples of a mode are judged, in words."""
    n_judged = {key: len(rows) for key, rows in found.items() if key[2] == mode}
    partly = [n for key, n in n_judged.items() if n < totals[key]]
    others = f", the others on {min(partly)} to {max(partly)}, evenly chosen" if partly else ""
    return JUDGED.format(
        mode=mode,
        pairs=len(n_judged),
        n_pairs=n_pairs,
        whole=len(n_judged) - len(partly),
        partly=others,
        samples=sum(n_judged.values()),
        total=sum(totals[key] for key in n_judged),
        count=sum(verdict in SIGNS for key in n_judged for verdict, _ in found[key]),
    )


def _cell(found: Found, op: str, dtype: str) -> str:
    letters = []
    for mode in MODES:
        verdicts = {SIGNS[verdict] for verdict, _ in found.get((op, dtype, mode), ()) if verdict in SIGNS}
        letters.append("".join(sign for sign in "nf-!?" if sign in verdicts))
    return "/".join(letters) if letters[1] else letters[0]


def _summary(found: Found, families: Mapping[str, list[str]]) -> str:
    columns = "pairs | samples | right | native | refused | wrong |"
    rule = f"|{' --- |' * (columns.count('|') + 1)}"
    last = {op for name in LAST for op in families.get(name, ())}
    names = ", ".join(LAST)
    kinds = {
        f"all but {names}": [key for key in found if key[0] not in last],
        names: [key for key in found if key[0] in last],
        "all": list(found),
    }
    lines = ["## Summary", ""]
    for title, groups in (
        ("operators", kinds),
        ("sizes", {mode: [key for key in found if key[2] == mode] for mode in MODES}),
        ("dtype", {dtype: [key for key in found if key[1] == dtype] for dtype in DTYPES}),
        ("family", {name: _of(found, ops) for name, ops in sorted(families.items())}),
    ):
        lines += [f"| {title} | {columns}", rule]
        lines += [_line(name, found, keys) for name, keys in groups.items()] + [""]
    return "\n".join(lines)


def _of(found: Found, ops: Sequence[str]) -> list[tuple[str, str, str]]:
    chosen = set(ops)
    return [key for key in found if key[0] in chosen]


def _line(name: str, found: Found, keys: Sequence[tuple[str, str, str]]) -> str:
    counts = Counter(verdict for key in keys for verdict, _ in found[key] if verdict in SIGNS)
    total = sum(counts.values())
    right = sum(counts[verdict] for verdict in RIGHT)
    shares = [f"{100 * n / total:.1f} %" if total else "" for n in (right, counts["native"])]
    n_pairs, wrong = len({key[:2] for key in keys}), counts["differs"] + counts["crash"]
    return f"| {name} | {n_pairs} | {total} | {shares[0]} | {shares[1]} | {counts['refused']} | {wrong} |"
