"""Verdicts kept in a file between runs."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

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
