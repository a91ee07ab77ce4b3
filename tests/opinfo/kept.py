"""Verdicts kept in a file between runs."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: (operator, dtype, mode)
Key = tuple[str, str, str]
#: [(verdict, detail), ...], one for each case
Found = dict[Key, list[tuple[str, str]]]
#: How many samples there are, judged or not.
Totals = dict[Key, int]


def read(path: Path) -> tuple[Found, Totals]:
    """Return the verdicts kept at `path`, and of how many samples each is where that is known."""
    kept = json.loads(path.read_text()) if path.exists() else {"verdicts": {}, "totals": {}}
    if "totals" not in kept:  # as they were kept with limits: with fewer samples, those are all
        rows, limits = kept["verdicts"], kept["limits"]
        kept["totals"] = {key: len(rows[key]) for key in rows if len(rows[key]) < limits[key]}
    found, totals = (
        {tuple(key.split(" ")): x for key, x in kept[name].items()} for name in ("verdicts", "totals")
    )
    return found, totals


def keep(path: Path, judged: Found, judged_totals: Totals) -> None:
    """Keep verdicts beside those that are kept already, also by another process meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        found, totals = (old | new for old, new in zip(read(path), (judged, judged_totals), strict=True))
        tables = {
            name: {" ".join(key): x for key, x in sorted(table.items())}
            for name, table in (("verdicts", found), ("totals", totals))
        }
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(tables, indent=0))
        beside.replace(path)


def keep_all(path: Path, results: Iterable[Any], n_tasks: int, unit: str) -> None:
    """Keep what a pool judges as it comes, and say on standard error how far it is."""
    start = time.monotonic()
    for done, (cell, mode, n_samples, judged) in enumerate(results, 1):
        key = (cell.op, cell.dtype, mode)
        keep(path, {key: [(v.verdict, v.detail) for v in judged]}, {key: n_samples})
        if done % 20 == 0 or done == n_tasks:
            seconds = time.monotonic() - start
            print(f"{done} of {n_tasks} {unit}, {seconds:.0f} s", file=sys.stderr, flush=True)
