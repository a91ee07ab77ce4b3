"""Which of PyTorch's operators compile, at which dtypes, and how: `make operators` writes docs/operators.md.

    python -m tests.opinfo.coverage [--ops REGEX] [--dtypes f32,i64] [--limit 4] [--again bad]

Verdicts are kept in build/opinfo/verdicts.json: `--again all` judges everything anew, `--again bad` (the
default) only cells that are new or not right, `--again fallback` also those that call PyTorch,
`--again new` new ones only, `--again more` also those judged on fewer samples than `--limit`, `--again none`
writes the page from what is there.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from .kept import Found, Totals, keep, read

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "opinfo" / "verdicts.json"

#: Verdicts of operators that are judged alone: in company they would cost the others another try.
ALONE = ("skipped", "refused", "crash", "slow")
FEW = 2
#: For `--again`: which cells are judged anew.
AGAIN = ("all", "bad", "fallback", "new", "more", "none")


def count(found: Found, totals: Totals, infos: dict[str, Any]) -> None:
    """Find out how many samples there are where `totals` does not say."""
    from .cases import samples
    from .verdicts import MODES, prepare

    prepare()
    for op, dtype, mode in found:
        known = [n for n in (totals.get((op, dtype, each)) for each in MODES) if n is not None]
        totals[op, dtype, mode] = known[0] if known else len(samples(infos[op], dtype))
    keep(KEPT, {}, totals)


def is_bad(rows: Iterable[tuple[str, str]]) -> bool:
    """Whether a cell has a case that might come out better."""
    return any(verdict in ("refused", "differs", "crash", "slow") for verdict, _ in rows)


def main() -> None:
    """Judge and write the page."""
    options = _options()
    found, totals = read(KEPT)
    if options.again != "none":
        _judge(options, found, totals)
    counts = _show(found, options)
    if options.native:
        sys.exit(not counts["native"] or bool(counts.keys() - {"native", "skipped"}))
    if options.page:
        from .cases import database
        from .page import page

        count(found, totals, database())
        Path(options.page).write_text(page(found, totals, database()))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="only operators whose name matches")
    parser.add_argument("--dtypes", default="", help="only these, with commas")
    parser.add_argument("--modes", default="static,dynamic")
    parser.add_argument("--limit", type=int, default=FEW, help="samples of an operator at a dtype")
    parser.add_argument("--group", type=int, default=32, help="samples tried as one program")
    parser.add_argument("--family", default="", help="only operators of this family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="for one program")
    parser.add_argument("--again", default="bad", choices=AGAIN)
    parser.add_argument("--page", default="", help="write the page here")
    parser.add_argument("--verbose", action="store_true", help="show every case that is not right")
    parser.add_argument("--native", action="store_true", help="exit 1 unless all is right and native")
    return parser.parse_args()


def _judge(options: Any, found: Found, totals: Totals) -> None:
    from . import cases, pool

    infos = cases.database()
    tasks = _tasks(options, found, totals, infos)
    judged: Found = {}
    judged_totals: Totals = {}
    start, total = time.monotonic(), sum(len(task[0]) for task in tasks)
    results = pool.run(tasks, pool.operators(infos), options.jobs, options.seconds)
    for done, (cell, mode, n_samples, verdicts) in enumerate(results, 1):
        key = (cell.op, cell.dtype, mode)
        found[key] = judged[key] = [(v.verdict, v.detail) for v in verdicts]
        totals[key] = judged_totals[key] = n_samples
        if done % 20 == 0 or done == total:
            keep(KEPT, judged, judged_totals)
            judged.clear()  # another process may judge these again meanwhile
            judged_totals.clear()
            seconds = time.monotonic() - start
            print(f"{done} of {total} cells, {seconds:.0f} s", file=sys.stderr, flush=True)


def _tasks(options: Any, found: Found, totals: Totals, infos: dict[str, Any]) -> list[Any]:
    """Return what to judge: first what is likely to compile, in groups, then the families of `LAST`, then
    what compiles or runs badly so far, each operator alone."""
    from .cases import DTYPES, cells
    from .family import LAST, family
    from .verdicts import MOST

    dtypes = options.dtypes.split(",") if options.dtypes else list(DTYPES)
    wanted = [cell for cell in cells(infos, dtypes) if re.search(options.ops, cell.op)]
    wanted = [cell for cell in wanted if options.family in ("", family(cell.op, infos[cell.op]))]
    alone = {op for (op, _, _), rows in found.items() if any(_hinders(*row) for row in rows)}
    tasks: list[tuple[list[Any], list[Any]]] = []
    for mode in options.modes.split(","):
        for dtype in dtypes:
            due = partial(_is_due, options, found, totals, mode)
            mine = [cell for cell in wanted if cell.dtype == dtype and due(cell)]
            mine.sort(key=lambda cell: family(cell.op, infos[cell.op]) in LAST)
            calm = [cell for cell in mine if cell.op not in alone]
            most = max((len(found.get((cell.op, dtype, mode), ())) for cell in mine), default=0)
            limit = max(options.limit, most)  # no cell is judged on fewer samples than before
            size = max(1, (options.group if mode == "static" else MOST[mode]) // limit)
            grouped = [(tuple(calm[i : i + size]), mode, limit) for i in range(0, len(calm), size)]
            tasks.append((grouped, [((cell,), mode, limit) for cell in mine if cell.op in alone]))
    return [task for first, _ in tasks for task in first] + [task for _, last in tasks for task in last]


def _hinders(verdict: str, detail: str) -> bool:
    return verdict in ALONE and not detail.startswith("eager:")


def _is_due(options: Any, found: Found, totals: Totals, mode: str, cell: Any) -> bool:
    key = (cell.op, cell.dtype, mode)
    rows = found.get(key)
    if rows is None or options.again == "all":
        return True
    is_more = options.again == "more" and len(rows) < min(options.limit, totals.get(key, options.limit))
    is_called = options.again == "fallback" and any(verdict == "fallback" for verdict, _ in rows)
    return is_more or is_called or (options.again in ("bad", "fallback") and is_bad(rows))


def _show(found: Found, options: Any) -> Counter[str]:
    """Print the verdicts on the operators asked for; return how many there are of each."""
    counts: Counter[str] = Counter()
    for (op, dtype, mode), rows in sorted(found.items()):
        if not re.search(options.ops, op) or (options.dtypes and dtype not in options.dtypes.split(",")):
            continue
        counts.update(verdict for verdict, _ in rows)
        if options.verbose:
            for i, (verdict, detail) in enumerate(rows):
                if verdict in ("refused", "differs", "crash") or (options.native and verdict == "fallback"):
                    print(f"{op} {dtype} {mode} {i}: {verdict}{detail and f': {detail}'}")
    print(", ".join(f"{verdict} {n}" for verdict, n in counts.most_common()))
    return counts


if __name__ == "__main__":
    main()
