"""Which of PyTorch's operators compile, at which dtypes, and how: `make operators` writes docs/operators.md.

    python -m tests.opinfo.coverage [--ops REGEX] [--dtypes f32,i64] [--limit 4] [--again bad]

Verdicts are kept in build/opinfo/verdicts.json: `--again all` judges everything anew, `--again bad` (the
default) only cells that are new or not right, `--again new` new ones only, `--again none` writes the page
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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "opinfo" / "verdicts.json"

#: Verdicts of operators that are judged alone: in company they would cost the others another try.
ALONE = ("skipped", "refused", "crash", "slow")
#: Operators tried as one program with dynamic sizes: torch.export's time grows faster than their number.
DYNAMIC_GROUP = 2
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
    return any(verdict in ("refused", "differs", "crash", "slow") for verdict, _ in rows)


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
    parser.add_argument("--limit", type=int, default=2, help="samples of an operator at a dtype")
    parser.add_argument("--group", type=int, default=16, help="operators tried as one program")
    parser.add_argument("--family", default="", help="only operators of this family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="for one program")
    parser.add_argument("--again", default="bad", choices=("all", "bad", "new", "none"))
    parser.add_argument("--page", default="", help="write the page here")
    parser.add_argument("--verbose", action="store_true", help="show every case that is not right")
    return parser.parse_args()


def _judge(options: Any, found: Found) -> None:
    from . import cases, pool

    infos = cases.database()
    tasks = _tasks(options, found, infos)
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


def _tasks(options: Any, found: Found, infos: dict[str, Any]) -> list[Any]:
    """Return what to judge: first what is likely to compile, in groups, then the families of `LAST`, then
    what compiles or runs badly so far, each operator alone."""
    from .cases import DTYPES, cells
    from .family import LAST, family

    dtypes = options.dtypes.split(",") if options.dtypes else list(DTYPES)
    wanted = [cell for cell in cells(infos, dtypes) if re.search(options.ops, cell.op)]
    wanted = [cell for cell in wanted if options.family in ("", family(cell.op, infos[cell.op]))]
    alone = {op for (op, _, _), rows in found.items() if any(_hinders(*row) for row in rows)}
    tasks: list[tuple[list[Any], list[Any]]] = []
    for mode in options.modes.split(","):
        for dtype in dtypes:
            mine = [cell for cell in wanted if cell.dtype == dtype and _is_due(options, found, cell, mode)]
            mine.sort(key=lambda cell: family(cell.op, infos[cell.op]) in LAST)
            calm = [cell for cell in mine if cell.op not in alone]
            size = options.group if mode == "static" else DYNAMIC_GROUP
            grouped = [(tuple(calm[i : i + size]), mode) for i in range(0, len(calm), size)]
            tasks.append((grouped, [((cell,), mode) for cell in mine if cell.op in alone]))
    return [task for first, _ in tasks for task in first] + [task for _, last in tasks for task in last]


def _hinders(verdict: str, detail: str) -> bool:
    return verdict in ALONE and not detail.startswith("eager:")


def _is_due(options: Any, found: Found, cell: Any, mode: str) -> bool:
    rows = found.get((cell.op, cell.dtype, mode))
    return rows is None or options.again == "all" or (options.again == "bad" and is_bad(rows))


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
