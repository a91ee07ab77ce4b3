"""Programs with `Dim.AUTO` on every axis that take fewer sizes than torch.export's own, are refused or wrong;
or programs of `torch.jit.trace` (`--door script`), or modules of `torch.jit.script` (`--door scripted`), that
do not give what the trace or script gives.

    python -m tests.freed.coverage [--door export] [--kinds operators,modules,programs] [--ops REGEX]

Verdicts are kept in build/freed/verdicts.json: `--again bad` (the default) judges what is new or not right.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ..opinfo.kept import keep_all, read
from .verdicts import BAD

MODES = {"export": "auto", "script": "script", "scripted": "scripted"}  # by door
KEPT = Path(__file__).parents[2] / "build" / "freed" / "verdicts.json"


def main() -> None:
    """Judge and print a summary."""
    options = _options()
    if options.again != "none":
        _judge(options)
    found, mode = read(KEPT)[0], MODES[options.door]
    found = {key: rows for key, rows in found.items() if re.search(options.ops, key[0])}
    for kind in options.kinds.split(","):
        counts: Counter[str] = Counter()
        mine = [(key[0], rows) for key, rows in found.items() if key[1:] == (kind, mode)]
        for name, rows in mine:
            counts.update(verdict for verdict, _ in rows)
            for i, (verdict, detail) in enumerate(rows):
                if verdict in BAD:
                    print(f"{name} {i}: {verdict}: {detail}")
        print(f"{kind}: " + ", ".join(f"{verdict} {n}" for verdict, n in counts.most_common()))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--door", default="export", choices=MODES)
    parser.add_argument("--kinds", default="operators,modules,programs")
    parser.add_argument("--ops", default="", help="only those whose name matches")
    parser.add_argument("--limit", type=int, default=2, help="samples of an operator or module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=120, help="for one sample")
    parser.add_argument("--again", default="bad", choices=("all", "bad", "new", "none"))
    return parser.parse_args()


def _judge(options: Any) -> None:
    from ..opinfo import pool
    from .cases import Source, cells
    from .verdicts import judge_one, judge_scripted, judge_traced, prepare

    source, mode = Source(), MODES[options.door]
    judge = {"export": judge_one, "script": judge_traced, "scripted": judge_scripted}[options.door]
    kept, _ = read(KEPT)
    named = [cell for cell in cells(options.kinds.split(",")) if re.search(options.ops, cell.op)]
    wanted = [cell for cell in named if is_due(kept.get((cell.op, cell.dtype, mode)), options.again)]
    suite = pool.Suite(prepare, source.samples, source.calls, judge)
    tasks = [((cell,), mode, options.limit) for cell in wanted]
    keep_all(KEPT, pool.run(tasks, suite, options.jobs, options.seconds), len(tasks), "cells")


def is_due(rows: Any, again: str) -> bool:
    if rows is None or again == "all":
        return True
    return again == "bad" and any(verdict in BAD for verdict, _ in rows)


if __name__ == "__main__":
    main()
