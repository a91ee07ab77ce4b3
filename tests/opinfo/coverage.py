"""Which of PyTorch's operators compile, at which dtypes, and how: `make operators` writes docs/operators.md.

    python -m tests.opinfo.coverage [--ops REGEX] [--dtypes f32,i64] [--limit 4] [--again bad]

Verdicts are kept in build/opinfo/verdicts.json: `--again all` judges everything anew, `--again bad` (the
default) only cells that are new or not native, `--again new` new ones only, `--again none` writes the page
from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "opinfo" / "verdicts.json"

#: Families of which few are native.
LAST = ("linear algebra", "random", "fft and complex")
#: (operator, dtype, mode) -> [(verdict, detail), ...], one for each case
Found = dict[tuple[str, str, str], list[tuple[str, str]]]


def read() -> Found:
    """Return the kept verdicts."""
    if not KEPT.exists():
        return {}
    return {tuple(key.split(" ")): rows for key, rows in json.loads(KEPT.read_text()).items()}


def keep(judged: Found) -> None:
    """Keep verdicts beside those that are kept already, also by another process meanwhile."""
    found = read() | judged
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    beside = KEPT.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({" ".join(key): rows for key, rows in sorted(found.items())}, indent=0))
    beside.replace(KEPT)


def is_bad(rows: Iterable[tuple[str, str]]) -> bool:
    """Whether a cell has a case that might come out better."""
    return any(verdict in ("refused", "differs", "crash", "fallback", "slow") for verdict, _ in rows)


def main() -> None:
    """Judge and write the page."""
    options = _options()
    found = read()
    if options.again != "none":
        _judge(options, found)
    _show(found, options)
    if options.page:
        from .cases import database
        from .page import page

        Path(options.page).write_text(page(found, database()))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="only operators whose name matches")
    parser.add_argument("--dtypes", default="", help="only these, with commas")
    parser.add_argument("--modes", default="static,dynamic")
    parser.add_argument("--dynamic-dtypes", default="f32,i64,bool", help="dtypes compiled with dynamic sizes")
    parser.add_argument("--limit", type=int, default=4, help="samples of an operator at a dtype")
    parser.add_argument("--group", type=int, default=8, help="operators tried as one program, where not bad")
    parser.add_argument("--family", default="", help="only operators of this family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=60, help="for one operator at one dtype")
    parser.add_argument("--again", default="bad", choices=("all", "bad", "new", "none"))
    parser.add_argument("--page", default="", help="write the page here")
    parser.add_argument("--verbose", action="store_true", help="show every case that is not right")
    return parser.parse_args()


def _judge(options: Any, found: Found) -> None:
    from . import cases, pool
    from .cases import DTYPES
    from .family import family

    infos = cases.database()
    dtypes = options.dtypes.split(",") if options.dtypes else list(DTYPES)
    wanted = [cell for cell in cases.cells(infos, dtypes) if re.search(options.ops, cell.op)]
    wanted = [cell for cell in wanted if options.family in ("", family(cell.op, infos[cell.op]))]
    tasks: list[pool.Task] = []
    for mode in options.modes.split(","):
        for dtype in dtypes if mode == "static" else options.dynamic_dtypes.split(","):
            mine = [cell for cell in wanted if cell.dtype == dtype]
            rows = {cell: found.get((cell.op, dtype, mode)) for cell in mine}
            new = [cell for cell in mine if rows[cell] is None or options.again == "all"]
            bad = [cell for cell in mine if cell not in new and is_bad(rows[cell] or ())]
            tasks += [(tuple(new[i : i + options.group]), mode) for i in range(0, len(new), options.group)]
            tasks += [((cell,), mode) for cell in bad]
    judged: Found = {}
    start, total = time.monotonic(), sum(len(cells) for cells, _ in tasks)
    results = pool.run(tasks, infos, options.limit, options.jobs, options.seconds)
    for done, (cell, mode, verdicts) in enumerate(results, 1):
        found[cell.op, cell.dtype, mode] = judged[cell.op, cell.dtype, mode] = [
            (v.verdict, v.detail) for v in verdicts
        ]
        if done % 20 == 0 or done == total:
            keep(judged)
            seconds = time.monotonic() - start
            print(f"{done} of {total} cells, {seconds:.0f} s", file=sys.stderr, flush=True)


def _plan(options: Any, found: Found, wanted: Sequence[Any], dtypes: Sequence[str]) -> tuple[Any, Any]:
    """Return what to judge first, in groups, and last: operators that are likely not native come alone."""
    from .family import family

    def is_likely_native(cell: Any) -> bool:
        known = [rows for (op, _, _), rows in found.items() if op == cell.op]
        return family(cell.op) not in LAST and not any(map(is_bad, known))

    first, last = [], []
    for mode in options.modes.split(","):
        for dtype in dtypes if mode == "static" else options.dynamic_dtypes.split(","):
            mine = [cell for cell in wanted if cell.dtype == dtype]
            rows = {cell: found.get((cell.op, cell.dtype, mode)) for cell in mine}
            new = [cell for cell in mine if rows[cell] is None or options.again == "all"]
            again = [cell for cell in mine if options.again == "bad" and is_bad(rows[cell] or ())]
            likely = [cell for cell in new if is_likely_native(cell)]
            first += [
                (tuple(likely[i : i + options.group]), mode) for i in range(0, len(likely), options.group)
            ]
            last += [((cell,), mode) for cell in dict.fromkeys([*new, *again]) if cell not in likely]
    return first, last


def _show(found: Found, options: Any) -> None:
    counts: Counter[str] = Counter()
    for (op, dtype, mode), rows in sorted(found.items()):
        if not re.search(options.ops, op) or (options.dtypes and dtype not in options.dtypes.split(",")):
            continue
        counts.update(verdict for verdict, _ in rows)
        if options.verbose:
            for i, (verdict, detail) in enumerate(rows):
                if verdict in ("refused", "differs", "crash"):
                    print(f"{op} {dtype} {mode} {i}: {verdict}: {detail}")
    print(", ".join(f"{verdict} {n}" for verdict, n in counts.most_common()))


if __name__ == "__main__":
    main()
