"""Which of PyTorch's modules compile, and how: `make modules` writes docs/modules.md.

    python -m tests.modules.coverage [--ops REGEX] [--modes static,training] [--limit 9] [--again bad]

Verdicts are kept in build/modules/verdicts.json: `--again all` judges everything anew, `--again bad` (the
default) only modules that are new or not right, `--again fallback` also those that call PyTorch, `--again
new` new ones only, `--again none` writes the page from what is there. `--limit`: so many inputs of a module,
evenly chosen; all by default.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

from ..opinfo.kept import Found, keep_all, read

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "modules" / "verdicts.json"
AGAIN = ("all", "bad", "fallback", "new", "none")
#: Verdicts of modules that are judged again.
DUE = {"bad": ("refused", "differs", "crash", "slow"), "new": (), "none": ()}
DUE["fallback"] = (*DUE["bad"], "fallback")
EVERY = 10**6


def main() -> None:
    """Judge and write the page."""
    options = _options()
    if options.again != "none":
        _judge(options)
    found, _ = read(KEPT)
    found = {key: rows for key, rows in found.items() if re.search(options.ops, key[0])}
    if options.verbose:
        _show(found, options.modes.split(","))
    from .page import page, summary

    print(summary(found))
    if options.page:
        Path(options.page).write_text(page(found, options.limit if options.limit < EVERY else None))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="only modules whose name matches")
    parser.add_argument("--dtypes", default="f32", help="with commas")
    parser.add_argument("--modes", default="static,dynamic,compiled,training")
    parser.add_argument("--limit", type=int, default=EVERY, help="inputs of a module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=120, help="for one input")
    parser.add_argument("--again", default="bad", choices=AGAIN)
    parser.add_argument("--page", default="", help="write the page here")
    parser.add_argument("--verbose", action="store_true", help="show every input that is not native")
    return parser.parse_args()


def suite(infos: dict[str, Any], mode_of_samples: bool = False) -> Any:
    """Return what the pool judges."""
    from ..opinfo import pool, verdicts
    from .cases import case, inputs
    from .verdicts import judge_one

    def samples(cell: Any) -> list[Any]:
        info = infos[cell.op]
        return [(info, cell.dtype, found) for found in inputs(info, cell.dtype, mode_of_samples)]

    def chosen(cell: Any, made: list[Any], limit: int) -> list[Any]:
        step = max(len(made) / limit, 1)
        return [made[int(i * step)] for i in range(min(limit, len(made)))]

    def judge(op: str, sample: Any, mode: str) -> Any:
        return judge_one(op, case(*sample, training=mode_of_samples), mode)

    return pool.Suite(verdicts.prepare, samples, chosen, judge)


def _judge(options: Any) -> None:
    from ..opinfo import pool
    from .cases import cells, database

    infos = database()
    wanted = [c for c in cells(infos, options.dtypes.split(",")) if re.search(options.ops, c.op)]
    for training in (False, True):
        modes = [mode for mode in options.modes.split(",") if (mode == "training") is training]
        tasks = [((cell,), mode, options.limit) for mode in modes for cell in wanted]
        kept, _ = read(KEPT)
        tasks = [task for task in tasks if _is_due(options, kept.get((*_key(task[0][0]), task[1])))]
        results = pool.run(tasks, suite(infos, training), options.jobs, options.seconds)
        keep_all(KEPT, results, len(tasks), "modules")


def _key(cell: Any) -> tuple[str, str]:
    return cell.op, cell.dtype


def _is_due(options: Any, rows: Any) -> bool:
    if rows is None or options.again == "all":
        return True
    return any(verdict in DUE[options.again] for verdict, _ in rows)


def _show(found: Found, modes: list[str]) -> None:
    for (op, dtype, mode), rows in sorted(found.items()):
        for i, (verdict, detail) in enumerate(rows):
            if mode in modes and verdict != "native":
                print(f"{op} {dtype} {mode} {i}: {verdict}: {detail}")


if __name__ == "__main__":
    main()
